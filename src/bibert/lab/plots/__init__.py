"""Figures: plain data in, files out. matplotlib comes with `pip install 'bibert[plot]'`; drawing imports it."""

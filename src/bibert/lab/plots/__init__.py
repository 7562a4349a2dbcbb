"""Figures: plain data in, files out. Only here is matplotlib imported; it comes with `pip install 'bibert[plot]'`."""

"""Pages for a browser: plain data in, one self-contained HTML file out that needs no network and no server.

jinja2 comes with `pip install 'bibert[plot]'`. All pages extend templates/base.html.jinja: colours, fonts, themes.
"""

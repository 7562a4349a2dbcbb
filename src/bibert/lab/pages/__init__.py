"""Pages for a browser: plain data in, one HTML file out that needs nothing else, no network and no server.

jinja2 comes with `pip install 'bibert[plot]'`. How a page is put together is in `render`; what every page shares,
colours, fonts and the switch between light and dark, in templates/base.html.jinja, which the others extend.
"""

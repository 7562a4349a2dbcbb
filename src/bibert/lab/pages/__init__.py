"""Pages: plain data in, one self-contained HTML file out that needs no network and no server; and the text of a card.

All pages extend templates/base.html.jinja: colours, fonts, themes. Everything that a template of a page prints is
escaped. Data for a script goes through `tojson`, which escapes `<`, `>`, `&` and all non-ASCII characters: no text of a
user can end the script or become part of the page. jinja2 comes with the extras `plot` and, through torch, `train`.
"""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from bibert.files import write_whole


def render(template: str, **values: Any) -> str:
    """Fill a template of templates/; pages need a `title` and may use `subtitle` and (name, value) `facts`."""
    return _environment().get_template(template).render(values)


def save_page(page: str, path: Path) -> Path:
    """Write a page atomically."""
    with write_whole(path) as file:
        file.write(page)
    return path


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__name__),
        autoescape=select_autoescape(disabled_extensions=["md.jinja"], default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

"""From a template of this package to one self-contained page.

Everything a template prints is escaped. Data for a script goes through `tojson`, which escapes `<`, `>`, `&` and all
non-ASCII characters: no text of a user can end the script or become part of the page.
"""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bibert.files import write_whole


def render_page(template: str, **values: Any) -> str:
    """Render a template of templates/, all of which need `title` and may use `subtitle` and (name, value) `facts`."""
    return _environment().get_template(template).render(values)


def save_page(page: str, path: Path) -> Path:
    """Write a page atomically."""
    with write_whole(path) as file:
        file.write(page)
    return path


@cache
def _environment() -> Environment:
    templates = PackageLoader("bibert.lab.pages")
    return Environment(
        loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )

"""From a template of this package to one page that holds all it needs.

What a template prints is escaped. Data for a script goes through `tojson`, which writes `<`, `>`, `&` and all that is
not ASCII as escapes: no text of a user can end the script or become part of the page.
"""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from bibert.files import write_whole


def render_page(template: str, **values: Any) -> str:
    """The text of a page.

    Args:
        template: its name in templates/; it extends base.html.jinja, which wants `title` and may have `subtitle` and
            `facts`, a list of names with their values.
        **values: what the template prints.
    """
    return _environment().get_template(template).render(values)


def save_page(page: str, path: Path) -> Path:
    """Write a page whole or not at all."""
    with write_whole(path) as file:
        file.write(page)
    return path


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")

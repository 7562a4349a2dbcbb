"""Where a command's figure goes: the option for its file, and drawing it in the style of the house."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import say
from bibert.errors import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FigureFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="Also draw it: a .svg, .pdf or .png file.", show_default=False)
]


def check_figure(path: Path | None) -> None:
    """Find what would keep a figure from being written before anything is computed for it.

    Raises:
        MissingExtraError: the packages that draw are not installed.
        BibertError: the end of the name is not that of a figure.
    """
    if path is not None:
        require_extra("plot", f"drawing {path}")
        from bibert.lab.plots.style import check_path

        check_path(path)


def save_drawn(draw: "Callable[[], Figure]", path: Path | None) -> None:
    """Draw and write a figure, if there is a file for it, and say so."""
    if path is None:
        return
    from bibert.lab.plots.style import save_figure, styled

    with styled():
        figure = draw()
    say(f"{save_figure(figure, path)}: written")

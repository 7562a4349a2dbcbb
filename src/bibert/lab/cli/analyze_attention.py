"""`bibert analyze attention`: what the heads of several models attend to in one text, as a page or as figures."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import say
from bibert.errors import BibertError, require_extra
from bibert.lab.cli.figures import save_drawn
from bibert.lab.cli.subjects import load_subjects

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bibert.lab.attention import AttentionMap

PAGE = ".html"
FIGURES = (".svg", ".pdf", ".png")


class View(StrEnum):
    """What a figure shows."""

    MODEL = "model"
    HEAD = "head"


def attention(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Packed files, model folders, run folders, or names on the Hub."),
    ],
    text: Annotated[str, typer.Option("--text", "-t", help="The text that every model reads.")],
    outputs: Annotated[
        list[Path],
        typer.Option(
            "--output",
            "-o",
            help="A page to look around in (.html), or a figure (.svg, .pdf, .png); may be repeated.",
        ),
    ],
    pair: Annotated[str | None, typer.Option(help="The second text of a pair.", show_default=False)] = None,
    view: Annotated[
        View, typer.Option(help="Figures: all heads as small images, or one head as lines between tokens.")
    ] = View.MODEL,
    layers: Annotated[
        str | None,
        typer.Option(metavar="FIRST-LAST", help="Layers in --view model, such as 0-3.", show_default="all"),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=0, help="Layer of --view head; in a page, what is open first.", show_default="0")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=0, help="Head of --view head; in a page, what is open first.", show_default="0")
    ] = None,
) -> None:
    """Show what every head attends to: full precision, baseline and BiBERT side by side, for the same text.

    Example: bibert analyze attention teacher/model reviews.bibert -t "a gorgeous, witty film" -o attention.html
    """
    _check_outputs(outputs)
    _refuse_options_without_use(outputs, view, layers, (layer, head))
    chosen = None if layers is None else parse_layers(layers)
    require_extra("plot", "bibert analyze attention")
    from bibert.lab.attention import attention_maps

    maps = attention_maps(load_subjects(models), text if pair is None else (text, pair))
    say(f"{', '.join(one.title for one in maps)}: {len(maps[0].tokens)} tokens")
    one_head = layer or 0, head or 0
    for output in outputs:
        if output.suffix == PAGE:
            _write_page(maps, output, *one_head)
        else:
            save_drawn(lambda: _drawn(maps, one_head if view is View.HEAD else None, chosen), output)


def parse_layers(words: str) -> range:
    """`0-3` as the layers 0, 1, 2 and 3; `5` as one.

    Raises:
        BibertError: it is neither.
    """
    first, dash, last = words.partition("-")
    if first.isdecimal() and (last.isdecimal() if dash else True):
        found = range(int(first), int(last if dash else first) + 1)
        if found:
            return found
    raise BibertError(f"--layers {words!r}: write the first and the last layer, such as 0-3, or one, such as 5")


def _check_outputs(outputs: Sequence[Path]) -> None:
    for output in outputs:
        if output.suffix not in (PAGE, *FIGURES):
            raise BibertError(
                f"{output}: ends in {output.suffix or 'nothing'!r}; a page ends in {PAGE}, a figure in "
                f"{', '.join(FIGURES)}"
            )


def _refuse_options_without_use(
    outputs: Sequence[Path], view: View, layers: str | None, one_head: tuple[int | None, int | None]
) -> None:
    """An option that would change nothing is not passed over in silence."""
    page = any(output.suffix == PAGE for output in outputs)
    figure = any(output.suffix != PAGE for output in outputs)
    if view is View.HEAD and not figure:
        raise BibertError(
            "--view head goes with a figure, a page has both views; give -o head.svg too, or leave it out"
        )
    if layers is not None and not (figure and view is View.MODEL):
        raise BibertError("--layers goes with a figure of --view model; give -o model.svg, or leave it out")
    if one_head != (None, None) and not (page or view is View.HEAD):
        raise BibertError("--layer and --head go with --view head or a page; for rows of --view model give --layers")


def _write_page(maps: Sequence["AttentionMap"], output: Path, layer: int, head: int) -> None:
    from bibert.lab.pages.attention import attention_page
    from bibert.lab.pages.render import save_page

    say(f"{save_page(attention_page(maps, layer, head), output)}: written, {output.stat().st_size:,} bytes")


def _drawn(maps: Sequence["AttentionMap"], head: tuple[int, int] | None, layers: Sequence[int] | None) -> "Figure":
    from bibert.lab.plots.attention import draw_head_view, draw_model_view

    return draw_model_view(maps, layers) if head is None else draw_head_view(maps, *head)

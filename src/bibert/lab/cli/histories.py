"""Runs that were looked into while they trained, as commands show them: all heads together, or one that is chosen."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.errors import DataError

if TYPE_CHECKING:
    from bibert.lab.history import History

Layer = Annotated[int | None, typer.Option(min=0, help="Of runs: one head alone, in this layer.", show_default=False)]
Head = Annotated[int | None, typer.Option(min=0, help="Of runs: one head alone, of this number.", show_default=False)]


def one_head(layer: int | None, head: int | None) -> tuple[int, int] | None:
    """The head that was chosen, or None for all.

    Raises:
        DataError: only one of the two was given.
    """
    if layer is None and head is None:
        return None
    if layer is None or head is None:
        raise DataError("--layer and --head go together; give both for one head, or neither for all")
    return layer, head


def load_histories(runs: Sequence[str | Path]) -> "dict[str, History]":
    """What was seen in each run, by title."""
    from bibert.lab.history import load_history
    from bibert.lab.subject import titles

    histories = [load_history(Path(run)) for run in runs]
    return dict(zip(titles(histories), histories, strict=True))


def of_head(histories: "Mapping[str, History]", chosen: tuple[int, int] | None) -> "dict[str, History]":
    """The same of the chosen head alone, with its name in every title; all of it if none is chosen."""
    if chosen is None:
        return dict(histories)
    layer, head = chosen
    return {f"{title}, layer {layer}, head {head}": one.of_head(layer, head) for title, one in histories.items()}

"""Options that choose one head of a model."""

from typing import Annotated

import typer

from bibert.errors import DataError

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

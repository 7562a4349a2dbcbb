"""Tables without borders and the notes below them, as `schemes`, `inspect` and `analyze cost` print them."""

from collections.abc import Iterable, Sequence
from functools import partial

from rich.table import Column, Table
from rich.text import Text

word = partial(Column, no_wrap=True)
number = partial(Column, no_wrap=True, justify="right")


def plain_table(
    title: str,
    columns: Iterable[Column | str],
    rows: Iterable[Sequence[str]],
    total: Sequence[str] = (),
    gap: int = 2,
) -> Table:
    """A table of results with `gap` spaces between columns; a column that is only a name wraps its texts."""
    table = Table(*columns, title=title, title_justify="left", box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for row in rows:
        table.add_row(*row)
    if total:
        table.add_row(*total, style="bold")
    return table


def notes_table(notes: Iterable[tuple[str, str]]) -> Table:
    """Names and texts in two columns, after an empty line. Texts are no markup, though a label may look like it."""
    table = Table.grid(word(), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for name, text in [("", ""), *notes]:
        table.add_row(name, Text(text))
    return table

"""Tables of results: with borders, or without them and with notes below, as `schemes` and `inspect` print them."""

from collections.abc import Iterable, Sequence
from functools import partial

from rich.table import Column, Table
from rich.text import Text

from bibert.cli.console import print_table

word = partial(Column, no_wrap=True)
number = partial(Column, no_wrap=True, justify="right")


def plain_table(
    title: str, columns: Iterable[Column | str], rows: Iterable[Sequence[str]], total: Sequence[str] = (), gap: int = 2
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


def print_rows(
    title: str, columns: Iterable[str], rows: Iterable[Sequence[str]], last: Sequence[str] = (), note: str = ""
) -> None:
    """Print a table of results; `last` is a row below a line, `note` a text below the table."""
    table = Table(*columns, title=title, title_justify="left", caption=note or None, caption_justify="left")
    for row in rows:
        table.add_row(*row)
    if last:
        table.add_section()
        table.add_row(*last)
    print_table(table)

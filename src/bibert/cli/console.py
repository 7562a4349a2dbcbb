"""Where a command's words go: results to stdout, everything said on the way to stderr.

So `bibert schemes --json > table.json` holds the table and nothing else, and a progress bar never ends up in a file.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 30.0  # of progress, where there is no terminal
MOST_ROWS = 12  # of a table of many moments of a training
WIDTH_OF_A_PIPE = 200  # a file or a log has no width; rich would cut a table at 80 columns

messages = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Write a line to stderr as it is: no markup, and no line breaks of our own where it goes to a file."""
    messages.print(text, markup=False, soft_wrap=not messages.is_terminal)


def print_table(table: Table) -> None:
    """Write a table of results to stdout, uncut where stdout is not a terminal."""
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE).print(table)


def print_json(value: Any) -> None:
    """Write results to stdout as JSON; NaN and infinity are refused, because JSON has no word for them."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def evenly(count: int, most: int = MOST_ROWS) -> list[int]:
    """At most so many places of `count`, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def progress() -> Progress:
    """A progress bar on stderr with what is done, the time gone and the time left."""
    width = len("0:00:00")  # on a narrow terminal the words shrink, not the times
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=12),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=width)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=width)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=width)),
        console=messages,
    )


def tracked(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    """Pass everything on, with a bar on a terminal and a line from time to time elsewhere."""
    if not messages.is_terminal:
        yield from _said(items, total, title)
        return
    with progress() as bar:
        yield from bar.track(items, total=total, description=title)


def _said(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    start = said = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            left = timedelta(seconds=round((now - start) / done * (total - done)))
            say(f"{title}: {done} of {total}, {left} left")

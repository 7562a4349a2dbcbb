"""Output of commands: results go to stdout, messages and progress to stderr.

So `bibert schemes --json > table.json` holds the table and nothing else, and a progress bar never ends up in a file.
"""

import io
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from bibert.files import STANDARD_OUTPUT, naming

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 30.0  # of progress, without a terminal
WIDTH_OF_A_PIPE = 120  # a file has no width; rich would assume 80 columns

messages = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Write a line to stderr: no markup, and no line breaks of our own if it goes to a file."""
    messages.print(text, markup=False, soft_wrap=not messages.is_terminal)


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 1,234 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_table(table: Table) -> None:
    """Write a table of results to stdout, where longer cells wrap; a file or a pipe gets 120 columns at most."""
    printed, terminal = io.StringIO(), sys.stdout.isatty()
    width = None if terminal else WIDTH_OF_A_PIPE
    for column in (one for one in table.columns if not one.no_wrap):
        column.overflow = "fold"  # long words too: nothing is lost
    # Not written by rich itself, which ends the program if the reader of a pipe has gone.
    Console(file=printed, force_terminal=terminal, highlight=False, width=width).print(table)
    with naming(STANDARD_OUTPUT):
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines()))


def print_json(value: Any) -> None:
    """Write results to stdout as JSON; raises `ValueError` on NaN and infinity, which JSON does not have."""
    with naming(STANDARD_OUTPUT):
        json.dump(value, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")


def print_metrics(
    metrics: Mapping[str, Mapping[str, float]], places: Mapping[str, Path | str], as_json: bool, **details: Any
) -> None:
    """Print metrics by model, `{"student": {"dev_accuracy": 0.9}}`, and the place of each model that was saved.

    A table has percentages, JSON has fractions, and `details` of each model.
    """
    found = {name: str(places[name]) if name in places else None for name in metrics}
    if as_json:
        print_json({name: {"metrics": {**values}, "model": found[name], **details} for name, values in metrics.items()})
        return
    names = list(dict.fromkeys(metric for values in metrics.values() for metric in values))
    table = Table("model", *(metric.replace("_", " ") for metric in names), "where")
    for name, values in metrics.items():
        cells = [f"{100 * values[metric]:.1f}" if metric in values else "" for metric in names]
        table.add_row(name, *cells, found[name] or "")
    print_table(table)


def progress() -> Progress:
    """A progress bar on stderr with the count, the time elapsed and the time left."""
    width = len("0:00:00")  # on a narrow terminal the title shrinks, not the times
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=12),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=width)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=width)),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=width)),
        console=messages,
    )


def tracked(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    """Yield the items with a progress bar on a terminal, or a line every 30 seconds elsewhere."""
    if messages.is_terminal:
        with progress() as bar:
            yield from bar.track(items, total=total, description=title)
        return
    start = said = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            left = timedelta(seconds=round((now - start) / done * (total - done)))
            say(f"{title}: {done} of {total}, {left} left")

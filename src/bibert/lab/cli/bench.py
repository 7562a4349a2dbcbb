"""`bibert bench`: a packed file against what a user would run instead, on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say, tracked
from bibert.cli.options import Json

if TYPE_CHECKING:
    from bibert.lab.rivals.benchmark import Entry, Report
    from bibert.lab.rivals.inputs import Shape

MB = 1e6


def bench(
    model: Annotated[
        str, typer.Argument(metavar="FILE", help="A packed file, a name on the Hub, or sst2, which is in the package.")
    ],
    rival: Annotated[
        list[str] | None, typer.Option(help="Compare with this engine only; may be repeated.", show_default="all")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXTSxTOKENS", help="Batch to time; may be repeated.", show_default="1x32 and 1x128"),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of every engine at each shape.")] = 20,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every engine.")] = 1,
    json: Json = False,
) -> None:
    """Time a packed model beside torch, ONNX Runtime and OpenVINO, in float32 and int8, on the same architecture.

    The engines take turns in one process. A rival that is not installed is listed with the packages it needs. Rivals
    have random weights: the comparison is of time, size and memory, not of accuracy.

    Example: bibert bench reviews.bibert --rival onnx-int8 --shape 1x128 --shape 8x128
    """
    from bibert.lab.rivals.benchmark import DEFAULT_SHAPES, Plan, compare
    from bibert.lab.rivals.inputs import Shape
    from bibert.lab.rivals.table import get_rivals
    from bibert.models import find_file

    file = find_file(model)
    shapes = tuple(dict.fromkeys(map(Shape.parse, shape or ()))) or DEFAULT_SHAPES
    report = compare(file, Plan(get_rivals(rival or ()), shapes, rounds, threads), tracked)
    if json:
        print_json({"file": file.name, **report.to_dict()})
    else:
        print_table(bench_table(file, report))
    warn_if_busy(report)


def bench_table(file: Path, report: "Report") -> Table:
    """A report as a table: an engine to a row, a shape to a column."""
    plan, config = report.plan, report.config
    count = f"{plan.threads} thread" + ("s" if plan.threads > 1 else "")
    table = Table(
        title=f"{file.name}: {config.layers} x {config.hidden}, {report.isa}, {count}",
        caption=f"Median of {plan.rounds} rounds; x is the time over bibert's, median (quartiles) of the rounds. "
        "MB are 10^6 bytes; memory is the peak of a process with this engine alone, Python included.",
    )
    table.add_column("engine", no_wrap=True)
    for head in ("file MB", "memory MB", *(f"{shape} ms" for shape in plan.shapes)):
        table.add_column(head, justify="right", no_wrap=True)
    notes = any(entry.note for entry in report.entries)
    if notes:
        table.add_column("not run")
    for entry in report.entries:
        times = [_time(entry, shape) for shape in plan.shapes]
        cells = [entry.name, _megabytes(entry.file_bytes), _megabytes(entry.peak_bytes), *times]
        table.add_row(*cells, *([entry.note] if notes else []))
    return table


def warn_if_busy(report: "Report") -> None:
    """Say so on stderr if other programs took the CPU away while engines were timed."""
    from bibert.lab.rivals.timing import QUIET

    share = min(report.cpu_share.values())
    if share < QUIET:
        say(
            f"warning: other programs kept this machine busy, the engines had a CPU for {share:.0%} of the time; that "
            "flatters the faster engine, so measure again when it is quiet"
        )


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / MB:.1f}"


def _time(entry: "Entry", shape: "Shape") -> str:
    from bibert.lab.rivals.table import OURS

    if shape not in entry.timings:
        return ""
    timing = entry.timings[shape]
    median = f"{timing.median_ms:.2f}"
    if entry.name == OURS:
        return median
    return f"{median}  x{timing.ratio.median:.1f} ({timing.ratio.low:.1f}-{timing.ratio.high:.1f})"

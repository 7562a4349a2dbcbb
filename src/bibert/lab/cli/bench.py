"""`bibert bench`: a packed file against the engines that users would run instead, on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say
from bibert.cli.options import PACKED_HELP, Json
from bibert.lab.cli.rows import number, plain_table, word
from bibert.lab.rivals.benchmark import DEFAULT_SHAPES, QUIET, Plan, Report, Timing, compare
from bibert.lab.rivals.engines import OURS, Shape, get_rivals
from bibert.models import find_file


def bench(
    model: Annotated[str, typer.Argument(metavar="FILE", help=PACKED_HELP)],
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
    have random weights: time, size and memory are compared, not accuracy.

    Example: bibert bench reviews.bibert --rival onnx-int8 --shape 1x128 --shape 8x128
    """
    file = find_file(model)
    shapes = tuple(dict.fromkeys(map(Shape.parse, shape or ()))) or DEFAULT_SHAPES
    report = compare(file, Plan(get_rivals(rival or ()), shapes, rounds, threads))
    if json:
        print_json({"file": file.name, **report.to_dict()})
    else:
        print_table(bench_table(file, report))
    warn_if_busy(report)


def warn_if_busy(report: Report) -> None:
    """Warn on stderr if other programs used the CPU while engines were timed."""
    share = min(report.cpu_share.values())
    if share < QUIET:
        say(
            f"warning: other programs kept this machine busy, the engines had a CPU for {share:.0%} of the time; that "
            "flatters the faster engine, so measure again when the machine is quiet"
        )


def bench_table(file: Path, report: Report) -> Table:
    """A report as a table: an engine per row, a shape per column."""
    plan, config, rows = report.plan, report.config, []
    for entry in report.entries:
        sizes = ["" if count is None else f"{count / 1e6:.1f}" for count in (entry.file_bytes, entry.peak_bytes)]
        times = [_time(entry.timings.get(shape), entry.name == OURS) for shape in plan.shapes]
        rows.append([entry.name, *sizes, *times, entry.note])
    threads = f"{plan.threads} thread" + ("s" if plan.threads > 1 else "")
    title = f"{file.name}: {config.layers} x {config.hidden}, {report.isa}, {threads}"
    heads = ("file MB", "memory MB", *(f"{shape} ms" for shape in plan.shapes))
    not_run = "not run" if any(entry.note for entry in report.entries) else ""
    table = plain_table(title, [word("engine"), *map(number, heads), not_run], rows)
    table.caption = (
        f"Median of {plan.rounds} rounds; x is the time over bibert's, median (quartiles) of the rounds. "
        "MB are 10^6 bytes; memory is the peak of a process with this engine alone, Python included."
    )
    return table


def _time(timing: Timing | None, ours: bool) -> str:
    if timing is None:
        return ""
    ratio = timing.ratio
    return f"{timing.median_ms:.2f}" + ("" if ours else f"  x{ratio.median:.1f} ({ratio.low:.1f}-{ratio.high:.1f})")

"""`bibert analyze bottleneck`: what each binarized structure costs and each loss term is worth (Section 3.1)."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json
from bibert.data.glue import TASKS
from bibert.errors import DataError
from bibert.lab.bottleneck import BASELINE, CHANGED, DEV_TEXTS, KEPT, WITHOUT, Difference, Effect, effects
from bibert.lab.cli.figures import FigureFile, check_figure, save_drawn
from bibert.lab.paper import BOTTLENECKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = {KEPT: "in full precision", WITHOUT: "not distilled"}
NOTE = (
    "mean of the seeds; ± is one standard error of the difference on the dev set (binomial, as if both models erred "
    "independently); the paper's accuracies are its printed differences added to its baseline"
)


def bottleneck(
    results: Annotated[
        Path, typer.Argument(help="results.json of `bibert reproduce --table bottlenecks`, or its folder.")
    ],
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Show what keeping one structure in full precision, or dropping one loss term, does to the baseline.

    Example: bibert analyze bottleneck runs/bottlenecks/results.json -o bottlenecks.svg
    """
    check_figure(output)
    scores = _scores(results)
    found = {task: effects(task, ours) for task, ours in scores.items()}
    save_drawn(lambda: _drawn(found), output)
    if json:
        print_json({task: _as_json(task, scores[task], lines) for task, lines in found.items()})
        return
    for task, lines in found.items():
        print_table(_table(task, scores[task][BASELINE], lines))


def _scores(results: Path) -> dict[str, dict[str, float]]:
    """Accuracies by task and scheme, of the tasks that have a baseline and a change of it."""
    from bibert.lab.reproduced import load_cells, mean_scores

    everything = load_cells(results / "results.json" if results.is_dir() else results)
    cells = [cell for cell in everything if cell.scheme == BASELINE or CHANGED.fullmatch(cell.scheme)]
    scores = {task: mean_scores(cells, task) for task in DEV_TEXTS if any(cell.task == task for cell in cells)}
    found = {task: ours for task, ours in scores.items() if BASELINE in ours and _has_changes(ours)}
    if not found:
        raise DataError(
            f"{results}: holds no baseline with one structure kept or one loss term less; "
            "run bibert reproduce --table bottlenecks"
        )
    return found


def _has_changes(ours: dict[str, float]) -> bool:
    return any(CHANGED.fullmatch(scheme) for scheme in ours)


def _drawn(found: dict[str, list[Effect]]) -> "Figure":
    from bibert.lab.plots.bottleneck import draw_bottlenecks

    return draw_bottlenecks({TASKS[task].name: lines for task, lines in found.items()})


def _table(task: str, baseline: float, lines: list[Effect]) -> Table:
    title = f"{TASKS[task].name}, {DEV_TEXTS[task]:,} texts: accuracy and its difference to the baseline"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False, caption=NOTE)
    table.caption_justify = "left"
    for head in ("", "", "ours", "", "paper", ""):
        table.add_column(head, justify="left" if not head and not table.columns[1:] else "right", no_wrap=True)
    printed = _papers_baseline(task)
    table.add_row(BASELINE, "", f"{baseline:.2f}", "", "–" if printed is None else f"{printed:.2f}", "")
    before = ""
    for line in lines:
        group = WORDS[line.change] if line.change != before else ""
        table.add_row(group, line.what, *_cells(line.ours), *_cells(line.paper))
        before = line.change
    return table


def _papers_baseline(task: str) -> float | None:
    row = BOTTLENECKS.row(BASELINE)
    return row.scores.get(task) if row is not None else None


def _cells(difference: Difference | None) -> tuple[str, str]:
    if difference is None:
        return "–", ""
    return f"{difference.accuracy:.2f}", f"{difference.points:+.2f} ± {difference.error:.2f}"


def _as_json(task: str, scores: dict[str, float], lines: list[Effect]) -> dict[str, Any]:
    return {
        "texts": DEV_TEXTS[task],
        "baseline": {"ours": scores[BASELINE], "paper": _papers_baseline(task)},
        "changes": [asdict(line) for line in lines],
    }

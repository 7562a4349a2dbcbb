"""`bibert analyze ...`: the paper's analysis as commands. `cost` and the pages have files of their own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json, option, require_torch, with_option_groups
from bibert.data.glue import TASKS
from bibert.errors import DataError, did_you_mean
from bibert.lab.attention import score_shares
from bibert.lab.cli.cost import cost
from bibert.lab.cli.options import FigureFile, HeadOptions, TextOptions, load_subjects, save_drawn
from bibert.lab.cli.pages import attention, report
from bibert.lab.cli.rows import number, plain_table, print_rows, word
from bibert.lab.direction import mean_margin
from bibert.lab.look import HEADS, SITES, Entropies, by_title, entropies, rounded
from bibert.lab.paper import DIRECTION_MARGINS, STATEMENTS
from bibert.lab.plots.charts import bands, draw_bottlenecks, draw_directions, draw_entropies, draw_starts, draw_theory
from bibert.lab.record import load_history
from bibert.lab.tables import BASELINE, KEPT, TEACHER, WITHOUT, Difference, load_bottlenecks, load_cells
from bibert.lab.theory import statements
from bibert.runtime.text import Text

analyze = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

WORDS = {KEPT: "in full precision", WITHOUT: "not distilled"}
NOTE = (
    "mean of the seeds; ± is one standard error of the difference on the dev set (binomial, as if both models erred "
    "independently); the paper's accuracies are its printed differences added to its baseline"
)
MOST_ROWS = 12  # of a table of many moments of a training


@analyze.callback()
def _group() -> None:
    """The paper's analysis: theorems, and the inside of models."""


@with_option_groups
def theory(
    texts: TextOptions,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL...]", help="Trained students, whose scores are set beside Theorem 2.", show_default=False
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples of Theorem 3's simulation.")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of Theorem 1's simulation.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulations.")] = 0,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Compute the paper's theorems by simulation, and exactly where a closed form exists, beside the printed figures.

    Example: bibert analyze theory
    """
    read = texts.load()
    if bool(models) != bool(read):
        raise DataError("models and texts go together: give both to see trained scores, or neither")
    shares = {title: score_shares(one.insides(read)) for title, one in load_subjects(models or []).items()}
    sizes = {title: table.shape[1] - 1 for title, table in shares.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"the models have heads of different sizes ({sizes}); show them one by one")
    found = statements(shares, samples, rows, seed)
    save_drawn(output, draw_theory, found, shares)
    if json:
        print_json(found)
        return
    for name, lines in found.items():
        columns = [column.replace("_", " ") for column in lines[0]]
        cells = [[f"{x:.5g}" if isinstance(x, float) else str(x) for x in line.values()] for line in lines]
        print_rows(columns=columns, rows=cells, **STATEMENTS[name])


@with_option_groups
def entropy(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL|RUN...", help="Packed files and model folders, or run folders with a probe."),
    ],
    texts: TextOptions,
    one: HeadOptions,
    site: Annotated[
        str, option(f"Of models: show every head of one of {', '.join(HEADS)}, or of 'weight of query' and the like.")
    ] = "",
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Measure the information entropy of binarized activations and weights, in bits.

    With texts: of models that read them. Without: of runs trained with --probe-every, during training.

    Example: bibert analyze entropy sst2.bibert --text "a gorgeous, witty film"
    """
    rows = texts.load()
    if one.given and rows:
        raise DataError("--layer and --head are for runs; for models that read texts --site shows every head")
    if site and (json or not rows):
        raise DataError("--site is for the tables of models that read texts; --json and runs show every head anyway")
    if rows:
        _entropy_of_models(models, rows, site, output, json)
        return
    runs = by_title([load_history(Path(run)) for run in models])
    for title, run in runs.items():
        if not run.entropy:
            raise DataError(f"{title}: its activations have several bits, so no entropy was logged; leave it out")
    runs = one.of(runs)
    save_drawn(output, draw_entropies, {title: (run.steps, bands(run.entropy)) for title, run in runs.items()}, "step")
    if json:
        print_json({title: {"steps": run.steps, "entropy": _as_lists(run.entropy)} for title, run in runs.items()})
        return
    for title, run in runs.items():
        lines = []
        for look in _evenly(len(run.steps)):
            tables = [run.entropy[name][look] for name in SITES]
            lines.append([f"{run.steps[look]:,}", *(f"{table.mean():.3f} ({table.min():.3f})" for table in tables)])
        name = f"{title}: entropy in bits through training, mean over layers and heads (least head)"
        print_rows(name, ["step", *SITES], lines)


def _entropy_of_models(paths: Sequence[str], rows: list[Text], site: str, output: Path | None, json: bool) -> None:
    found = {title: entropies(subject.insides(rows)) for title, subject in load_subjects(paths).items()}
    layers = {title: (range(len(tables["query"])), bands(tables)) for title, tables in found.items()}
    save_drawn(output, draw_entropies, layers, "layer")
    if json:
        print_json({title: rounded(tables) for title, tables in found.items()})
        return
    for title, tables in found.items():
        if site:
            heads = {name: table for name, table in tables.items() if table.ndim == 2}
            if site not in heads:
                raise DataError(f"--site {site}: not a site of heads; {did_you_mean(site, heads)}")
            columns = {f"head {head}": column for head, column in enumerate(heads[site].T)}
            print_rows(f"{title}: entropy of {site} in bits", ["layer", *columns], _by_layer(columns))
            continue
        weights = {name: table.reshape(len(table), -1).mean(axis=1) for name, table in tables.items()}
        activations = {name: weights.pop(name) for name in SITES}
        for columns in filter(None, (activations, weights)):  # weights may have no bits
            means = ["mean", *(f"{column.mean():.3f}" for column in columns.values())]
            print_rows(f"{title}: entropy in bits, mean over heads", ["layer", *columns], _by_layer(columns), means)


def _by_layer(columns: Mapping[str, Entropies]) -> list[list[str]]:
    layers = enumerate(zip(*columns.values(), strict=True))
    return [[str(layer), *(f"{value:.3f}" for value in values)] for layer, values in layers]


def _as_lists(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as lists for JSON, in mappings of any depth."""
    return {name: _as_lists(one) if isinstance(one, Mapping) else one.tolist() for name, one in tables.items()}


@with_option_groups
def direction(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...|CHECKPOINT...", help="Run folders with a probe, or checkpoints in their order."),
    ],
    texts: TextOptions,
    one: HeadOptions,
    teacher: Annotated[
        Path | None, option("Compare checkpoints with this teacher, on texts.", "--teacher", "-t")
    ] = None,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Show which share of attention scores and similarities moved towards the teacher, and how far.

    Of runs trained with --probe-every: during training. With --teacher and texts: between checkpoints.

    Example: bibert analyze direction runs/baseline runs/bibert -o direction.svg
    """
    rows = texts.load()
    if (teacher is None) != (not rows):
        raise DataError("--teacher and texts go together: give both for checkpoints, or neither for runs with a probe")
    if teacher is None:
        found = by_title([load_history(run) for run in paths])
        for run in found.values():
            if not run.direction:
                raise DataError(f"{run.name}: has only one look so far; wait for the second look of its training")
    else:
        require_torch("bibert analyze direction with --teacher")
        from bibert.lab.probe import moves_between

        found = {"checkpoints": moves_between(paths, teacher, rows)}
    found = one.of(found)
    save_drawn(output, draw_directions, found)
    if json:
        print_json({title: {"steps": run.moves, "direction": _as_lists(run.direction)} for title, run in found.items()})
        return
    near, far = DIRECTION_MARGINS
    note = f"the paper's mean steps of attention scores of one head of its baseline: {near} towards, {far} away"
    for title, run in found.items():
        name = f"{title}: percent that moved towards the teacher / away from it (mean step of each); * is distilled"
        columns = [f"{thing} *" if thing in run.asked else thing for thing in run.direction]
        lines = [
            [f"{run.moves[look]:,}", *(_both_ways(fields, look) for fields in run.direction.values())]
            for look in _evenly(len(run.moves))
        ]
        print_rows(name, ["step", *columns], lines, note=note)


def _both_ways(fields: Mapping[str, Any], look: int) -> str:
    ways = [(fields[way][look], fields[f"{way}_margin"][look]) for way in ("matching", "mismatching")]
    good, bad = (100 * share.mean() for share, _ in ways)
    near, far = (mean_margin(share, margin) for share, margin in ways)
    return f"{good:.1f} / {bad:.1f} ({near:.2g} / {far:.2g})"


def _evenly(count: int) -> "np.ndarray[Any, Any]":
    """At most `MOST_ROWS` indices of `count`, evenly spread, including the first and the last."""
    return np.linspace(0, count - 1, min(count, MOST_ROWS)).round().astype(int)


def bottleneck(
    results: Annotated[
        Path, typer.Argument(help="results.json of `bibert reproduce --table bottlenecks`, or its folder.")
    ],
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Show how keeping one structure in full precision, or dropping one loss term, changes the baseline's accuracy.

    Example: bibert analyze bottleneck runs/bottlenecks/results.json -o bottlenecks.svg
    """
    found = load_bottlenecks(results)
    save_drawn(output, draw_bottlenecks, {TASKS[task].name: one.changes for task, one in found.items()})
    if json:
        print_json({task: asdict(one) for task, one in found.items()})
        return
    columns = [word(), word(), number("ours"), number(), number("paper"), number()]
    for task, one in found.items():
        ours, papers = ("–" if accuracy is None else f"{accuracy:.2f}" for accuracy in one.baseline.values())
        rows = [[BASELINE, "", ours, "", papers, ""]]
        before = ""
        for line in one.changes:
            group = WORDS[line.change] if line.change != before else ""
            rows.append([group, line.what, *_cells(line.ours), *_cells(line.paper)])
            before = line.change
        title = f"{TASKS[task].name}, {one.texts:,} texts: accuracy and its difference to the baseline"
        table = plain_table(title, columns, rows)
        table.caption, table.caption_justify = NOTE, "left"
        print_table(table)


def starts(
    results: Annotated[Path, typer.Argument(help="A results file of `bibert reproduce`.")],
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Compare students made from their teacher with those made from another model, such as a general encoder.

    Example: bibert analyze starts runs/tasks/results.json -o starts.svg
    """
    cells = [cell for cell in load_cells(results) if cell.scheme != TEACHER]
    save_drawn(output, draw_starts, cells)
    if json:
        print_json([asdict(cell) for cell in cells])
        return
    columns = [word("task"), word("scheme"), word("made from"), number("steps"), number("best score")]
    cells.sort(key=lambda cell: (cell.task, cell.scheme, cell.start))
    rows = [
        [TASKS[one.task].name, one.scheme, one.start or "its teacher", f"{one.steps:,}", f"{one.score:.1f}"]
        for one in cells
    ]
    print_table(plain_table("students by the model they were made from", columns, rows))


def _cells(difference: Difference | None) -> tuple[str, str]:
    if difference is None:
        return "–", ""
    return f"{difference.accuracy:.2f}", f"{difference.points:+.2f} ± {difference.error:.2f}"


SHORT: dict[Callable[..., None], str] = {  # of the list of commands, whose lines have 60 characters
    theory: "The theorems by simulation.",
    entropy: "The entropy of binarized activations.",
    direction: "How attention moves towards the teacher's, or away.",
    attention: "What every head attends to.",
    cost: "Sizes and FLOPs, ours and printed.",
    bottleneck: "What one structure in full precision changes.",
    starts: "Students by the model they were made from.",
    report: "Everything about a run or a packed file as one page.",
}
for command, line in SHORT.items():
    analyze.command(command.__name__, short_help=line)(command)

"""`bibert analyze entropy` and `direction`: the inside of models that read texts, and of students during training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bibert.cli.console import print_json
from bibert.cli.options import Json, option, require_torch, with_option_groups
from bibert.errors import DataError, did_you_mean
from bibert.lab.cli.options import (
    FigureFile,
    HeadOptions,
    TextOptions,
    check_figure,
    load_histories,
    load_subjects,
    print_rows,
    save_drawn,
)
from bibert.lab.direction import mean_margin
from bibert.lab.entropy import HEADS, LAYERS, Floats, entropies, rounded
from bibert.lab.paper import DIRECTION_MARGINS
from bibert.lab.plots.curves import draw_directions, draw_entropies
from bibert.runtime.text import Text

SITES = (*HEADS, *LAYERS)
MOST_ROWS = 12  # of a table of many moments of a training
PAPERS = (
    f"the paper's mean steps of attention scores of one head of its baseline: {DIRECTION_MARGINS[0]} towards, "
    f"{DIRECTION_MARGINS[1]} away"
)


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
    check_figure(output)
    rows = texts.load()
    if one.given and rows:
        raise DataError("--layer and --head are for runs; for models that read texts --site shows every head")
    if site and (json or not rows):
        raise DataError("--site is for the tables of models that read texts; --json and runs show every head anyway")
    if rows:
        _entropy_of_models(models, rows, site, output, json)
        return
    runs = load_histories(models)
    for title, run in runs.items():
        if not run.entropy:
            raise DataError(f"{title}: its activations have several bits, so no entropy was logged; leave it out")
    runs = one.of(runs)
    save_drawn(output, draw_entropies, {title: (run.steps, run.entropy) for title, run in runs.items()}, "step")
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
    layers = {title: (range(len(tables["query"])), tables) for title, tables in found.items()}
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


def _by_layer(columns: Mapping[str, Floats]) -> list[list[str]]:
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
    check_figure(output)
    rows = texts.load()
    if (teacher is None) != (not rows):
        raise DataError("--teacher and texts go together: give both for checkpoints, or neither for runs with a probe")
    if teacher is None:
        found = load_histories(paths)
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
    for title, run in found.items():
        name = f"{title}: percent that moved towards the teacher / away from it (mean step of each); * is distilled"
        columns = [f"{thing} *" if thing in run.asked else thing for thing in run.direction]
        lines = [
            [f"{run.moves[look]:,}", *(_both_ways(fields, look) for fields in run.direction.values())]
            for look in _evenly(len(run.moves))
        ]
        print_rows(name, ["step", *columns], lines, note=PAPERS)


def _both_ways(fields: Mapping[str, Any], look: int) -> str:
    ways = [(fields[way][look], fields[f"{way}_margin"][look]) for way in ("matching", "mismatching")]
    good, bad = (100 * share.mean() for share, _ in ways)
    near, far = (mean_margin(share, margin) for share, margin in ways)
    return f"{good:.1f} / {bad:.1f} ({near:.2g} / {far:.2g})"


def _evenly(count: int) -> list[int]:
    """At most `MOST_ROWS` indices of `count`, evenly spread, including the first and the last."""
    if count <= MOST_ROWS:
        return list(range(count))
    return sorted({round(place * (count - 1) / (MOST_ROWS - 1)) for place in range(MOST_ROWS)})

"""`bibert analyze entropy` and `direction`: the inside of models that read texts, and of students during training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bibert.cli.console import evenly, print_json, say
from bibert.cli.options import Json, require_torch, with_option_groups
from bibert.errors import DataError, did_you_mean
from bibert.lab.cli.options import (
    FigureFile,
    HeadOptions,
    TextOptions,
    check_figure,
    load_histories,
    load_subjects,
    print_rows,
)
from bibert.lab.direction import mean_margin
from bibert.lab.entropy import HEADS, LAYERS, Entropies, entropies
from bibert.lab.paper import DIRECTION_MARGINS
from bibert.lab.record import History
from bibert.runtime.text import Row

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
        str,
        typer.Option(
            help=f"Of models: show every head of one of {', '.join(HEADS)}, or of 'weight of query' and the like.",
            show_default=False,
        ),
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
    else:
        _entropy_of_runs(models, one, output, json)


def _entropy_of_models(paths: Sequence[str], rows: list[Row], site: str, output: Path | None, json: bool) -> None:
    found = {title: entropies(subject.insides(rows)) for title, subject in load_subjects(paths).items()}
    if output is not None:
        from bibert.lab.plots.curves import draw_entropies
        from bibert.lab.plots.style import save_figure

        say(f"{save_figure(draw_entropies(found), output)}: written")
    if json:
        print_json({title: measured.to_dict() for title, measured in found.items()})
        return
    for title, measured in found.items():
        if site:
            _print_heads(title, measured, site)
            continue
        columns = measured.by_layer()
        activations = {name: columns.pop(name) for name in (*HEADS, *LAYERS)}
        for part in filter(None, (activations, columns)):  # the remaining columns are weights, if they have bits
            by_layer = zip(*part.values(), strict=True)
            lines = [[str(layer), *(f"{value:.3f}" for value in values)] for layer, values in enumerate(by_layer)]
            means = ["mean", *(f"{column.mean():.3f}" for column in part.values())]
            print_rows(f"{title}: entropy in bits, mean over heads", ["layer", *part], lines, means)


def _print_heads(title: str, found: Entropies, site: str) -> None:
    if site not in found.heads:
        raise DataError(f"--site {site}: not a site of heads; {did_you_mean(site, found.heads)}")
    table = found.heads[site]
    lines = [[str(layer), *(f"{value:.3f}" for value in values)] for layer, values in enumerate(table)]
    columns = ["layer", *(f"head {head}" for head in range(table.shape[1]))]
    print_rows(f"{title}: entropy of {site} in bits", columns, lines)


def _entropy_of_runs(paths: Sequence[str], one: HeadOptions, output: Path | None, json: bool) -> None:
    found = load_histories(paths)
    for title, history in found.items():
        if not history.entropy:
            raise DataError(f"{title}: its activations have several bits, so no entropy was logged; leave it out")
    found = one.of(found)
    if output is not None:
        from bibert.lab.plots.curves import draw_entropy_history
        from bibert.lab.plots.style import save_figure

        say(f"{save_figure(draw_entropy_history(found), output)}: written")
    if json:
        facts = {title: {name: table.tolist() for name, table in one.entropy.items()} for title, one in found.items()}
        print_json({title: {"steps": list(found[title].steps), "entropy": tables} for title, tables in facts.items()})
        return
    sites = (*HEADS, *LAYERS)
    for title, history in found.items():
        name = f"{title}: entropy in bits through training, mean over layers and heads (least head)"
        lines = []
        for look in evenly(len(history.steps)):
            tables = [history.entropy[site][look] for site in sites]
            cells = [f"{values.mean():.3f} ({values.min():.3f})" for values in tables]
            lines.append([f"{history.steps[look]:,}", *cells])
        print_rows(name, ["step", *sites], lines)


@with_option_groups
def direction(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...|CHECKPOINT...", help="Run folders with a probe, or checkpoints in their order."),
    ],
    texts: TextOptions,
    one: HeadOptions,
    teacher: Annotated[
        Path | None,
        typer.Option("--teacher", "-t", help="Compare checkpoints with this teacher, on texts.", show_default=False),
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
    found = _moves_of_runs(paths) if teacher is None else {"checkpoints": _moves_of_checkpoints(paths, teacher, rows)}
    found = one.of(found) if one.given else found
    if output is not None:
        from bibert.lab.plots.curves import draw_directions
        from bibert.lab.plots.style import save_figure

        say(f"{save_figure(draw_directions(found), output)}: written")
    if json:
        print_json({title: _direction_as_json(history) for title, history in found.items()})
        return
    for title, history in found.items():
        name = f"{title}: percent that moved towards the teacher / away from it (mean step of each); * is distilled"
        columns = [f"{thing} *" if thing in history.asked else thing for thing in history.direction]
        lines = [
            [f"{history.moves[look]:,}", *(_both_ways(fields, look) for fields in history.direction.values())]
            for look in evenly(len(history.moves))
        ]
        print_rows(name, ["step", *columns], lines, note=PAPERS)


def _moves_of_runs(paths: Sequence[Path]) -> dict[str, History]:
    histories = load_histories(paths)
    for history in histories.values():
        if not history.direction:
            raise DataError(f"{history.name}: has only one look so far; wait for the second look of its training")
    return histories


def _moves_of_checkpoints(paths: Sequence[Path], teacher: Path, rows: list[Row]) -> History:
    require_torch("bibert analyze direction with --teacher")
    from bibert.lab.probe import moves_between

    return moves_between(paths, teacher, rows)


def _direction_as_json(history: History) -> dict[str, Any]:
    tables = {
        thing: {field: table.tolist() for field, table in fields.items()} for thing, fields in history.direction.items()
    }
    return {"steps": list(history.moves), "direction": tables}


def _both_ways(fields: Mapping[str, Any], look: int) -> str:
    ways = [(fields[way][look], fields[f"{way}_margin"][look]) for way in ("matching", "mismatching")]
    good, bad = (100 * share.mean() for share, _ in ways)
    near, far = (mean_margin(share, margin) for share, margin in ways)
    return f"{good:.1f} / {bad:.1f} ({near:.2g} / {far:.2g})"

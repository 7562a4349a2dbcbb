"""`bibert analyze entropy`: how much a model's bits say, of models on texts or of runs through their training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import evenly, print_json, print_table
from bibert.cli.options import Json, with_option_groups
from bibert.errors import DataError, did_you_mean
from bibert.lab.cli.figures import FigureFile, check_figure, save_drawn
from bibert.lab.cli.histories import Head, Layer, load_histories, of_head, one_head
from bibert.lab.cli.subjects import load_subjects
from bibert.lab.cli.texts import TextOptions
from bibert.lab.entropy import HEADS, LAYERS

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from bibert.lab.entropy import Entropies
    from bibert.lab.history import History
    from bibert.runtime.text import Row


@with_option_groups
def entropy(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL|RUN...", help="Packed files and model folders, or run folders with a probe."),
    ],
    texts: TextOptions,
    site: Annotated[
        str,
        typer.Option(
            help=f"Of models: show one of {', '.join(HEADS)} or 'weight of query' and the like head by head.",
            show_default=False,
        ),
    ] = "",
    layer: Layer = None,
    head: Head = None,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Measure the information entropy of binarized activations and weights, in bits.

    With texts: of models that read them. Without: through the training of runs that had --probe-every.

    Example: bibert analyze entropy sst2.bibert --text "a gorgeous, witty film"
    """
    check_figure(output)
    rows, one = texts.load(), one_head(layer, head)
    if rows and one:
        raise DataError("--layer and --head go with runs; of models that read texts --site shows every head")
    if site and (json or not rows):
        raise DataError("--site goes with the tables of models that read texts; --json and runs have every head anyway")
    if rows:
        _models(models, rows, site, output, json)
    else:
        _runs(models, one, output, json)


def _models(paths: Sequence[str], rows: "list[Row]", site: str, output: Path | None, json: bool) -> None:
    from bibert.lab.entropy import entropies

    found = {title: entropies(subject.insides(rows)) for title, subject in load_subjects(paths).items()}
    save_drawn(lambda: _draw_models(found), output)
    if json:
        print_json({title: one.to_dict() for title, one in found.items()})
        return
    for title, one in found.items():
        if site:
            print_table(_by_head(title, one, site))
            continue
        columns = one.by_layer()
        activations = {name: columns.pop(name) for name in (*HEADS, *LAYERS)}
        for part in (activations, columns):  # what is left are weights, if it has bits
            if part:
                print_table(_by_layer(title, part))


def _by_layer(title: str, columns: "Mapping[str, NDArray[np.float64]]") -> Table:
    table = Table("layer", *columns, title=f"{title}: entropy in bits, mean over heads", title_justify="left")
    for layer, values in enumerate(zip(*columns.values(), strict=True)):
        table.add_row(str(layer), *(f"{value:.3f}" for value in values))
    table.add_section()
    table.add_row("mean", *(f"{column.mean():.3f}" for column in columns.values()))
    return table


def _by_head(title: str, found: "Entropies", site: str) -> Table:
    if site not in found.heads:
        raise DataError(f"--site {site}: heads have no such thing; {did_you_mean(site, found.heads)}")
    rows = found.heads[site]
    heads = [f"head {head}" for head in range(rows.shape[1])]
    table = Table("layer", *heads, title=f"{title}: entropy of {site} in bits", title_justify="left")
    for layer, values in enumerate(rows):
        table.add_row(str(layer), *(f"{value:.3f}" for value in values))
    return table


def _runs(paths: Sequence[str], one: tuple[int, int] | None, output: Path | None, json: bool) -> None:
    found = load_histories(paths)
    for title, history in found.items():
        if not history.entropy:
            raise DataError(f"{title}: its activations have several bits, so no entropy was logged; leave it out")
    found = of_head(found, one)
    save_drawn(lambda: _draw_history(found), output)
    if json:
        print_json({title: _as_json(history) for title, history in found.items()})
        return
    for title, history in found.items():
        print_table(_through_training(title, history))


def _as_json(history: "History") -> dict[str, Any]:
    return {
        "steps": list(history.steps),
        "entropy": {name: table.tolist() for name, table in history.entropy.items()},
    }


def _through_training(title: str, history: "History") -> Table:
    name = f"{title}: entropy in bits through training, mean over layers and heads (least head)"
    shown = (*HEADS, *LAYERS)
    table = Table("step", *shown, title=name, title_justify="left")
    for look in evenly(len(history.steps)):
        cells = [_mean_and_least(history.entropy, site, look) for site in shown]
        table.add_row(f"{history.steps[look]:,}", *cells)
    return table


def _mean_and_least(tables: Mapping[str, Any], site: str, look: int) -> str:
    values = tables[site][look]
    return f"{values.mean():.3f} ({values.min():.3f})"


def _draw_models(found: "Mapping[str, Entropies]") -> "Figure":
    from bibert.lab.plots.entropy import draw_models

    return draw_models(found)


def _draw_history(found: "Mapping[str, History]") -> "Figure":
    from bibert.lab.plots.entropy import draw_history

    return draw_history(found)

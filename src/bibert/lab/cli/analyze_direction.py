"""`bibert analyze direction`: did a student move towards its teacher?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import evenly, print_json, print_table
from bibert.cli.options import Json, with_option_groups
from bibert.errors import DataError, require_extra
from bibert.lab.cli.figures import FigureFile, check_figure, save_drawn
from bibert.lab.cli.histories import Head, Layer, load_histories, of_head, one_head
from bibert.lab.cli.texts import TextOptions
from bibert.lab.paper import DIRECTION_MARGINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bibert.lab.history import History
    from bibert.runtime.text import Row

PAPERS = (
    f"the paper's mean steps of attention scores of one head of its baseline: {DIRECTION_MARGINS[0]} towards, "
    f"{DIRECTION_MARGINS[1]} away"
)


@with_option_groups
def direction(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...|CHECKPOINT...", help="Run folders with a probe, or checkpoints in their order."),
    ],
    texts: TextOptions,
    teacher: Annotated[
        Path | None,
        typer.Option("--teacher", "-t", help="Compare checkpoints with this teacher, on texts.", show_default=False),
    ] = None,
    layer: Layer = None,
    head: Head = None,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Show which share of attention scores and similarities moved towards the teacher, and how far.

    Of runs that had --probe-every, through their training. With --teacher and texts: between checkpoints.

    Example: bibert analyze direction runs/baseline runs/bibert -o direction.svg
    """
    check_figure(output)
    rows = texts.load()
    if (teacher is None) != (not rows):
        raise DataError("--teacher and texts go together: give both for checkpoints, or neither for runs with a probe")
    histories = _of_runs(paths) if teacher is None else {"checkpoints": _of_checkpoints(paths, teacher, rows)}
    histories = of_head(histories, one_head(layer, head))
    save_drawn(lambda: _draw(histories), output)
    if json:
        print_json({title: _as_json(history) for title, history in histories.items()})
        return
    for title, history in histories.items():
        print_table(_table(title, history))


def _of_runs(paths: Sequence[Path]) -> "dict[str, History]":
    histories = load_histories(paths)
    for history in histories.values():
        if not history.direction:
            raise DataError(f"{history.name}: was looked into only once so far; wait for a second look of its training")
    return histories


def _of_checkpoints(paths: Sequence[Path], teacher: Path, rows: "list[Row]") -> "History":
    require_extra("train", "bibert analyze direction with --teacher")
    from bibert.cli.progress import quiet_libraries
    from bibert.lab.checkpoints import moves_between

    quiet_libraries()
    return moves_between(paths, teacher, rows)


def _as_json(history: "History") -> dict[str, Any]:
    tables = {
        thing: {field: table.tolist() for field, table in fields.items()} for thing, fields in history.direction.items()
    }
    return {"steps": list(history.moves), "direction": tables}


def _table(title: str, history: "History") -> Table:
    name = f"{title}: percent that moved towards the teacher / away from it (mean step of each); * is distilled"
    things = [f"{thing} *" if thing in history.asked else thing for thing in history.direction]
    table = Table("step", *things, title=name, title_justify="left")
    for look in evenly(len(history.moves)):
        cells = [_cell(fields, look) for fields in history.direction.values()]
        table.add_row(f"{history.moves[look]:,}", *cells)
    table.caption = PAPERS
    table.caption_justify = "left"
    return table


def _cell(fields: Mapping[str, Any], look: int) -> str:
    from bibert.lab.movement import mean_margin

    ways = [(fields[way][look], fields[f"{way}_margin"][look]) for way in ("matching", "mismatching")]
    good, bad = (100 * share.mean() for share, _ in ways)
    near, far = (mean_margin(share, margin) for share, margin in ways)
    return f"{good:.1f} / {bad:.1f} ({near:.2g} / {far:.2g})"


def _draw(histories: "Mapping[str, History]") -> "Figure":
    from bibert.lab.plots.direction import draw_directions

    return draw_directions(histories)

"""Accuracy against cost: points with names that do not collide, and the paper's Figure 1 (accuracy, FLOPs and size)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox

from bibert.lab.plots.style import COLOURS, FAINT, styled, titled

NEAR, FAR = 8, 24  # points between a marker and its name; a name that is far has a line
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
OFFSETS = [(distance * x, distance * y) for distance in (NEAR, FAR, 2 * FAR) for x, y in SIDES]
COLUMNS = {"flops": "GFLOPs (log scale)", "size": "MB of 2^20 bytes (log scale)"}
SAVED = {"flops": "FLOPs", "size": "bytes"}
MARGIN = 0.12  # of the range of an axis, on each side


class Label(NamedTuple):
    """A name to be written beside a point."""

    x: float
    y: float
    text: str
    colour: str


def place_labels(axes: Axes, labels: Sequence[Label], obstacles: Sequence[Bbox] = ()) -> None:
    """Write names where they cover no point, no other name and no obstacle, a box in pixels; limits must be final."""
    axes.get_figure().draw_without_rendering()  # type: ignore[union-attr]
    spots = [axes.transData.transform((label.x, label.y)) for label in labels]
    taken = [*obstacles, *(Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in spots)]
    for label in labels:
        boxes = []
        for offset in OFFSETS:
            note = _annotate(axes, label, offset)
            note.get_window_extent()  # moves the text to its place
            boxes.append(Text.get_window_extent(note))  # without the line
            note.remove()
        best = min(range(len(OFFSETS)), key=lambda place: (_cost(axes.bbox, boxes[place], taken), place))
        _annotate(axes, label, OFFSETS[best])
        taken.append(boxes[best])


def _cost(panel: Any, box: Bbox, taken: Sequence[Bbox]) -> int:
    """How much a name in a box would cover, and whether it would leave the panel."""
    outside: bool = box.x0 < panel.x0 or box.x1 > panel.x1 or box.y0 < panel.y0 or box.y1 > panel.y1
    return int(sum(box.overlaps(other) for other in taken)) + 3 * outside


def _annotate(axes: Axes, label: Label, offset: tuple[int, int]) -> Any:
    x, y = (int(math.copysign(1, part)) if part else 0 for part in offset)
    is_far = max(map(abs, offset)) > NEAR
    return axes.annotate(
        label.text,
        (label.x, label.y),
        offset,
        textcoords="offset points",
        ha=("center", "left", "right")[x],
        va=("center", "bottom", "top")[y],
        color=label.colour,
        fontsize="small",
        arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.7, "shrinkB": 4} if is_far else None,
    )


def log_costs(axes: Axes, costs: Sequence[float], scores: Sequence[float], title: str) -> None:
    """Set up a panel of scores against costs on a logarithmic axis, with room around the points."""
    factor = max(max(costs) / min(costs), 10.0) ** MARGIN
    spread = MARGIN * max(max(scores) - min(scores), 1.0)
    axes.set(xscale="log", xlabel=title, xlim=(min(costs) / factor, max(costs) * factor))
    axes.set_ylim(min(scores) - spread, max(scores) + spread)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


class Costly(NamedTuple):
    """A row of the paper, or a model of ours: its score, and FLOPs (G) and size (MiB), printed and by the rules."""

    name: str
    score: float
    printed: Mapping[str, float]  # empty for ours
    counted: Mapping[str, float]


@styled()
def draw_savings(rows: Sequence[Costly], score: str) -> Figure:
    """The paper's Figure 1: filled where it prints a cost, open where our rules put it; models of ours are stars."""
    figure = Figure((9.3, 7.2), layout="constrained")
    panels = list(figure.subplots(1, 2, sharey=True))
    note = "filled: cost as printed; open: by the paper's rules, as we count; stars: ours, counted by the same rules"
    titled(figure, _savings(rows), note)
    panels[0].set_title(score)
    for axes, (column, title) in zip(panels, COLUMNS.items(), strict=True):
        shown = [row.printed.get(column, row.counted[column]) for row in rows]
        log_costs(axes, [*shown, *(row.counted[column] for row in rows)], [row.score for row in rows], title)
        labels = []
        for row, cost in zip(rows, shown, strict=True):
            colour = COLOURS[1] if not row.printed else COLOURS[3 if row.name.startswith("bibert") else 0]
            axes.plot([cost, row.counted[column]], [row.score] * 2, color=colour, linewidth=1)
            axes.scatter(cost, row.score, 36 if row.printed else 150, color=colour, marker="o" if row.printed else "*")
            if row.printed:
                axes.scatter(row.counted[column], row.score, 36, facecolor="none", edgecolor=colour)
            labels.append(Label(cost, row.score, row.name, colour))
        rings = axes.transData.transform([(row.counted[column], row.score) for row in rows])
        crowded = sorted(labels, key=lambda one: sorted(abs(one.y - label.y) for label in labels)[1])  # 0 is its own
        place_labels(axes, crowded, [Bbox.from_bounds(x - 8, y - 8, 16, 16) for x, y in rings])
    return figure


def _savings(rows: Sequence[Costly]) -> str:
    """What BiBERT saves and loses by the printed figures; they are those of the first row and of `bibert`."""
    full, ours = rows[0], next(row for row in rows if row.name == "bibert")
    saved = [f"{full.printed[column] / ours.printed[column]:.0f} × fewer {word}" for column, word in SAVED.items()]
    return f"BiBERT in print: {' and '.join(saved)}, for {full.score - ours.score:.1f} points"

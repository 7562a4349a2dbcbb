"""The figure of front.py: accuracy against time and against size, two panels that share the axis of accuracy.

A stepped line connects the points that no other point of the panel beats in both accuracy and cost. Labels have offsets
set by hand: when new results move a point, adjust its entry in `PANELS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from bibert.errors import BibertError, did_you_mean
from bibert.lab.plots.style import save_figure, styled

INCHES = (9.0, 4.6)
MARGIN = 0.14  # of the range of a panel, on each side
NEAR = 15  # points; a label farther away gets a line to its marker


class Style(NamedTuple):
    """How points of a kind look: shapes differ for grey print, colours suit colour-blind readers."""

    marker: str
    colour: str
    size: float
    filled: bool = True


KINDS: Mapping[str, Style] = {
    "1-bit weights": Style("*", "#C04000", 190),
    "float32": Style("o", "#0060A0", 46),
    "int8": Style("s", "#007A5A", 42, filled=False),
    "words": Style("D", "#444444", 36),
}


@dataclass(frozen=True)
class Point:
    """One classifier; `kind` is one of `KINDS`, accuracy is in percent, megabytes are 10^6 bytes to ship."""

    name: str
    kind: str
    accuracy: float
    milliseconds: float
    megabytes: float


class Panel(NamedTuple):
    """A panel: which cost it shows, and the offset of each label from its marker, in points; right of it by default."""

    cost: str
    title: str
    offsets: Mapping[str, tuple[int, int]]


RIGHT, LEFT, ABOVE = (10, 0), (-10, 0), (0, 11)
PANELS = (
    Panel(
        "milliseconds",
        "time for one text, ms (log scale)",
        {
            "bibert": LEFT,
            "bibert, 4 bits": LEFT,
            "torch-fp32": ABOVE,
            "onnx-fp32": (-8, -16),
            "onnx-int8": LEFT,
            "openvino-fp32": (-34, 20),
            "openvino-int8": (0, -28),
            "bag of words, bigrams": (18, 0),
            "mean of GloVe": (10, 11),
        },
    ),
    Panel(
        "megabytes",
        "size to ship, MB (log scale)",
        {
            "bibert": LEFT,
            "bibert, 4 bits": LEFT,
            "torch-fp32": ABOVE,
            "onnx-fp32": (-30, 17),
            "onnx-int8": (-9, 1),
            "openvino-fp32": (-10, -14),
            "openvino-int8": (0, -32),
            "bag of words": (5, 11),
        },
    ),
)


def save_front(points: Sequence[Point], stem: Path, accuracy: str) -> tuple[Path, Path]:
    """Write the figure as `stem`.svg and `stem`.png; `accuracy` is the label of that axis."""
    with styled():
        figure = draw_front(points, accuracy)
    return save_figure(figure, stem.with_suffix(".svg")), save_figure(figure, stem.with_suffix(".png"))


def draw_front(points: Sequence[Point], accuracy: str) -> Figure:
    """Draw both panels.

    Raises:
        BibertError: there is no point, a kind is unknown, or a cost is not positive.
    """
    if not points:
        raise BibertError("the figure needs at least one point; measure first")
    for point in points:
        if point.kind not in KINDS:
            raise BibertError(f"{point.name}: unknown kind {point.kind!r}; {did_you_mean(point.kind, KINDS)}")
        if not (point.milliseconds > 0 and point.megabytes > 0):
            raise BibertError(
                f"{point.name}: {point.milliseconds} ms and {point.megabytes} MB, both must be above 0 for a log scale"
            )
    figure = Figure(INCHES, layout="constrained")
    panels = list(figure.subplots(1, len(PANELS), sharey=True))
    for axes, panel in zip(panels, PANELS, strict=True):
        _draw_panel(axes, points, panel)
    panels[0].set_ylabel(accuracy)
    kinds = [kind for kind in KINDS if any(point.kind == kind for point in points)]
    handles = [_scatter(panels[0], [], [], kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(kinds), frameon=False)
    return figure


def front_of(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Indices of the points that no other beats, cheapest first, so that accuracy increases."""
    best, front = float("-inf"), []
    for index in sorted(range(len(costs)), key=lambda index: (costs[index], -accuracies[index])):
        if accuracies[index] > best:
            best = accuracies[index]
            front.append(index)
    return front


def _draw_panel(axes: Axes, points: Sequence[Point], panel: Panel) -> None:
    costs, accuracies = [getattr(point, panel.cost) for point in points], [point.accuracy for point in points]
    factor = max(max(costs) / min(costs), 10.0) ** MARGIN
    spread = MARGIN * max(max(accuracies) - min(accuracies), 1.0)
    axes.set_xscale("log")
    axes.set_xlim(min(costs) / factor, max(costs) * factor)
    axes.set_ylim(min(accuracies) - spread, max(accuracies) + spread)
    axes.set_xlabel(panel.title)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    _draw_front_line(axes, costs, accuracies)
    for point, cost in zip(points, costs, strict=True):
        _scatter(axes, [cost], [point.accuracy], point.kind)
        _annotate(axes, point, cost, panel.offsets.get(point.name, RIGHT))


def _draw_front_line(axes: Axes, costs: Sequence[float], accuracies: Sequence[float]) -> None:
    """The staircase from the cheapest point of the front to the right edge of the panel."""
    front = front_of(costs, accuracies)
    corners = [(costs[front[0]], accuracies[front[0]])]
    for before, index in pairwise(front):
        corners += [(costs[index], accuracies[before]), (costs[index], accuracies[index])]
    corners.append((axes.get_xlim()[1], accuracies[front[-1]]))
    axes.plot(*zip(*corners, strict=True), color="#B0B0B0", linewidth=1.4, zorder=1.5)


def _scatter(axes: Axes, x: list[float], y: list[float], kind: str) -> object:
    style = KINDS[kind]
    face = style.colour if style.filled else "white"
    return axes.scatter(
        x, y, style.size, marker=style.marker, facecolor=face, edgecolor=style.colour, label=kind, zorder=3
    )


def _annotate(axes: Axes, point: Point, cost: float, offset: tuple[int, int]) -> None:
    x, y = offset
    axes.annotate(
        point.name,
        (cost, point.accuracy),
        offset,
        textcoords="offset points",
        ha="center" if abs(x) < abs(y) else "left" if x > 0 else "right",
        va="center",
        color=KINDS[point.kind].colour,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        arrowprops={"arrowstyle": "-", "color": "#666666", "linewidth": 0.6} if max(abs(x), abs(y)) > NEAR else None,
        zorder=2.5,
    )

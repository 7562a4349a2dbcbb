"""Accuracy against time and against size, two panels that share the axis of accuracy.

A thin stepped line runs along the front: the points that no other point beats in both directions of a panel. Where a
name may stand is the business of `labels`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from bibert.errors import BibertError, did_you_mean
from bibert.lab.plots.labels import Label, place_labels
from bibert.lab.plots.style import save_figure, styled

INCHES = (9.0, 4.6)
MARGIN = 0.12  # of the range of a panel, on each side


class Style(NamedTuple):
    """How points of a kind look: by shape in grey print, by colours that colour-blind readers can tell apart."""

    marker: str
    colour: str
    size: float
    filled: bool = True


KINDS: Mapping[str, Style] = {
    "1 bit": Style("*", "#C04000", 190),
    "float32": Style("o", "#0060A0", 46),
    "int8": Style("s", "#007A5A", 42, filled=False),
    "words": Style("D", "#444444", 36),
}


@dataclass(frozen=True)
class Point:
    """One way to get labels for texts.

    Attributes:
        name: stands beside it.
        kind: one of `KINDS`.
        accuracy: percent.
        milliseconds: for a text.
        megabytes: 10^6 bytes that have to be shipped.
    """

    name: str
    kind: str
    accuracy: float
    milliseconds: float
    megabytes: float


class Panel(NamedTuple):
    """One of the two halves of the figure."""

    cost: Callable[[Point], float]
    title: str


PANELS = (
    Panel(lambda point: point.milliseconds, "time for one text, ms (log scale)"),
    Panel(lambda point: point.megabytes, "size to ship, MB (log scale)"),
)


def save_front(points: Sequence[Point], stem: Path, accuracy: str) -> tuple[Path, Path]:
    """Write the figure as `stem`.svg and `stem`.png.

    Args:
        points: what to show.
        stem: the path of the files without their ends.
        accuracy: the name of the accuracy, such as "SST-2 dev accuracy, %".

    Raises:
        BibertError: there is no point, one has a value that a logarithm cannot show, or an unknown kind.
    """
    with styled():
        figure = draw_front(points, accuracy)
    return save_figure(figure, stem.with_suffix(".svg")), save_figure(figure, stem.with_suffix(".png"))


def draw_front(points: Sequence[Point], accuracy: str) -> Figure:
    """The figure itself; `save_front` has the arguments."""
    _check(points)
    figure = Figure(INCHES, layout="constrained")
    FigureCanvasAgg(figure)  # measures text, which placing labels needs
    panels = list(figure.subplots(1, len(PANELS), sharey=True))
    for axes, panel in zip(panels, PANELS, strict=True):
        _draw_panel(axes, points, panel)
    panels[0].set_ylabel(accuracy)
    _draw_kinds(figure, panels[0], points)
    figure.canvas.draw()  # settles the layout; labels are placed in what it leaves
    figure.set_layout_engine("none")
    for axes, panel in zip(panels, PANELS, strict=True):
        labels = [Label(point.name, (panel.cost(point), point.accuracy), KINDS[point.kind].colour) for point in points]
        place_labels(axes, labels, _stairs(axes, points, panel))
    return figure


def front_of(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """The places of the points that no other beats, cheapest first: every further one is more accurate."""
    best, front = float("-inf"), []
    for place in sorted(range(len(costs)), key=lambda place: (costs[place], -accuracies[place])):
        if accuracies[place] > best:
            best = accuracies[place]
            front.append(place)
    return front


def _check(points: Sequence[Point]) -> None:
    if not points:
        raise BibertError("a figure needs at least one point; measure first")
    for point in points:
        if point.kind not in KINDS:
            raise BibertError(f"{point.name}: there is no kind {point.kind!r}; {did_you_mean(point.kind, KINDS)}")
        if not (point.milliseconds > 0 and point.megabytes > 0):
            raise BibertError(
                f"{point.name}: {point.milliseconds} ms and {point.megabytes} MB, both must be above 0 for a log scale"
            )


def _draw_panel(axes: Axes, points: Sequence[Point], panel: Panel) -> None:
    costs, accuracies = [panel.cost(point) for point in points], [point.accuracy for point in points]
    axes.set_xscale("log")
    axes.set_xlim(*_with_margin_log(costs))
    axes.set_ylim(*_with_margin(accuracies))
    axes.set_xlabel(panel.title)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="major", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.plot(*zip(*_stairs(axes, points, panel), strict=True), color="#B0B0B0", linewidth=1.4, zorder=1.5)
    for point, cost in zip(points, costs, strict=True):
        _draw_marker(axes, cost, point.accuracy, KINDS[point.kind])


def _stairs(axes: Axes, points: Sequence[Point], panel: Panel) -> list[tuple[float, float]]:
    """The corners of the line along the front, from its cheapest point to the edge of the panel."""
    costs, accuracies = [panel.cost(point) for point in points], [point.accuracy for point in points]
    front = front_of(costs, accuracies)
    corners = [(costs[front[0]], accuracies[front[0]])]
    for before, place in pairwise(front):
        corners += [(costs[place], accuracies[before]), (costs[place], accuracies[place])]
    return [*corners, (axes.get_xlim()[1], accuracies[front[-1]])]


def _draw_marker(axes: Axes, x: float, y: float, style: Style) -> None:
    face = style.colour if style.filled else "white"
    axes.scatter([x], [y], style.size, marker=style.marker, facecolor=face, edgecolor=style.colour, zorder=3)


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    spread = max(max(values) - min(values), 1.0)
    return min(values) - MARGIN * spread, max(values) + MARGIN * spread


def _with_margin_log(values: Sequence[float]) -> tuple[float, float]:
    factor = max(max(values) / min(values), 10.0) ** MARGIN
    return min(values) / factor, max(values) * factor


def _draw_kinds(figure: Figure, axes: Axes, points: Sequence[Point]) -> None:
    present = [kind for kind in KINDS if any(point.kind == kind for point in points)]
    handles = []
    for kind in present:
        style = KINDS[kind]
        face = style.colour if style.filled else "white"
        handles.append(
            axes.scatter([], [], style.size, marker=style.marker, facecolor=face, edgecolor=style.colour, label=kind)
        )
    figure.legend(handles=handles, loc="outside upper center", ncols=len(present), frameon=False)

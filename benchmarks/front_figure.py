"""The figure of front.py: accuracy against time and against size, two panels that share the axis of accuracy.

A stepped line connects the points that no other point of the panel beats in both accuracy and cost. Points in one place
share a name. The title says what one bit saves against int8, and what it loses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from bibert.errors import BibertError, did_you_mean
from bibert.lab.plots.scatter import Label, log_costs, place_labels
from bibert.lab.plots.style import COLOURS, FAINT, save_figure, styled, titled

INCHES = (9.3, 4.7)
SAME = 1.06  # points whose costs differ by a smaller factor are in one place
COSTS: Mapping[str, str] = {
    "milliseconds": "time for one text, ms (log scale)",
    "megabytes": "size to ship, MB (log scale)",
}


class Style(NamedTuple):
    """How points of a kind look: shapes differ for grey print, colours suit colour-blind readers."""

    marker: str
    colour: str
    size: float
    filled: bool = True


KINDS: Mapping[str, Style] = {
    "1-bit weights": Style("*", COLOURS[1], 190),
    "float32": Style("o", COLOURS[0], 46),
    "int8": Style("s", COLOURS[2], 42, filled=False),
    "words": Style("D", COLOURS[4], 36),
}


@dataclass(frozen=True)
class Point:
    """One classifier; `kind` is one of `KINDS`, accuracy is in percent, megabytes are 10^6 bytes to ship."""

    name: str
    kind: str
    accuracy: float
    milliseconds: float
    megabytes: float


def save_front(points: Sequence[Point], stem: Path, accuracy: str) -> tuple[Path, Path]:
    """Write the figure as `stem`.svg and `stem`.png; `accuracy` says what is measured on which rows."""
    figure = draw_front(points, accuracy)
    return save_figure(figure, stem.with_suffix(".svg")), save_figure(figure, stem.with_suffix(".png"))


@styled()
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
    panels = list(figure.subplots(1, len(COSTS), sharey=True))
    kinds = [kind for kind in KINDS if any(point.kind == kind for point in points)]
    handles = [_scatter(panels[0], [], [], kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(kinds), frameon=False)
    panels[0].set_title(accuracy)
    titled(figure, takeaway(points))
    for axes, cost in zip(panels, COSTS, strict=True):
        _draw_panel(axes, points, cost)
    return figure


def takeaway(points: Sequence[Point]) -> str:
    """What the smallest 1-bit model saves against int8 at its best, and what it loses."""
    ours, rivals = ([point for point in points if point.kind == kind] for kind in ("1-bit weights", "int8"))
    if not ours or not rivals:
        return "Accuracy against time and size"
    small = min(ours, key=lambda point: point.megabytes)
    faster, smaller = (min(getattr(one, cost) for one in rivals) / getattr(small, cost) for cost in COSTS)
    lost = max(one.accuracy for one in rivals) - small.accuracy
    return f"One bit: {faster:.0f} × as fast and {smaller:.0f} × smaller than int8, for {lost:.1f} points of accuracy"


def front_of(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Indices of the points that no other beats, cheapest first, so that accuracy increases."""
    best, front = float("-inf"), []
    for index in sorted(range(len(costs)), key=lambda index: (costs[index], -accuracies[index])):
        if accuracies[index] > best:
            best = accuracies[index]
            front.append(index)
    return front


def _draw_panel(axes: Axes, points: Sequence[Point], cost: str) -> None:
    costs, accuracies = [getattr(point, cost) for point in points], [point.accuracy for point in points]
    log_costs(axes, costs, accuracies, COSTS[cost])
    corners = _draw_front_line(axes, costs, accuracies)
    for point, one in zip(points, costs, strict=True):
        _scatter(axes, [one], [point.accuracy], point.kind)
    axes.get_figure().draw_without_rendering()
    screen = axes.transData.transform(corners)
    place_labels(axes, named_places(points, cost), [Bbox([low, high]).padded(1) for low, high in pairwise(screen)])


def named_places(points: Sequence[Point], cost: str) -> list[Label]:
    """The names of the points; those of one kind in one place are one name of several lines."""
    labels: list[Label] = []
    for point in points:
        x, colour = getattr(point, cost), KINDS[point.kind].colour
        same = [
            place
            for place, label in enumerate(labels)
            if label.colour == colour and max(x / label.x, label.x / x) < SAME and abs(label.y - point.accuracy) < 1
        ]
        if same:
            labels[same[0]] = labels[same[0]]._replace(text=f"{labels[same[0]].text}\n{point.name}")
        else:
            labels.append(Label(x, point.accuracy, point.name, colour))
    return labels


def _draw_front_line(axes: Axes, costs: Sequence[float], accuracies: Sequence[float]) -> list[tuple[float, float]]:
    """The staircase from the cheapest point of the front to the right edge of the panel; its corners."""
    front = front_of(costs, accuracies)
    corners = [(costs[front[0]], accuracies[front[0]])]
    for before, index in pairwise(front):
        corners += [(costs[index], accuracies[before]), (costs[index], accuracies[index])]
    corners.append((axes.get_xlim()[1], accuracies[front[-1]]))
    axes.plot(*zip(*corners, strict=True), color=FAINT, alpha=0.5, linewidth=1.6, zorder=1.5)
    return corners


def _scatter(axes: Axes, x: list[float], y: list[float], kind: str) -> object:
    style = KINDS[kind]
    face = style.colour if style.filled else "none"
    return axes.scatter(
        x, y, style.size, marker=style.marker, facecolor=face, edgecolor=style.colour, label=kind, zorder=3
    )

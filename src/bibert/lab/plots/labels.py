"""Names beside the points of a panel: none lies on a point, on another name, on the curve or outside of the panel.

Every name takes the nearest free place: beside its point, or farther away with a thin line to it. Points that have
little room choose first.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

Place = tuple[float, float]
Line = tuple[Place, Place]

MARKER_RADIUS = 7.0  # points (1/72 inch) around a marker that stay free
DISTANCES = (9.0, 16.0, 24.0, 33.0, 43.0, 54.0, 66.0, 80.0, 95.0, 112.0, 130.0)
NEAR = 12.0  # within this distance a name needs no line to its point
DIRECTIONS = 24
PADDING = 1.5  # around a name, in points
BACKGROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # a name interrupts the grid


class _Candidate(NamedTuple):
    """A place for a name, in pixels."""

    box: Bbox
    line: Line | None


class _Taken(NamedTuple):
    """What names must not hide, in pixels."""

    panel: Bbox
    markers: list[Bbox]
    curve: list[Line]
    placed: list[_Candidate]


class Label(NamedTuple):
    """A name, the point it belongs to, and its colour."""

    name: str
    point: Place
    colour: str


def place_labels(axes: Axes, labels: Sequence[Label], curve: Sequence[Place]) -> None:
    """Write every name near its point; limits and layout of the panel must be final.

    Args:
        axes: the panel.
        labels: with points in its coordinates.
        curve: the corners of a line that names shall not lie on.
    """
    scale = _dots_per_point(axes)
    pixels = [_pixel(axes, label.point) for label in labels]
    radius = MARKER_RADIUS * scale
    markers = [Bbox.from_bounds(x - radius, y - radius, 2 * radius, 2 * radius) for x, y in pixels]
    taken = _Taken(axes.bbox, markers, list(pairwise(_pixel(axes, corner) for corner in curve)), [])
    for index in _crowded_first(pixels):
        size = _size_of(axes, labels[index].name)
        chosen = _best(_candidates(pixels[index], size, scale), taken, index)
        taken.placed.append(chosen)
        _write(axes, labels[index], chosen)


def _dots_per_point(axes: Axes) -> float:
    return float(axes.figure.dpi) / 72


def _pixel(axes: Axes, place: Place) -> Place:
    x, y = axes.transData.transform(place)
    return float(x), float(y)


def _size_of(axes: Axes, name: str) -> tuple[float, float]:
    """Width and height in pixels with the space around a name."""
    text = axes.annotate(name, (0.5, 0.5), xycoords="axes fraction")
    box = text.get_window_extent().padded(PADDING * _dots_per_point(axes))
    text.remove()
    return float(box.width), float(box.height)


def _crowded_first(pixels: Sequence[Place]) -> list[int]:
    """Indices, those first whose neighbours are nearest."""

    def room(index: int) -> float:
        return sum(1 / (1 + math.dist(pixels[index], other)) for other in pixels)

    return sorted(range(len(pixels)), key=lambda index: (-room(index), pixels[index]))


def _candidates(point: Place, size: tuple[float, float], scale: float) -> Iterator[_Candidate]:
    """Places from near to far; at each distance right and left come first, which reads best."""
    angles = sorted((2 * math.pi * step / DIRECTIONS for step in range(DIRECTIONS)), key=lambda a: abs(math.sin(a)))
    for distance in DISTANCES:
        for angle in angles:
            x, y = point[0] + distance * scale * math.cos(angle), point[1] + distance * scale * math.sin(angle)
            # The edge of the box that faces the point lies at the distance, not its centre.
            left, bottom = x - size[0] * (1 - math.cos(angle)) / 2, y - size[1] * (1 - math.sin(angle)) / 2
            box = Bbox.from_bounds(left, bottom, *size)
            end = (min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1))
            yield _Candidate(box, None if distance <= NEAR else (point, end))


def _best(choices: Iterator[_Candidate], taken: _Taken, own: int) -> _Candidate:
    """The first free place; where there is none, the first of those that are least in the way."""
    costs: list[tuple[int, _Candidate]] = []
    for choice in choices:
        cost = _conflicts(choice, taken, own)
        if cost == 0:
            return choice
        costs.append((cost, choice))
    return min(costs, key=lambda found: found[0])[1]


def _conflicts(choice: _Candidate, taken: _Taken, own: int) -> int:
    """How many things a place is in the way of; to leave the panel is worst, then to lie on a name or a marker."""
    box, panel = choice.box, taken.panel
    inside = panel.x0 <= box.x0 and box.x1 <= panel.x1 and panel.y0 <= box.y0 and box.y1 <= panel.y1
    on_names = sum(bool(box.overlaps(other.box)) for other in taken.placed)
    on_markers = sum(bool(box.overlaps(marker)) for marker in taken.markers)
    on_curve = sum(_crosses(line, box) for line in taken.curve)
    through = sum(_crosses(choice.line, marker) for index, marker in enumerate(taken.markers) if index != own)
    through += sum(_crosses(choice.line, other.box) or _crosses(other.line, box) for other in taken.placed)
    through += sum(_lines_cross(choice.line, other.line) for other in taken.placed)
    return 100 * (not inside) + 20 * on_names + 10 * on_markers + 2 * on_curve + through


def _crosses(line: Line | None, box: Bbox) -> bool:
    if line is None:
        return False
    corners = [(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1), (box.x0, box.y0)]
    inside = any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for x, y in line)
    return inside or any(_lines_cross(line, edge) for edge in pairwise(corners))


def _lines_cross(one: Line | None, other: Line | None) -> bool:
    """Whether the ends of each lie on different sides of the other; to touch is not to cross."""
    if one is None or other is None:
        return False
    apart = _side(*one, other[0]) * _side(*one, other[1]) < 0
    return apart and _side(*other, one[0]) * _side(*other, one[1]) < 0


def _side(start: Place, end: Place, point: Place) -> float:
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def _write(axes: Axes, label: Label, chosen: _Candidate) -> None:
    to_data = axes.transData.inverted()
    if chosen.line is not None:
        (x0, y0), (x1, y1) = to_data.transform(chosen.line)
        axes.plot([x0, x1], [y0, y1], color="#666666", linewidth=0.6, zorder=2)
    centre = ((chosen.box.x0 + chosen.box.x1) / 2, (chosen.box.y0 + chosen.box.y1) / 2)
    x, y = to_data.transform(centre)
    axes.text(x, y, label.name, ha="center", va="center", color=label.colour, bbox=BACKGROUND, zorder=2.5)

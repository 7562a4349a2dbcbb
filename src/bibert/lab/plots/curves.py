"""Small panels of lines that share their x axis: what entropies, directions, losses and metrics are drawn with.

A line may have a band around it, from the least to the greatest of what it is the mean of. What a line means is said
by the modules that make the panels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bibert.lab.plots.style import COLOURS, LINES, MARKERS

PANEL = (3.1, 2.3)  # inches
MOST_MARKS = 12  # on a line of many points
GRID: dict[str, Any] = {"color": "#808080", "alpha": 0.22, "linewidth": 0.7}  # on paper and on a dark page


@dataclass(frozen=True)
class Line:
    """A line of a panel.

    Attributes:
        name: in the legend, once for all panels.
        x: its places.
        y: its values.
        hue: the place of its colour in `COLOURS`.
        dash: the place of its pattern in `LINES`.
        band: the lower and the upper edge of what it stands for.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    hue: int = 0
    dash: int = 0
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Panel:
    """One small picture.

    Attributes:
        title: above it.
        lines: in it.
        y_label: what y is, with its unit.
        limits: of the y axis.
        x_label: where x is not what the other panels have.
        log: which axes have a logarithmic scale, "", "x", "y" or "xy".
    """

    title: str
    lines: Sequence[Line]
    y_label: str = ""
    limits: tuple[float, float] | None = None
    x_label: str = ""
    log: str = ""


def draw_panels(panels: Sequence[Panel], x_label: str = "", columns: int = 3, *, whole_steps: bool = False) -> Figure:
    """Panels row by row, one legend above them.

    Args:
        panels: what to draw.
        x_label: what x is, with its unit, where a panel does not say it.
        columns: panels side by side.
        whole_steps: whether x has whole numbers only, such as layers.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure((PANEL[0] * columns, PANEL[1] * rows + 0.4), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        _draw(axes, panel)
        if whole_steps:
            axes.locator_params(axis="x", integer=True)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    for place, (axes, panel) in enumerate(zip(places, panels, strict=False)):
        axes.set_xlabel(panel.x_label or (x_label if place + columns >= len(panels) else ""))
    _draw_legend(figure, panels)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize="medium", loc="left")
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True, **GRID)
    axes.set_axisbelow(True)
    for axis in panel.log:
        axes.set(**{f"{axis}scale": "log"})
    for line in panel.lines:
        pen = _pen(line)
        if line.band is not None:
            axes.fill_between(line.x, *line.band, color=pen["color"], alpha=0.15, linewidth=0)
        axes.plot(line.x, line.y, **pen)
    if panel.limits is not None:
        axes.set_ylim(*panel.limits)


def _draw_legend(figure: Figure, panels: Sequence[Panel]) -> None:
    names: dict[str, Line] = {}
    for panel in panels:
        for line in panel.lines:
            names.setdefault(line.name, line)
    if len(names) < 2:
        return
    handles = [figure.axes[0].plot([], [], **_pen(line), label=name)[0] for name, line in names.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(names), 4), frameon=False)


def _pen(line: Line) -> dict[str, Any]:
    return {
        "color": COLOURS[line.hue % len(COLOURS)],
        "linestyle": LINES[line.dash % len(LINES)],
        "marker": MARKERS[line.hue % len(MARKERS)],
        "markevery": max(1, len(line.x) // MOST_MARKS),
        "markersize": 3.5,
        "linewidth": 1.5,
    }

"""Figures of lines in small panels: entropies, directions, a training log, and the paper's theorems.

A line may have a band around it, from the least to the greatest of the values whose mean it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bibert.data.metrics import METRICS
from bibert.lab.direction import mean_margin
from bibert.lab.entropy import Entropies
from bibert.lab.plots.style import COLOURS, LINES, MARKERS, styled
from bibert.lab.record import History, curve
from bibert.lab.theory import HEAD_SIZES, Statements, gaussian_probabilities, score_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.1, 2.3)  # inches
MOST_MARKS = 12  # on a line of many points
GRID: dict[str, Any] = {"color": "#808080", "alpha": 0.22, "linewidth": 0.7}  # on paper and on a dark page
SITES = {
    "query": "queries",
    "key": "keys",
    "value": "values",
    "attention": "attention weights",
    "context": "context",
    "ffn_hidden": "inside the FFN",
}
THINGS = {
    "scores": "attention scores",
    "query": "similarity of queries",
    "key": "similarity of keys",
    "value": "similarity of values",
}
WAYS = {"matching": "towards the teacher", "mismatching": "away"}
OF_THE_MODEL = tuple(f"_{name}" for name in METRICS)  # the other evaluated values are times and speeds
EXACT, SIMULATED, PAPER = "computed", "simulated", "paper"
SHOWN_DEVIATIONS = 4  # of the Gaussian: scores beyond are too rare to be seen

Floats = NDArray[np.float64]
Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Line:
    """A line of a panel; `hue` and `dash` are indices of `COLOURS` and `LINES`, `band` its lower and upper edge."""

    name: str  # in the legend, once for all panels
    x: Sequence[float]
    y: Sequence[float]
    hue: int = 0
    dash: int = 0
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Panel:
    """One small plot; labels have the unit."""

    title: str
    lines: Sequence[Line]
    y_label: str = ""
    limits: tuple[float, float] | None = None  # of the y axis
    x_label: str = ""  # if it differs from the other panels
    log: str = ""  # axes with a logarithmic scale: "", "x", "y" or "xy"


def draw_entropies(models: Mapping[str, Entropies]) -> "Figure":
    """Entropies of the activations layer by layer, by the name of each model."""
    tables = {name: {**found.heads, **found.layers} for name, found in models.items()}
    return _draw_sites({name: (range(len(one["query"])), one) for name, one in tables.items()}, "layer")


def draw_entropy_history(histories: Mapping[str, History]) -> "Figure":
    """Entropies of the activations during training, by the name of each run."""
    return _draw_sites({name: (one.steps, one.entropy) for name, one in histories.items()}, "step")


def _draw_sites(tables: Mapping[str, tuple[Sequence[int], Mapping[str, Floats]]], x_label: str) -> "Figure":
    panels = []
    for site, title in SITES.items():
        found = enumerate(tables.items())
        lines = [_mean(name, x, table[site], hue) for hue, (name, (x, table)) in found if site in table]
        panels.append(Panel(title, lines, "entropy, bits", (-0.04, 1.04)))
    return draw_panels(panels, x_label, whole_steps=x_label == "layer")


def _mean(name: str, x: Sequence[float], table: Floats, hue: int) -> Line:
    """(x, ...) to a line with its band."""
    flat = table.reshape(len(table), -1)
    band = (flat.min(axis=1).tolist(), flat.max(axis=1).tolist())
    return Line(name, list(x), flat.mean(axis=1).tolist(), hue, hue, band)


def draw_directions(histories: Mapping[str, History]) -> "Figure":
    """Matching and mismatching steps of all heads and layers, by the name of each run: shares above, lengths below."""
    shares = [
        Panel(title, _ways(histories, thing, False), "share of elements", (0, 1)) for thing, title in THINGS.items()
    ]
    steps = [Panel(title, _ways(histories, thing, True), "mean step") for thing, title in THINGS.items()]
    return draw_panels([*shares, *steps], "training step", columns=len(THINGS))


def _ways(histories: Mapping[str, History], thing: str, steps: bool) -> list[Line]:
    lines = []
    for hue, (name, history) in enumerate(histories.items()):
        for dash, (way, words) in enumerate(WAYS.items()):
            share, margin = history.direction[thing][way], history.direction[thing][f"{way}_margin"]
            values = mean_margin(share, margin) if steps else share.mean(axis=(1, 2))
            lines.append(Line(f"{name}, {words}", history.moves, values.tolist(), hue, dash))
    return lines


def draw_losses(log: Events) -> "Figure":
    """The loss, each of its terms and the learning rate, a line for each stage."""
    names = dict.fromkeys(name for event in log for name in event if name.startswith("loss"))
    panels = [Panel(name.removeprefix("loss_"), _logged(log, name), "loss") for name in names]
    return draw_panels([*panels, Panel("learning rate", _logged(log, "learning_rate"), "per step")], "step")


def metrics_of(log: Events) -> list[str]:
    """The names of the dev metrics in a log; empty before the first evaluation."""
    names = dict.fromkeys(name for event in log for name in event)
    return [name for name in names if name.startswith("eval_") and name.endswith(OF_THE_MODEL)]


def draw_metrics(log: Events) -> "Figure":
    """Every metric on the dev set, in percent."""
    panels = [Panel(name.removeprefix("eval_"), _logged(log, name, 100), "percent") for name in metrics_of(log)]
    return draw_panels(panels, "step")


def _logged(log: Events, name: str, factor: float = 1) -> list[Line]:
    lines = []
    for hue, stage in enumerate(dict.fromkeys(event["stage"] for event in log)):
        points = curve(log, stage, name)
        if points:
            lines.append(Line(stage, list(points), [factor * value for value in points.values()], hue, hue))
    return lines


def draw_theory(found: Statements, models: Mapping[str, Floats]) -> "Figure":
    """Theorems 1, 2 and 3, and the entropy of the quantile sweep.

    `models` are the shares of scores of trained models by name, (layers, D + 1), with heads of one size.
    """

    def line(name: str, statement: str, x: str, y: str, hue: int, dash: int) -> Line:
        return Line(name, [row[x] for row in found[statement]], [row[y] for row in found[statement]], hue, dash)

    size = next((table.shape[1] - 1 for table in models.values()), HEAD_SIZES[-1])
    thresholds = [line(SIMULATED, "theorem_1", "keys", "threshold", 5, 1)]
    directions = [line(EXACT, "theorem_3", "bits", "exact", 0, 0), line(PAPER, "theorem_3", "bits", "paper", 1, 1)]
    quantiles = [
        line(EXACT, "quantiles", "zeros_percent", "entropy", 0, 0),
        line(PAPER, "quantiles", "zeros_percent", "paper", 1, 1),
    ]
    panels = [
        Panel("Theorem 1: best threshold of a softmax", thresholds, "threshold τ", x_label="keys k", log="xy"),
        Panel(f"Theorem 2: scores of {size} bits", _scores(size, models), "probability", x_label="score"),
        Panel("Theorem 3: wrong directions", directions, "percent", x_label="bits Q"),
        Panel("Attention weights, some zero", quantiles, "entropy, bits", x_label="zeros, percent"),
    ]
    return draw_panels(panels, columns=2)


def _scores(size: int, models: Mapping[str, Floats]) -> list[Line]:
    scores = np.arange(-size, size + 1, 2)
    seen = np.abs(scores) <= SHOWN_DEVIATIONS * np.sqrt(size)
    x = scores[seen].tolist()
    lines = [
        Line(EXACT, x, score_probabilities(size)[seen].tolist(), 0, 0),
        Line(f"Gaussian N(0, {size})", x, gaussian_probabilities(size)[seen].tolist(), 4, 3),
    ]
    return lines + [
        _mean(name, x, shares[:, seen].T, 2 + number) for number, (name, shares) in enumerate(models.items())
    ]


@styled()
def draw_panels(panels: Sequence[Panel], x_label: str = "", columns: int = 3, *, whole_steps: bool = False) -> "Figure":
    """Panels row by row below one legend; with `whole_steps` x has only whole numbers, such as layers."""
    from matplotlib.figure import Figure

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure((PANEL[0] * columns, PANEL[1] * rows + 0.4), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, (axes, panel) in enumerate(zip(places, panels, strict=False)):
        _draw(axes, panel)
        axes.set_xlabel(panel.x_label or (x_label if place + columns >= len(panels) else ""))
        if whole_steps:
            axes.locator_params(axis="x", integer=True)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    names: dict[str, Line] = {}
    for line in (line for panel in panels for line in panel.lines):
        names.setdefault(line.name, line)
    if len(names) > 1:
        handles = [places[0].plot([], [], **_pen(line), label=name)[0] for name, line in names.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(names), 4), frameon=False)
    return figure


def _draw(axes: "Axes", panel: Panel) -> None:
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


def _pen(line: Line) -> dict[str, Any]:
    return {
        "color": COLOURS[line.hue % len(COLOURS)],
        "linestyle": LINES[line.dash % len(LINES)],
        "marker": MARKERS[line.hue % len(MARKERS)],
        "markevery": max(1, len(line.x) // MOST_MARKS),
        "markersize": 3.5,
        "linewidth": 1.5,
    }

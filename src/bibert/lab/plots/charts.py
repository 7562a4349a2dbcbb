"""Charts: entropies, directions, a training log and the paper's theorems as lines, bottlenecks as bars.

A line may have a band around it, from the least to the greatest of the values whose mean it is. Bars of ours are
filled, the paper's hatched; whiskers are one standard error of the dev set.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bibert.data.metrics import BINS, METRICS, Bin
from bibert.errors import BibertError
from bibert.lab.direction import mean_margin
from bibert.lab.plots.style import COLOURS, LINES, MARKERS, styled
from bibert.lab.record import History, curve
from bibert.lab.tables import Effect
from bibert.lab.theory import HEAD_SIZES, Statements, gaussian_probabilities, score_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.1, 2.3)  # inches
MOST_MARKS = 12  # on a line of many points
GRID: dict[str, Any] = {"color": "#808080", "alpha": 0.22, "linewidth": 0.7}  # on paper and on a dark page
LABELS: dict[str, dict[str, str]] = tomllib.loads(
    resources.files(__package__).joinpath("labels.toml").read_text(encoding="utf-8")
)
SITES, THINGS, WAYS, CHANGES = (LABELS[name] for name in ("sites", "things", "ways", "changes"))
OF_THE_MODEL = tuple(f"_{name}" for name in METRICS)  # the other evaluated values are times and speeds
EXACT, SIMULATED, PAPER = "computed", "simulated", "paper"
PENS = {EXACT: (0, 0), SIMULATED: (5, 1), PAPER: (1, 1)}  # hue and dash
SHOWN_DEVIATIONS = 4  # of the Gaussian: scores beyond are too rare to be seen
WIDTH, BAR_INCHES, MARGIN_INCHES = 8.6, 0.42, 1.1  # of a figure of bars
BAR_HEIGHT = 0.38  # lines are 1 apart
ROOM = 0.22  # of the range of a panel, on each side with bars, for the numbers at their ends
# Light, so that a black whisker shows in grey too.
OUR_BAR: dict[str, Any] = {"facecolor": COLOURS[5], "edgecolor": COLOURS[0]}
PAPER_BAR: dict[str, Any] = {"facecolor": "white", "edgecolor": COLOURS[4], "hatch": "////"}
WHISKER: dict[str, Any] = {"capsize": 2, "error_kw": {"linewidth": 0.9}}

Floats = NDArray[np.float64]
Events = Sequence[Mapping[str, Any]]


@styled()
def draw_entropies(models: Mapping[str, tuple[Sequence[int], Mapping[str, Floats]]], x_label: str) -> "Figure":
    """Entropies of activations by layer or by training step: x, and tables of (x, ...), by the name of each model."""
    figure, panels = _panels([(title, "entropy, bits") for title in SITES.values()], x_label)
    for axes, site in zip(panels, SITES, strict=True):
        for hue, (name, (x, tables)) in enumerate(models.items()):
            _plot_mean(axes, name, x, tables[site], hue)
        most = max(1, math.ceil(max(tables[site].max() for _, tables in models.values())))  # levels have several bits
        axes.set_ylim(-0.04 * most, 1.04 * most)
        if x_label == "layer":
            axes.locator_params(axis="x", integer=True)
    return _with_legend(figure)


@styled()
def draw_directions(histories: Mapping[str, History]) -> "Figure":
    """Matching and mismatching steps of all heads and layers, by the name of each run: shares above, lengths below."""
    labels = [(title, label) for label in ("share of elements", "mean step") for title in THINGS.values()]
    figure, panels = _panels(labels, "training step", columns=len(THINGS))
    for above, below, thing in zip(panels, panels[len(THINGS) :], THINGS, strict=False):
        above.set_ylim(0, 1)
        for hue, (name, history) in enumerate(histories.items()):
            for dash, (way, words) in enumerate(WAYS.items()):
                share, margin = history.direction[thing][way], history.direction[thing][f"{way}_margin"]
                _plot(above, f"{name}, {words}", history.moves, share.mean(axis=(1, 2)), hue, dash)
                _plot(below, f"{name}, {words}", history.moves, mean_margin(share, margin), hue, dash)
    return _with_legend(figure)


def draw_losses(log: Events) -> "Figure":
    """The loss, each of its terms and the learning rate, a line for each stage."""
    names = dict.fromkeys(name for event in log for name in event if name.startswith("loss"))
    labels = {name: (name.removeprefix("loss_"), "loss") for name in names}
    return _draw_log(log, labels | {"learning_rate": ("learning rate", "per step")})


def metrics_of(log: Events) -> list[str]:
    """The names of the dev metrics in a log; empty before the first evaluation."""
    names = dict.fromkeys(name for event in log for name in event)
    return [name for name in names if name.startswith("eval_") and name.endswith(OF_THE_MODEL)]


def draw_metrics(log: Events) -> "Figure":
    """Every metric on the dev set, in percent."""
    return _draw_log(log, {name: (name.removeprefix("eval_"), "percent") for name in metrics_of(log)}, 100)


@styled()
def _draw_log(log: Events, labels: Mapping[str, tuple[str, str]], factor: float = 1) -> "Figure":
    figure, panels = _panels(list(labels.values()), "step")
    for axes, name in zip(panels, labels, strict=True):
        for hue, stage in enumerate(dict.fromkeys(event["stage"] for event in log)):
            points = curve(log, stage, name)
            if points:
                _plot(axes, stage, list(points), factor * np.array(list(points.values())), hue, hue)
    return _with_legend(figure)


@styled()
def draw_reliability(bins: Sequence[Bin]) -> "Figure":
    """Accuracy against score, a point for each bin, beside the diagonal; and the rows of each bin."""
    figure, (curve_of, counts) = _panels([("Reliability", "accuracy"), ("Rows by score", "rows")], "score", columns=2)
    least = bins[0].least
    _plot(curve_of, "this model", [one.score for one in bins], np.array([one.accuracy for one in bins]), 0, 0)
    curve_of.plot([least, 1], [least, 1], label="score = accuracy", color=COLOURS[4], linestyle="--", linewidth=1)
    counts.bar([one.least for one in bins], [one.rows for one in bins], 1 / BINS, align="edge", **OUR_BAR)
    for axes in (curve_of, counts):
        axes.set_xlim(least, 1)
    return _with_legend(figure)


@styled()
def draw_theory(found: Statements, models: Mapping[str, Floats]) -> "Figure":
    """The statements; `models` are shares of scores of trained models by name, (layers, D + 1), all of one D."""

    def plot(axes: "Axes", name: str, statement: str, x: str, y: str) -> None:
        rows = found[statement]
        _plot(axes, name, [row[x] for row in rows], np.array([row[y] for row in rows]), *PENS[name])

    size = next((table.shape[1] - 1 for table in models.values()), HEAD_SIZES[-1])
    labels = [
        ("Theorem 1: best threshold of a softmax", "threshold τ"),
        (f"Theorem 2: scores of {size} bits", "probability"),
        ("Theorem 3: wrong directions", "percent"),
        ("Attention weights, some zero", "entropy, bits"),
    ]
    figure, panels = _panels(labels, columns=2)
    thresholds, scores, directions, quantiles = panels
    thresholds.set(xlabel="keys k", xscale="log", yscale="log")
    plot(thresholds, SIMULATED, "theorem_1", "keys", "threshold")
    scores.set_xlabel("score")
    values = np.arange(-size, size + 1, 2)
    seen = np.abs(values) <= SHOWN_DEVIATIONS * np.sqrt(size)
    _plot(scores, EXACT, values[seen], score_probabilities(size)[seen], *PENS[EXACT])
    _plot(scores, f"Gaussian N(0, {size})", values[seen], gaussian_probabilities(size)[seen], 4, 3)
    for hue, (name, shares) in enumerate(models.items(), start=2):
        _plot_mean(scores, name, values[seen], shares[:, seen].T, hue)
    directions.set_xlabel("bits Q")
    plot(directions, EXACT, "theorem_3", "bits", "exact")
    plot(directions, PAPER, "theorem_3", "bits", "paper")
    quantiles.set_xlabel("zeros, percent")
    plot(quantiles, EXACT, "quantiles", "zeros_percent", "entropy")
    plot(quantiles, PAPER, "quantiles", "zeros_percent", "paper")
    return _with_legend(figure)


@styled()
def draw_bottlenecks(tasks: Mapping[str, Sequence[Effect]]) -> "Figure":
    """The changes of the baseline, a row of panels for each task by its name: structures kept, and terms left out."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not any(tasks.values()):
        raise BibertError("a figure of bottlenecks needs at least one change of the baseline; run one first")
    panels = {
        task: {change: [effect for effect in effects if effect.change == change] for change in CHANGES}
        for task, effects in tasks.items()
    }
    lines = [max(map(len, by_change.values())) for by_change in panels.values()]
    height = sum(MARGIN_INCHES + BAR_INCHES * count for count in lines)
    figure = Figure((WIDTH, height), layout="constrained")
    rows = figure.subplots(len(tasks), len(CHANGES), squeeze=False, height_ratios=lines)
    for places, count, (task, by_change) in zip(rows, lines, panels.items(), strict=True):
        for axes, (change, effects) in zip(places, by_change.items(), strict=True):
            axes.set_title(f"{task}: {CHANGES[change]}", fontsize="medium", loc="left")
            _draw_bars(axes, effects)
            axes.set_ylim(count - 0.5, -0.5)  # the first on top, and bars of one thickness in both panels
    handles = [
        Patch(**OUR_BAR, label="ours"),
        Patch(**PAPER_BAR, label="paper, where it prints a figure"),
        Line2D([], [], color="black", marker="|", linewidth=0.9, label="± one standard error of dev"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _draw_bars(axes: "Axes", effects: Sequence[Effect]) -> None:
    axes.margins(x=ROOM)  # for the numbers; bars stick to 0, so a side without any gets none
    for place, effect in enumerate(effects):
        aside = BAR_HEIGHT / 2 if effect.ours and effect.paper else 0.0
        for bar, middle, style in ((effect.ours, place - aside, OUR_BAR), (effect.paper, place + aside, PAPER_BAR)):
            if bar is not None:
                drawn = axes.barh(middle, bar.points, BAR_HEIGHT, xerr=bar.error, linewidth=0.9, **WHISKER, **style)
                number = f"{bar.points:+.1f}".replace("-", "−")
                axes.bar_label(drawn, [number], padding=4, fontsize="small")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(effects)), [LABELS[effect.change].get(effect.what, effect.what) for effect in effects])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("points of accuracy, against the baseline")


def _panels(labels: Sequence[tuple[str, str]], x_label: str = "", columns: int = 3) -> "tuple[Figure, list[Axes]]":
    """A panel for each title and label of y, row by row; x is labelled in the last panel of each column."""
    from matplotlib.figure import Figure

    columns = min(columns, len(labels))
    rows = -(-len(labels) // columns)
    figure = Figure((PANEL[0] * columns, PANEL[1] * rows + 0.4), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for place, (axes, (title, y_label)) in enumerate(zip(panels, labels, strict=False)):
        axes.set_title(title, fontsize="medium", loc="left")
        axes.set(ylabel=y_label, xlabel=x_label if place + columns >= len(labels) else "", axisbelow=True)
        axes.grid(visible=True, **GRID)
    for axes in panels[len(labels) :]:
        axes.set_axis_off()
    return figure, panels[: len(labels)]


def _plot_mean(axes: "Axes", name: str, x: Sequence[int], table: Floats, hue: int) -> None:
    """(x, ...) as a line with its band."""
    flat = table.reshape(len(table), -1)
    axes.fill_between(x, flat.min(axis=1), flat.max(axis=1), color=COLOURS[hue % len(COLOURS)], alpha=0.15, linewidth=0)
    _plot(axes, name, x, flat.mean(axis=1), hue, hue)


def _plot(axes: "Axes", name: str, x: Sequence[float], y: Floats, hue: int, dash: int) -> None:
    axes.plot(
        x,
        y,
        label=name,
        color=COLOURS[hue % len(COLOURS)],
        linestyle=LINES[dash % len(LINES)],
        marker=MARKERS[hue % len(MARKERS)],
        markevery=max(1, len(x) // MOST_MARKS),
        markersize=3.5,
        linewidth=1.5,
    )


def _with_legend(figure: "Figure") -> "Figure":
    """One legend for all panels, above them, if there is more than one name."""
    names: dict[str, Any] = {}
    for axes in figure.axes:
        for line in axes.lines:
            names.setdefault(str(line.get_label()), line)
    if len(names) > 1:
        handles = list(names.values())
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(names), 4), frameon=False)
    return figure

"""Charts: entropies, trainings and the paper's theorems as lines, directions as dots, bottlenecks as bars.

A line may have a band around it, from the least to the greatest of the values whose mean it is. Bars of ours are
filled, the paper's hatched; whiskers are one standard error of the dev set. Titles are computed from what is drawn.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.data.glue import TASKS
from bibert.data.metrics import BINS, METRICS, Bin
from bibert.errors import BibertError
from bibert.lab import theory
from bibert.lab.direction import towards
from bibert.lab.plots.style import COLOURS, FAINT, INK, LINES, MARKERS, styled, titled
from bibert.lab.record import History, curve
from bibert.lab.tables import Cell, Effect
from bibert.lab.theory import HEAD_SIZES, Statements, share_attended_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PANEL_HEIGHT = 9.3, 2.3  # inches
MOST_MARKS = 12  # points of a line up to which each has a mark
APART = 0.1  # between the names at the ends of lines, as a share of the height
FLAT = 0.05  # a panel whose means differ by less, as a share of the greatest entropy, is left out
LABELS: dict[str, dict[str, str]] = tomllib.loads(
    resources.files(__package__).joinpath("labels.toml").read_text(encoding="utf-8")
)
SITES, THINGS, CHANGES, THEORY = (LABELS[name] for name in ("sites", "things", "changes", "theory"))
OF_THE_MODEL = tuple(f"_{name}" for name in METRICS)  # the other evaluated values are times and speeds
SHOWN_DEVIATIONS = 4  # of the Gaussian: scores beyond are too rare to be seen
BAR_INCHES, MARGIN_INCHES = 0.42, 1.3  # of a figure of bars
BAR_HEIGHT = 0.38  # lines are 1 apart
ROOM = 0.22  # of the range of a panel, on each side with bars, for the numbers at their ends
# Light, so that a dark whisker shows in grey too.
OUR_BAR: dict[str, Any] = {"facecolor": COLOURS[5], "edgecolor": COLOURS[0]}
PAPER_BAR: dict[str, Any] = {"facecolor": "none", "edgecolor": COLOURS[4], "hatch": "////"}
WHISKER: dict[str, Any] = {"capsize": 2, "error_kw": {"linewidth": 0.9, "ecolor": INK}}
RING: dict[str, Any] = {"facecolor": "none", "edgecolor": COLOURS[1], "linewidth": 1.5, "zorder": 3}

Floats = NDArray[np.float64]
Events = Sequence[Mapping[str, Any]]


class Band(NamedTuple):
    """A mean and what it is the mean of, at each place along x."""

    mean: Floats
    least: Floats
    greatest: Floats


def bands(tables: Mapping[str, Floats]) -> dict[str, Band]:
    """Tables of (x, ...) as bands."""
    flat = {name: table.reshape(len(table), -1) for name, table in tables.items()}
    return {name: Band(one.mean(axis=1), one.min(axis=1), one.max(axis=1)) for name, one in flat.items()}


@styled()
def draw_entropies(models: Mapping[str, tuple[Sequence[int], Mapping[str, Band]]], x_label: str) -> "Figure":
    """Entropies of activations by layer or by training step: x and bands of each activation, by the name of a model."""
    means = {site: np.concatenate([tables[site].mean for _, tables in models.values()]) for site in SITES}
    greatest = {site: max(tables[site].greatest.max() for _, tables in models.values()) for site in SITES}
    most = {site: max(1, math.ceil(value)) for site, value in greatest.items()}  # levels have several bits
    flat = [site for site in SITES if np.ptp(means[site]) < FLAT * most[site]]
    sites = [site for site in SITES if site not in flat] or list(SITES)
    figure, panels = _panels([SITES[site] for site in sites], x_label)
    for axes, site in zip(panels, sites, strict=True):
        axes.set_ylim(-0.04 * most[site], 1.04 * most[site])
        for hue, (name, (x, tables)) in enumerate(models.items()):
            _plot_band(axes, name, x, tables[site], hue)
        if x_label == "layer":
            axes.locator_params(axis="x", integer=True)
        if len(models) > 1:
            _name_lines(axes)
    shown = np.s_[-1:] if x_label == "step" else np.s_[:]  # the end of a training, or all layers
    ends = {
        site: {name: float(tables[site].mean[shown].mean()) for name, (_, tables) in models.items()} for site in SITES
    }
    if len(models) > 1:
        site = max(SITES, key=lambda one: max(ends[one].values()) - min(ends[one].values()))
        finding = ", ".join(f"{bits:.2f} bits in {name}" for name, bits in ends[site].items())
    else:
        site = min(SITES, key=lambda one: min(ends[one].values()))
        finding = f"the least entropy, {min(ends[site].values()):.2f} bits"
    finding += " at the end" if x_label == "step" else " over all layers"
    left_out = [f"{SITES[one]} ({means[one].mean():.2f})" for one in flat if one not in sites]
    note = f"; nearly constant, not shown: {', '.join(left_out)}" if left_out else ""
    return titled(figure, f"{_capital(SITES[site])}: {finding}", f"entropy in bits; bands span all heads{note}")


@styled()
def draw_directions(histories: Mapping[str, History]) -> "Figure":
    """How often what moved moved towards the teacher, by the name of each run: the mean, and every look as a tick."""
    from matplotlib.figure import Figure

    rows = len(THINGS) * len(histories)
    figure = Figure((WIDTH, 1.5 + 0.26 * rows), layout="constrained")
    axes = figure.subplots()
    shares = {thing: {name: 100 * towards(one.direction[thing]) for name, one in histories.items()} for thing in THINGS}
    for place, (thing, by_run) in enumerate(shares.items()):
        for hue, (name, looks) in enumerate(by_run.items()):
            y, colour = place + 0.26 * (hue - (len(histories) - 1) / 2), COLOURS[hue % len(COLOURS)]
            axes.scatter(looks, [y] * len(looks), 40, marker="|", color=colour, alpha=0.35, linewidth=1)
            face = colour if thing in histories[name].asked else "none"
            marker = MARKERS[hue % len(MARKERS)]
            axes.scatter([looks.mean()], [y], 46, marker=marker, facecolor=face, edgecolor=colour, zorder=3)
            words: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "color": colour}
            axes.text(1.01, y, f"{name} {looks.mean():.0f} %", **words)
    axes.axvline(50, color=FAINT, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(THINGS)), THINGS.values(), color=INK)
    axes.set(ylim=(len(THINGS) - 0.5, -0.5), xlabel="of what moved, percent that moved towards the teacher")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    means = {thing: [looks.mean() for looks in by_run.values()] for thing, by_run in shares.items()}
    most = max(THINGS, key=lambda one: np.ptp(means[one]) if len(histories) > 1 else means[one][0])
    finding = ", ".join(f"{mean:.0f} % in {name}" for name, mean in zip(histories, means[most], strict=True))
    note = "filled: distilled by the scheme; open: not. Ticks are single looks, 50 % is chance"
    return titled(figure, f"{_capital(THINGS[most])}, towards the teacher: {finding}", note)


def draw_losses(log: Events) -> "Figure":
    """The loss and each of its terms, a line for each stage."""
    names = dict.fromkeys(name for event in log for name in event if name.startswith("loss"))
    return _draw_log(log, {name: name.removeprefix("loss_").replace("_", " ") for name in names}, "from {} to {}")


def metrics_of(log: Events) -> list[str]:
    """The names of the dev metrics in a log; empty before the first evaluation."""
    names = dict.fromkeys(name for event in log for name in event)
    return [name for name in names if name.startswith("eval_") and name.endswith(OF_THE_MODEL)]


def draw_metrics(log: Events) -> "Figure":
    """Every metric on the dev set, in percent."""
    names = {name: f"{name.removeprefix('eval_').replace('_', ' ')}, percent" for name in metrics_of(log)}
    return _draw_log(log, names, "from {} to {}", 100)


@styled()
def _draw_log(log: Events, titles: Mapping[str, str], finding: str, factor: float = 1) -> "Figure":
    figure, panels = _panels(list(titles.values()), "step")
    ends: list[float] = []
    for axes, name in zip(panels, titles, strict=True):
        stages = list(dict.fromkeys(event["stage"] for event in log))
        for hue, stage in enumerate(stages):
            if points := curve(log, stage, name):
                values = factor * np.array(list(points.values()))
                _plot(axes, stage, list(points), values, hue)
                ends = ends or [values[0]]
                ends[1:] = [values[-1]] if name == next(iter(titles)) else ends[1:]
        if len(stages) > 1:
            _name_lines(axes)
    return titled(figure, f"{_capital(next(iter(titles.values())))}: {finding.format(*(f'{end:.3g}' for end in ends))}")


@styled()
def draw_reliability(bins: Sequence[Bin]) -> "Figure":
    """Accuracy against score, a dot for each bin, beside the diagonal; and the rows of each bin."""
    figure, (curve_of, counts) = _panels(["accuracy of rows with this score", "rows with this score"], "score")
    least, rows = bins[0].least, [one.rows for one in bins]
    sizes = [12 + 120 * one.rows / max(rows) for one in bins]
    curve_of.plot([least, 1], [least, 1], color=FAINT, linestyle="--", linewidth=1)
    score, accuracy = ([getattr(one, name) for one in bins] for name in ("score", "accuracy"))
    curve_of.scatter(score, accuracy, sizes, color=COLOURS[0], zorder=3)
    counts.bar([one.least for one in bins], rows, 0.92 / BINS, align="edge", **OUR_BAR)
    for axes in (curve_of, counts):
        axes.set_xlim(least - 0.02, 1.02)
    means = [100 * float(np.average(values, weights=rows)) for values in (score, accuracy)]
    words = "too sure" if means[0] > means[1] + 1 else "too modest" if means[0] < means[1] - 1 else "trustworthy"
    finding = f"Scores are {words}: {means[0]:.1f} % on average, {means[1]:.1f} % of answers are right"
    return titled(figure, finding, "dashed: as sure as right")


@styled()
def draw_theory(found: Statements, models: Mapping[str, Floats]) -> "Figure":
    """The statements; `models` are shares of scores of trained models by name, (layers, D + 1), all of one D."""

    def column(statement: str, name: str) -> Floats:
        return np.array([row[name] for row in found[statement]])

    size = next((table.shape[1] - 1 for table in models.values()), HEAD_SIZES[-1])
    figure, panels = _panels([words.format(size=size) for words in THEORY.values()])
    thresholds, shifts, scores, directions, signs, quantiles = panels
    labels = ("keys k", "keys k", "score", "bits Q", "mean / deviation", "zeros, percent")
    for axes, label in zip(panels, labels, strict=True):
        axes.set_xlabel(label)
    keys = column("theorem_1", "keys")
    for axes in (thresholds, shifts):
        axes.set_xscale("log", base=2)
        axes.set_xticks(keys[::2], [str(k) for k in keys[::2]])
    _plot(thresholds, "best τ for each k", keys, column("theorem_1", "entropy"), 0)
    _plot(thresholds, f"τ of k = {keys[0]}", keys, column("theorem_1", "entropy_of_first"), 1)
    mean, deviation = column("proposition_2", "mean_phi"), column("proposition_2", "deviation_of_phi")
    _plot_band(shifts, "", keys, Band(mean, mean - deviation, mean + deviation), 2)
    values = np.arange(-size, size + 1, 2)
    seen = np.abs(values) <= SHOWN_DEVIATIONS * np.sqrt(size)
    random = theory.score_probabilities(size)
    scores.bar(values[seen], random[seen], 1.5, color=COLOURS[5], label="random bits")
    scores.plot(values[seen], theory.gaussian_probabilities(size)[seen], color=INK, linewidth=1, label=f"N(0, {size})")
    for hue, (name, shares) in enumerate(models.items(), start=1):
        _plot_band(scores, name, values[seen], bands({name: shares[:, seen].T})[name], hue, marks=False)
    bits = column("theorem_3", "bits")
    _plot(directions, "computed", bits, column("theorem_3", "exact"), 0)
    directions.scatter(bits, column("theorem_3", "paper"), 60, label="paper", **RING)
    floor = column("theorem_3", "of_it_saturation")[0]
    directions.axhline(floor, color=FAINT, linewidth=1, linestyle="--", label="saturation alone")
    means = np.linspace(0, 3, 61)
    _plot(signs, "", means, np.array([theory.sign_entropy(mean) for mean in means]), 0)
    percent = np.linspace(1, 99, 99)
    _plot(quantiles, "computed", percent, np.array([theory.binary_entropy(one / 100) for one in percent]), 0)
    quantiles.scatter(column("quantiles", "zeros_percent"), column("quantiles", "paper"), 60, label="paper", **RING)
    places = {thresholds: "center right", scores: "upper right", directions: "upper right", quantiles: "lower center"}
    for axes, place in places.items():
        axes.legend(loc=place, frameon=False, fontsize="small", handlelength=1.4)
    scores.set_xlim(values[seen][0] - 2, values[seen][-1] * 1.9)  # room for the names
    if models:
        trained = " and ".join(f"{100 * share_attended_to(t.mean(axis=0)):.0f} % in {n}" for n, t in models.items())
        return titled(figure, f"Scores of 0 or more: {trained}, {100 * share_attended_to(random):.0f} % of random bits")
    one, four = (found["theorem_3"][place]["exact"] for place in (0, 3))
    return titled(figure, f"1 bit moves the wrong way in {one:.1f} % of cases, {one / four:.1f} × as often as 4 bits")


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
            axes.set_title(f"{task}: {CHANGES[change]}")
            _draw_bars(axes, effects)
            axes.set_ylim(count - 0.5, -0.5)  # the first on top, and bars of one thickness in both panels
    handles = [
        Patch(**OUR_BAR, label="ours"),
        Patch(**PAPER_BAR, label="paper, where it prints a figure"),
        Line2D([], [], color=INK, marker="|", linewidth=0.9, label="± one standard error of dev"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)
    drawn = [(one.ours or one.paper, one, task) for task, effects in tasks.items() for one in effects]
    most, one, task = max(drawn, key=lambda bar: abs(bar[0].points if bar[0] else 0))
    what = f"{_name_of(one)} {'in full precision' if one.change == 'kept' else 'not distilled'}"
    return titled(figure, f"The largest effect: {what}, {_points(most.points if most else 0)} points on {task}")


@styled()
def draw_starts(cells: Sequence[Cell]) -> "Figure":
    """Every evaluation of students that differ in their start: a row for each task, a panel for each scheme."""
    from matplotlib.figure import Figure

    tasks, schemes = (list(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in ("task", "scheme"))
    if not any(cell.start for cell in cells):
        raise BibertError("a figure of starts needs a student that was not made from its teacher; run one with --start")
    figure = Figure((WIDTH, PANEL_HEIGHT * len(tasks) + 0.6), layout="constrained")
    panels = figure.subplots(len(tasks), len(schemes), squeeze=False)
    ahead = 0
    for row, task in zip(panels, tasks, strict=True):
        for axes, scheme in zip(row, schemes, strict=True):
            axes.set_title(f"{TASKS[task].name}, {scheme}")
            runs = [cell for cell in cells if (cell.task, cell.scheme) == (task, scheme)]
            for hue, cell in enumerate(sorted(runs, key=lambda cell: cell.start)):
                steps, values = zip(*cell.evaluations, strict=True)
                _plot(axes, cell.start.strip("`") or "its teacher", steps, 100 * np.array(values), hue)
            if runs:
                _name_lines(axes)
            ahead += best_of_starts(runs, other=True) > best_of_starts(runs, other=False)
    panels[-1][0].set_xlabel("step")
    return titled(figure, f"Another start than the teacher is ahead in {ahead} of {panels.size} cases")


def best_of_starts(runs: Sequence[Cell], *, other: bool) -> float:
    """The best score of students that were made from their teacher, or from another model; -inf without any."""
    return max((cell.score for cell in runs if bool(cell.start) == other), default=-math.inf)


def _name_of(effect: Effect) -> str:
    return LABELS[effect.change].get(effect.what, effect.what)


def _points(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def _draw_bars(axes: "Axes", effects: Sequence[Effect]) -> None:
    axes.margins(x=ROOM)  # for the numbers; bars stick to 0, so a side without any gets none
    for place, effect in enumerate(effects):
        aside = BAR_HEIGHT / 2 if effect.ours and effect.paper else 0.0
        for bar, middle, style in ((effect.ours, place - aside, OUR_BAR), (effect.paper, place + aside, PAPER_BAR)):
            if bar is not None:
                drawn = axes.barh(middle, bar.points, BAR_HEIGHT, xerr=bar.error, linewidth=0.9, **WHISKER, **style)
                axes.bar_label(drawn, [_points(bar.points)], padding=4, fontsize="small")
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(effects)), [_name_of(effect) for effect in effects], color=INK)
    axes.set_xlabel("points of accuracy, against the baseline")
    axes.grid(visible=False)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _panels(titles: Sequence[str], x_label: str = "") -> "tuple[Figure, list[Axes]]":
    """A panel for each title, row by row."""
    from matplotlib.figure import Figure

    columns = 2 if len(titles) in (2, 4) else 3
    rows = -(-len(titles) // columns)
    figure = Figure((WIDTH, PANEL_HEIGHT * rows + 0.6), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(title)
        axes.set_xlabel(x_label)
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    return figure, panels[: len(titles)]


def _plot_band(axes: "Axes", name: str, x: Any, band: Band, hue: int, *, marks: bool = True) -> None:
    axes.fill_between(x, band.least, band.greatest, color=COLOURS[hue % len(COLOURS)], alpha=0.15, linewidth=0)
    _plot(axes, name, x, band.mean, hue, marks=marks)


def _plot(axes: "Axes", name: str, x: Any, y: Floats, hue: int, *, marks: bool = True) -> None:
    marker = MARKERS[hue % len(MARKERS)] if marks and len(x) <= MOST_MARKS else ""
    axes.plot(x, y, label=name, color=COLOURS[hue % len(COLOURS)], linestyle=LINES[hue % len(LINES)], marker=marker)


def _name_lines(axes: "Axes") -> None:
    """Write the name of each line at its right end, the names apart from each other."""
    to_share = axes.transScale + axes.transLimits
    last = [np.asarray(line.get_xydata())[-1] for line in axes.lines]
    ends = sorted((float(to_share.transform(point)[1]), place) for place, point in enumerate(last))
    heights: list[float] = []
    for height, _ in ends:
        heights.append(max(height, heights[-1] + APART) if heights else height)
    for place in range(len(heights) - 1, -1, -1):  # from above, so that none leaves the panel
        heights[place] = min(heights[place], heights[place + 1] - APART if place + 1 < len(heights) else 1.0)
    for height, (_, place) in zip(heights, ends, strict=True):
        line = axes.lines[place]
        words: dict[str, Any] = {"transform": axes.transAxes, "color": line.get_color(), "va": "center"}
        axes.text(1.02, height, str(line.get_label()), fontsize="small", **words)

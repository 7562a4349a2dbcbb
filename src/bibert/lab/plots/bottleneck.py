"""Bars for the bottlenecks of the baseline: one structure in full precision on the left, one term less on the right.

A row of panels for each task. Our bars are filled, the paper's hatched; whiskers are one standard error of the dev set.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bibert.errors import BibertError
from bibert.lab.plots.style import COLOURS, styled
from bibert.lab.tables import KEPT, WITHOUT, Difference, Effect

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {KEPT: "one structure in full precision", WITHOUT: "one distillation term left out"}
NAMES = {
    (KEPT, "mha"): "MHA",
    (WITHOUT, "attention"): "attention scores",
    (WITHOUT, "mha"): "MHA output",
    (WITHOUT, "hidden"): "hidden states",
    (WITHOUT, "prediction"): "logits",
}
WIDTH, BAR_INCHES, MARGIN_INCHES = 8.6, 0.42, 1.1
HEIGHT = 0.38  # of a bar; lines are 1 apart
ROOM = 0.22  # of the range of a panel, on each side with bars, for the numbers at their ends
OURS: dict[str, Any] = {"facecolor": COLOURS[5], "edgecolor": COLOURS[0]}  # light, so a black whisker shows in grey too
PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": COLOURS[4], "hatch": "////"}


@styled()
def draw_bottlenecks(tasks: Mapping[str, Sequence[Effect]]) -> "Figure":
    """Draw the changes of the baseline, by the name of each task."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not any(tasks.values()):
        raise BibertError("a figure of bottlenecks needs at least one change of the baseline; run one first")
    panels = {
        task: {change: [effect for effect in effects if effect.change == change] for change in TITLES}
        for task, effects in tasks.items()
    }
    lines = [max(map(len, by_change.values())) for by_change in panels.values()]
    height = sum(MARGIN_INCHES + BAR_INCHES * count for count in lines)
    figure = Figure((WIDTH, height), layout="constrained")
    rows = figure.subplots(len(tasks), len(TITLES), squeeze=False, height_ratios=lines)
    for places, count, (task, by_change) in zip(rows, lines, panels.items(), strict=True):
        for axes, (change, effects) in zip(places, by_change.items(), strict=True):
            _draw_panel(axes, f"{task}: {TITLES[change]}", effects)
            axes.set_ylim(count - 0.5, -0.5)  # the first on top, and bars of one thickness in both panels
    handles = [
        Patch(**OURS, label="ours"),
        Patch(**PAPER, label="paper, where it prints a figure"),
        Line2D([], [], color="black", marker="|", linewidth=0.9, label="± one standard error of dev"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _draw_panel(axes: "Axes", title: str, effects: Sequence[Effect]) -> None:
    axes.set_title(title, fontsize="medium", loc="left")
    for place, effect in enumerate(effects):
        aside = HEIGHT / 2 if effect.ours and effect.paper else 0.0
        if effect.ours is not None:
            _draw_bar(axes, place - aside, effect.ours, OURS)
        if effect.paper is not None:
            _draw_bar(axes, place + aside, effect.paper, PAPER)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(effects)), [NAMES.get((effect.change, effect.what), effect.what) for effect in effects])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("points of accuracy, against the baseline")
    axes.set_xlim(*_limits([bar for effect in effects for bar in (effect.ours, effect.paper) if bar is not None]))


def _draw_bar(axes: "Axes", place: float, bar: Difference, style: dict[str, Any]) -> None:
    axes.barh(place, bar.points, HEIGHT, linewidth=0.9, **style)
    axes.errorbar(bar.points, place, xerr=bar.error, color="black", linewidth=0.9, capsize=2)
    outwards = 1 if bar.points >= 0 else -1
    axes.annotate(
        f"{bar.points:+.1f}".replace("-", "−"),
        (bar.points + outwards * bar.error, place),
        xytext=(4 * outwards, 0),
        textcoords="offset points",
        ha="left" if outwards > 0 else "right",
        va="center",
        fontsize="small",
    )


def _limits(bars: Sequence[Difference]) -> tuple[float, float]:
    """Room for every bar, its whisker and its number; little on a side without bars."""
    low = min([0.0, *(bar.points - bar.error for bar in bars)])
    high = max([0.0, *(bar.points + bar.error for bar in bars)])
    spread = max(high - low, 1.0)
    falls, rises = any(bar.points < 0 for bar in bars), any(bar.points >= 0 for bar in bars)
    return low - spread * (ROOM if falls else 0.05), high + spread * (ROOM if rises else 0.05)

"""Bars for the bottlenecks of the baseline: one structure in full precision on the left, one term less on the right.

A row of panels for each task. Our bars are filled, the paper's hatched; whiskers are one standard error of the dev set.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bibert.errors import BibertError
from bibert.lab.plots.style import COLOURS, styled
from bibert.lab.tables import KEPT, WITHOUT, Effect

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
WHISKER: dict[str, Any] = {"capsize": 2, "error_kw": {"linewidth": 0.9}}


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
            axes.set_title(f"{task}: {TITLES[change]}", fontsize="medium", loc="left")
            _draw_bars(axes, effects)
            axes.set_ylim(count - 0.5, -0.5)  # the first on top, and bars of one thickness in both panels
    handles = [
        Patch(**OURS, label="ours"),
        Patch(**PAPER, label="paper, where it prints a figure"),
        Line2D([], [], color="black", marker="|", linewidth=0.9, label="± one standard error of dev"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _draw_bars(axes: "Axes", effects: Sequence[Effect]) -> None:
    axes.margins(x=ROOM)  # for the numbers; bars stick to 0, so a side without any gets none
    for place, effect in enumerate(effects):
        aside = HEIGHT / 2 if effect.ours and effect.paper else 0.0
        for bar, middle, style in ((effect.ours, place - aside, OURS), (effect.paper, place + aside, PAPER)):
            if bar is not None:
                drawn = axes.barh(middle, bar.points, HEIGHT, xerr=bar.error, linewidth=0.9, **WHISKER, **style)
                number = f"{bar.points:+.1f}".replace("-", "−")
                axes.bar_label(drawn, [number], padding=4, fontsize="small")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(effects)), [NAMES.get((effect.change, effect.what), effect.what) for effect in effects])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("points of accuracy, against the baseline")

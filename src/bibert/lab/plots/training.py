"""A training as figures: every loss term, the learning rate and the dev metrics, as the log of a run has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from bibert.data.metrics import METRICS
from bibert.lab.history import curve
from bibert.lab.plots.curves import Line, Panel, draw_panels

Events = Sequence[Mapping[str, Any]]
LOSS, LEARNING_RATE, METRIC = "loss", "learning_rate", "eval_"
OF_THE_MODEL = tuple(f"_{name}" for name in METRICS)  # other things that are evaluated are times and speeds


def draw_losses(log: Events) -> Figure:
    """The loss, each of its terms and the learning rate, a line for each stage."""
    names = [name for name in _names(log) if name.startswith(LOSS)]
    panels = [Panel(name.removeprefix(f"{LOSS}_"), _lines(log, name), "loss") for name in names]
    panels.append(Panel("learning rate", _lines(log, LEARNING_RATE), "per step"))
    return draw_panels(panels, "step")


def draw_metrics(log: Events) -> Figure:
    """Every metric on the dev set, in percent."""
    panels = [Panel(name.removeprefix(METRIC), _lines(log, name, 100), "percent") for name in _metrics(log)]
    return draw_panels(panels, "step")


def has_metrics(log: Events) -> bool:
    """Whether the dev set was read at least once."""
    return bool(_metrics(log))


def _metrics(log: Events) -> list[str]:
    return [name for name in _names(log) if name.startswith(METRIC) and name.endswith(OF_THE_MODEL)]


def _names(log: Events) -> list[str]:
    return list(dict.fromkeys(name for event in log for name in event))


def _lines(log: Events, name: str, factor: float = 1) -> list[Line]:
    lines = []
    for hue, stage in enumerate(dict.fromkeys(event["stage"] for event in log)):
        points = curve(log, stage, name)
        if points:
            lines.append(Line(stage, list(points), [factor * value for value in points.values()], hue, hue))
    return lines

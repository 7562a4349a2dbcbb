"""Directions as a figure: how much moved towards the teacher, how much away from it, and how far, through training.

One column for the attention scores and one for the similarity matrices of queries, keys and values each; shares in
the upper row, mean lengths of steps in the lower one. Drawing is in `curves`.
"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from bibert.lab.history import History
from bibert.lab.movement import mean_margin
from bibert.lab.plots.curves import Line, Panel, draw_panels

TITLES: Mapping[str, str] = {
    "scores": "attention scores",
    "query": "similarity of queries",
    "key": "similarity of keys",
    "value": "similarity of values",
}
WAYS: Mapping[str, str] = {"matching": "towards the teacher", "mismatching": "away"}


def draw_directions(histories: Mapping[str, History]) -> Figure:
    """Matching and mismatching steps through training, of all heads and layers together, by the name of each run."""
    shares = [
        Panel(title, _lines(histories, thing, False), "share of elements", limits=(0, 1))
        for thing, title in TITLES.items()
    ]
    steps = [Panel(title, _lines(histories, thing, True), "mean step") for thing, title in TITLES.items()]
    return draw_panels([*shares, *steps], "training step", columns=len(TITLES))


def _lines(histories: Mapping[str, History], thing: str, steps: bool) -> list[Line]:
    lines = []
    for hue, (name, history) in enumerate(histories.items()):
        for dash, (way, words) in enumerate(WAYS.items()):
            share, margin = history.direction[thing][way], history.direction[thing][f"{way}_margin"]
            values = mean_margin(share, margin) if steps else share.mean(axis=(1, 2))
            lines.append(Line(f"{name}, {words}", history.moves, values.tolist(), hue, dash))
    return lines

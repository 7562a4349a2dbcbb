"""Directions as a figure: how much of what distillation asks for moved as asked, and by how much, through training.

One column for the attention scores and one for the similarity matrices of queries, keys and values each; shares in
the upper row, mean lengths of steps in the lower one. Drawing is in `curves`.
"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from bibert.analysis.history import History
from bibert.analysis.plots.curves import Line, Panel, draw_panels

TITLES: Mapping[str, str] = {
    "scores": "attention scores",
    "query": "similarity of queries",
    "key": "similarity of keys",
    "value": "similarity of values",
}
ROWS: Mapping[str, tuple[str, str]] = {  # what the two lines of a run are
    "share of elements": ("matching", "mismatching"),
    "mean step": ("matching_margin", "mismatching_margin"),
}
WAYS = ("as asked", "the other way")


def draw_directions(histories: Mapping[str, History]) -> Figure:
    """Matching and mismatching steps through training, means over all heads and layers, by the name of each run."""
    panels = []
    for label, fields in ROWS.items():
        for thing, title in TITLES.items():
            lines = [
                Line(
                    f"{name}, {way}",
                    history.moves,
                    history.direction[thing][field].mean(axis=(1, 2)).tolist(),
                    hue,
                    dash,
                    dots=len(history.moves) <= 12,
                )
                for hue, (name, history) in enumerate(histories.items())
                for dash, (way, field) in enumerate(zip(WAYS, fields, strict=True))
                if thing in history.direction
            ]
            panels.append(Panel(title, lines, label))
    return draw_panels(panels, "step", columns=len(TITLES))

"""Entropies as figures: through training, a line for each run, or through the layers, a line for each model.

A line is the mean over what a panel has (heads, and layers if x is the step); its band reaches from the least head to
the greatest. Drawing is in `curves`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bibert.lab.entropy import Entropies
from bibert.lab.history import History
from bibert.lab.plots.curves import Line, Panel, draw_panels

TITLES: Mapping[str, str] = {
    "query": "queries",
    "key": "keys",
    "value": "values",
    "attention": "attention weights",
    "context": "context",
    "ffn_hidden": "inside the FFN",
}
LIMITS = (-0.04, 1.04)
Y_LABEL = "entropy, bits"


def draw_history(histories: Mapping[str, History]) -> Figure:
    """Entropies of the activations through training, by the name of each run."""
    panels = [
        Panel(
            title,
            [
                _line(name, history.steps, history.entropy[site], hue)
                for hue, (name, history) in enumerate(histories.items())
                if site in history.entropy
            ],
            Y_LABEL,
            LIMITS,
        )
        for site, title in TITLES.items()
    ]
    return draw_panels(panels, "step")


def draw_models(models: Mapping[str, Entropies]) -> Figure:
    """Entropies of the activations layer by layer, by the name of each model."""
    panels = []
    for site, title in TITLES.items():
        tables = {name: {**found.heads, **found.layers}[site] for name, found in models.items()}
        lines = [_line(name, range(len(table)), table, hue) for hue, (name, table) in enumerate(tables.items())]
        panels.append(Panel(title, lines, Y_LABEL, LIMITS))
    return draw_panels(panels, "layer", whole_steps=True)


def _line(name: str, x: Sequence[float], table: NDArray[np.float64], hue: int) -> Line:
    """(x, ...) to a line with its band."""
    flat = table.reshape(len(table), -1)
    band = (flat.min(axis=1).tolist(), flat.max(axis=1).tolist())
    return Line(name, list(x), flat.mean(axis=1).tolist(), hue, hue, band)

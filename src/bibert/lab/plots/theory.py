"""The paper's theorems as one figure: the numbers of `theory`, and scores of trained models (`scores`) over them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bibert.lab.paper import DIRECTION_ERROR, QUANTILES, zeros_percent
from bibert.lab.plots.curves import Line, Panel, draw_panels
from bibert.lab.theory import (
    SoftmaxThreshold,
    binary_entropy,
    direction_error,
    gaussian_probabilities,
    score_probabilities,
)

EXACT, SIMULATED, PAPER = "computed", "simulated", "paper"
SHOWN_DEVIATIONS = 4  # of the Gaussian: scores beyond are too rare to be seen


def draw_theory(
    thresholds: Sequence[SoftmaxThreshold], head_size: int, models: Mapping[str, NDArray[np.float64]]
) -> Figure:
    """Four panels: Theorems 1, 2 and 3, and the entropy of the quantile sweep.

    Args:
        thresholds: Theorem 1, as simulated.
        head_size: D of Theorem 2.
        models: the shares of scores of trained models with heads of that size, by name, (layers, D + 1).
    """
    return draw_panels([_softmax(thresholds), _scores(head_size, models), _directions(), _quantiles()], columns=2)


def _softmax(thresholds: Sequence[SoftmaxThreshold]) -> Panel:
    line = Line(SIMULATED, [one.keys for one in thresholds], [one.threshold for one in thresholds], 5, 1)
    return Panel("Theorem 1: best threshold of a softmax", [line], "threshold τ", x_label="keys k", log="xy")


def _scores(size: int, models: Mapping[str, NDArray[np.float64]]) -> Panel:
    scores = np.arange(-size, size + 1, 2)
    seen = np.abs(scores) <= SHOWN_DEVIATIONS * np.sqrt(size)
    x = scores[seen].tolist()
    lines = [
        Line(EXACT, x, score_probabilities(size)[seen].tolist(), 0, 0),
        Line(f"Gaussian N(0, {size})", x, gaussian_probabilities(size)[seen].tolist(), 4, 3),
    ]
    for number, (name, shares) in enumerate(models.items()):
        low, high = shares[:, seen].min(axis=0).tolist(), shares[:, seen].max(axis=0).tolist()
        lines.append(Line(name, x, shares[:, seen].mean(axis=0).tolist(), 2 + number, 2 + number, (low, high)))
    return Panel(f"Theorem 2: scores of {size} bits", lines, "probability", x_label="score")


def _directions() -> Panel:
    bits = list(range(1, len(DIRECTION_ERROR) + 1))
    exact = [100 * direction_error(count) for count in bits]
    lines = [Line(EXACT, bits, exact, 0, 0), Line(PAPER, bits, list(DIRECTION_ERROR), 1, 1)]
    return Panel("Theorem 3: wrong directions", lines, "percent", x_label="bits Q")


def _quantiles() -> Panel:
    shares = [zeros_percent(row) for row in QUANTILES.rows]
    lines = [
        Line(EXACT, shares, [binary_entropy(share / 100) for share in shares], 0, 0),
        Line(PAPER, shares, [float(row.entropy or 0) for row in QUANTILES.rows], 1, 1),
    ]
    return Panel("Attention weights, some zero", lines, "entropy, bits", x_label="zeros, percent")

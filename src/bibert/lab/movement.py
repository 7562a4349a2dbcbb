"""How a student moved between two looks, as tables; the numbers are made in `direction`, and no torch is needed here.

For every element of an attention score, and of the similarity matrix of queries, keys or values, the teacher lies in a
direction and training took a step: they match, mismatch, or the element did not move.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bibert.nn.schemes import Scheme

SCORES = "scores"  # what the baseline distills
SIMILARITIES = ("query", "key", "value")  # what Direction-Matching Distillation distills
THINGS = (SCORES, *SIMILARITIES)
TERMS = {SCORES: "attention", **{name: f"dmd_{name}" for name in SIMILARITIES}}  # the loss that asks for each

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Movement:
    """How one thing moved, (layers, heads) each; what is missing to a share of 1 did not move.

    Attributes:
        matching: the share of elements that moved towards the teacher.
        mismatching: the share that moved away from it.
        matching_margin: the mean length of the steps that match; 0 where there are none.
        mismatching_margin: of those that do not.
    """

    matching: Floats
    mismatching: Floats
    matching_margin: Floats
    mismatching_margin: Floats

    def to_dict(self) -> dict[str, list[list[float]]]:
        """Plain values, with five digits."""
        return {name: [[float(f"{x:.5g}") for x in row] for row in table] for name, table in vars(self).items()}


def mean_margin(share: Floats, margin: Floats) -> Floats:
    """The mean length of all steps of some heads, (..., layers, heads) each to (...): heads weigh by their steps."""
    steps = share.sum(axis=(-2, -1))
    mean: Floats = (share * margin).sum(axis=(-2, -1)) / np.maximum(steps, np.finfo(np.float64).tiny)
    return mean


def distilled_by(scheme: Scheme) -> list[str]:
    """Which of `THINGS` a scheme is asked to match."""
    terms = {term for stage in scheme.schedule for term in stage.terms}
    return [thing for thing, term in TERMS.items() if term in terms]

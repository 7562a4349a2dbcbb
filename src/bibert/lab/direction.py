"""Direction mismatch (Section 3.3.1, Fig. "direction mismatch"): did a student move towards its teacher?

A fixed batch is read at two moments of a training. For each element of an attention score, and of the similarity
matrix of queries, keys or values, the teacher lies in a direction, the sign of (teacher - student before), and
training took a step, (student after - student before). The two match, mismatch, or the element did not move.

Torch is imported only where a model is read, so that recorded movements can be shown without it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bibert.nn.schemes import Scheme

if TYPE_CHECKING:
    from torch import Tensor

    from bibert.distill.objective import LayerMatch
    from bibert.nn.layers import LayerTrace
    from bibert.nn.model import Trace

SCORES = "scores"  # distilled by the baseline
SIMILARITIES = ("query", "key", "value")  # distilled by Direction-Matching Distillation
THINGS = (SCORES, *SIMILARITIES)
ASKED_BY = {"attention": SCORES, **{f"dmd_{name}": name for name in SIMILARITIES}}  # what a loss term asks for

# How one thing moved: the share of elements that moved each way, and their mean step, which is 0 if none moved. The
# shares add up to 1 with that of elements that did not move.
FIELDS = ("matching", "mismatching", "matching_margin", "mismatching_margin")

Floats = NDArray[np.float64]
Movement = dict[str, Floats]  # (layers, heads) for each of `FIELDS`


def mean_margin(share: Floats, margin: Floats) -> Floats:
    """The mean length of all steps, (..., layers, heads) each to (...): heads weigh by their number of steps."""
    steps = share.sum(axis=(-2, -1))
    return np.asarray((share * margin).sum(axis=(-2, -1)) / np.maximum(steps, np.finfo(np.float64).tiny))


def towards(moved: Mapping[str, Floats]) -> Floats:
    """Of what moved at all, the share that moved towards the teacher: (..., layers, heads) each to (...)."""
    good, bad = (moved[way].sum(axis=(-2, -1)) for way in FIELDS[:2])
    return np.asarray(good / np.maximum(good + bad, np.finfo(np.float64).tiny))


def distilled_by(scheme: Scheme) -> list[str]:
    """The members of `THINGS` that training with a scheme matches with the teacher's."""
    asked = {ASKED_BY.get(term) for stage in scheme.schedule for term in stage.weights}
    return [thing for thing in THINGS if thing in asked]


class DirectionProbe:
    """Remembers where a student was, and returns how it moved since then at the next call."""

    def __init__(self, teacher: "Trace", match: "LayerMatch") -> None:
        self.goal = _pairs(match.taught(teacher.layers), teacher.mask)
        self.before: Mapping[str, list[Tensor]] | None = None  # (B, H, T, T) of each layer, on the CPU

    def __call__(self, student: "Trace") -> dict[str, Movement] | None:
        """How everything moved since the last call; None at the first one. Traces carry no gradient."""
        now, before = _pairs(student.layers, student.mask), self.before
        self.before = now
        if before is None:
            return None
        mask = student.mask.cpu()
        real = mask[:, None, :, None] * mask[:, None, None, :]
        return {name: movement(before[name], now[name], self.goal[name], real) for name in THINGS}


def movement(before: "list[Tensor]", after: "list[Tensor]", goal: "list[Tensor]", real: "Tensor") -> Movement:
    """Compare steps with directions, layer by layer; `real` is (B, 1, T, T), 1 where neither token is padding."""
    layers = []
    for old, new, wanted in zip(before, after, goal, strict=True):
        step = new - old
        agreement = (step * (wanted - old)).sign() * real
        ways = [(agreement == sign).to(step.dtype) for sign in (1, -1)]
        counts = [way.sum(dim=(0, 2, 3)) for way in ways]
        lengths = [(step.abs() * way).sum(dim=(0, 2, 3)) for way in ways]
        shares = [count / real.sum() for count in counts]
        margins = [length / count.clamp_min(1) for length, count in zip(lengths, counts, strict=True)]
        layers.append([table.tolist() for table in (*shares, *margins)])
    return dict(zip(FIELDS, np.array(layers).swapaxes(0, 1), strict=True))


def _pairs(layers: "list[LayerTrace]", mask: "Tensor") -> "dict[str, list[Tensor]]":
    """Scores, and P = XXᵀ / ‖XXᵀ‖ of queries, keys and values: the norm is that of each text and head."""
    from bibert.distill.losses import TINY, norm, similarity

    tokens = mask[:, None, :, None]
    found = {SCORES: [layer.scores.cpu() for layer in layers]}
    for name in SIMILARITIES:
        products = [similarity(getattr(layer, name) * tokens) for layer in layers]
        found[name] = [(one / norm(one.flatten(-2)).unsqueeze(-1).clamp_min(TINY)).cpu() for one in products]
    return found

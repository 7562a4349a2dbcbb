"""Direction mismatch (Section 3.3.1, Fig. "direction mismatch"): did a student move the way its teacher asked it to?

A fixed batch is read at two moments of a training. Every element of an attention score, or of the similarity matrix of
queries, keys or values, has a direction that distillation asks for, the sign of (teacher - student before), and a
step that training took, (student after - student before). They match, mismatch, or the element did not move.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bibert.distill.dmd import TINY, similarity
from bibert.distill.objective import LayerMatch
from bibert.nn.trace import LayerTrace, Trace

SCORES = "scores"  # what the baseline distills
SIMILARITIES = ("query", "key", "value")  # what Direction-Matching Distillation distills
THINGS = (SCORES, *SIMILARITIES)

Floats = NDArray[np.float64]
Pairs = Mapping[str, list[Tensor]]  # (B, H, T, T) of each layer, 0 where a token is padding


@dataclass(frozen=True)
class Movement:
    """How one thing moved, (layers, heads) each; what is missing to a share of 1 did not move.

    Attributes:
        matching: the share of elements that moved as asked.
        mismatching: the share that moved the other way.
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


class DirectionProbe:
    """Remembers where a student was, and says how it moved when it is asked again.

    Args:
        teacher: the trace of the teacher on the batch.
        match: which of its layers and heads the student learns from.
    """

    def __init__(self, teacher: Trace, match: LayerMatch) -> None:
        self.teacher = teacher
        self.match = match
        self.before: Pairs | None = None
        self.goal: Pairs | None = None

    @torch.no_grad()
    def __call__(self, student: Trace) -> dict[str, Movement] | None:
        """How everything moved since the last call; None at the first one."""
        if self.goal is None:
            taught = self.match.layers(student.layers, self.teacher.layers)
            self.goal = _pairs([teacher for _, teacher in taught], self.teacher.mask)
        now, before = _pairs(student.layers, student.mask), self.before
        self.before = now
        if before is None:
            return None
        real = student.mask[:, None, :, None] * student.mask[:, None, None, :]
        return {name: movement(before[name], now[name], self.goal[name], real) for name in THINGS}


def movement(before: list[Tensor], after: list[Tensor], goal: list[Tensor], real: Tensor) -> Movement:
    """Compare steps with directions, layer by layer; `real` is (B, 1, T, T), 1 where both tokens are."""
    layers = [_layer(*tensors, real) for tensors in zip(before, after, goal, strict=True)]
    columns = np.array(layers).transpose(1, 0, 2)  # (4, layers, heads)
    return Movement(*columns)


def _layer(before: Tensor, after: Tensor, goal: Tensor, real: Tensor) -> list[list[float]]:
    step, asked = after - before, goal - before
    agreement = (step * asked).sign() * real
    elements = real.sum()
    shares, margins = [], []
    for sign in (1, -1):
        chosen = (agreement == sign).to(step.dtype)
        count = chosen.sum(dim=(0, 2, 3))
        shares.append((count / elements).tolist())
        margins.append(((step.abs() * chosen).sum(dim=(0, 2, 3)) / count.clamp_min(1)).tolist())
    return [*shares, *margins]


def _pairs(layers: list[LayerTrace], mask: Tensor) -> dict[str, list[Tensor]]:
    tokens = mask[:, None, :, None]
    found = {SCORES: [layer.scores for layer in layers]}
    for name in SIMILARITIES:
        found[name] = [_direction(similarity(getattr(layer, name) * tokens)) for layer in layers]
    return found


def _direction(x: Tensor) -> Tensor:
    """P = XXᵀ / ‖XXᵀ‖ of each text and head, as the loss compares it."""
    size: Tensor = x.square().sum(dim=(-2, -1), keepdim=True).sqrt()
    return x / size.clamp_min(TINY)

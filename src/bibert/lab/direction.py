"""Direction mismatch (Section 3.3.1, Fig. "direction mismatch"): did a student move towards its teacher?

A fixed batch is read at two moments of a training. For every element of an attention score, and of the similarity
matrix of queries, keys or values, the teacher lies in a direction, the sign of (teacher - student before), and
training took a step, (student after - student before). What they make together is a `movement`.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from bibert.distill.losses import TINY, similarity, size
from bibert.distill.objective import LayerMatch
from bibert.lab.movement import SCORES, SIMILARITIES, THINGS, Movement
from bibert.nn.layers import LayerTrace
from bibert.nn.model import Trace

Pairs = Mapping[str, list[Tensor]]  # (B, H, T, T) of each layer, on the CPU


class DirectionProbe:
    """Remembers where a student was, and says how it moved when it is asked again.

    Args:
        teacher: the trace of the teacher on the batch; it is not kept.
        match: which of its layers and heads the student learns from.
    """

    def __init__(self, teacher: Trace, match: LayerMatch) -> None:
        self.goal = _pairs(match.taught(teacher.layers), teacher.mask)
        self.before: Pairs | None = None

    @torch.no_grad()
    def __call__(self, student: Trace) -> dict[str, Movement] | None:
        """How everything moved since the last call; None at the first one."""
        now, before = _pairs(student.layers, student.mask), self.before
        self.before = now
        if before is None:
            return None
        mask = student.mask.cpu()
        real = mask[:, None, :, None] * mask[:, None, None, :]
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
    found = {SCORES: [layer.scores.cpu() for layer in layers]}
    for name in SIMILARITIES:
        found[name] = [_direction(similarity(getattr(layer, name) * tokens)).cpu() for layer in layers]
    return found


def _direction(x: Tensor) -> Tensor:
    """P = XXᵀ / ‖XXᵀ‖ of each text and head, the paper's reading."""
    return x / size(x, (-2, -1)).clamp_min(TINY)

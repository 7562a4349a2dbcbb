"""The dial: activations of 2 and 4 bits, as levels with a learned step, and attention on them.

A site (the input of a linear layer, or queries, keys and values) maps a value to an index u from 0 to 2^k - 1 by one
rule, which the engine computes too (docs/numeric-contract.md, rules 9 to 11). Signed sites read it as the odd level
2u - (2^k - 1), so there is no dead zone and one bit would be the sign; the input of the second FFN layer reads it as u.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bibert.nn import functional
from bibert.nn.functional import AttentionResult, HeadLevels
from bibert.nn.products import Quantized
from bibert.nn.quantizers import SMALLEST_STEP, Calibrated

# The initial step in units of mean|x|, by bits: near the least squared error for a normal distribution.
SIGNED_START = {2: 0.62, 4: 0.21}
UNSIGNED_START = {2: 0.8, 4: 0.3}
BELOW_ZERO = -1e-6  # position 0 is inside the lowest level, but `hardtanh_backward` leaves out both ends of a range


class Rule(NamedTuple):
    """How a site maps values to indices: u = clamp(floor((x - edge) · rate), 0, top)."""

    edge: Tensor  # (channels,)
    rate: Tensor  # a scalar
    top: int
    signed: bool

    def position(self, x: Tensor) -> Tensor:
        """(x - edge) · rate: an index is the floor of it."""
        return (x - self.edge).mul_(self.rate)

    def level(self, position: Tensor) -> Tensor:
        """The level at a position."""
        index = torch.floor(position).clamp_(0, self.top)
        return index.mul_(2).sub_(self.top) if self.signed else index


def rule_of(threshold: Tensor, step: Tensor, bits: int, *, signed: bool) -> Rule:
    """The rule of a learned threshold per channel and a learned step; each operation is rounded once to float32."""
    if signed:
        return Rule(threshold - 2**bits * step, 0.5 / step, 2**bits - 1, signed)
    return Rule(threshold - 0.5 * step, 1.0 / step, 2**bits - 1, signed)


class _Levels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor, step: Tensor, bits: int, signed: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.rule = rule = rule_of(threshold, step, bits, signed=signed)
        return rule.level(rule.position(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        # The gradient of step · level: to x (and minus that to the threshold) inside the range of the levels, to the
        # step as in LSQ. The position is recomputed, because x is kept anyway.
        x, rule = ctx.saved_tensors[0], ctx.rule
        position = rule.position(x)
        inside = torch.ops.aten.hardtanh_backward(gradient, position, BELOW_ZERO, rule.top + 1.0)
        of_channels = inside.flatten(0, -2).sum(0)
        # Minus the value (x - threshold) / step inside: a multiple of the position and a constant.
        factor, constant = (2.0, rule.top + 1.0) if rule.signed else (1.0, 0.5)
        slope = dot(gradient, rule.level(position)) - factor * dot(inside, position) + constant * of_channels.sum()
        grad_step = slope / math.sqrt(x.numel() * rule.top)
        return inside, -of_channels, grad_step.reshape(rule.rate.shape), None, None


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Σ a·b, without a temporary tensor."""
    return torch.dot(a.reshape(-1), b.reshape(-1))


class Levels(Calibrated):
    """The k-bit levels of one site: a learned step, and a learned threshold per channel."""

    def __init__(self, channels: int, bits: int, *, signed: bool = True) -> None:
        super().__init__()
        self.bits, self.signed = bits, signed
        self.start = (SIGNED_START if signed else UNSIGNED_START)[bits]
        self.threshold = nn.Parameter(torch.zeros(channels))
        self.step = nn.Parameter(torch.empty(()))
        self.reset()

    def forward(self, x: Tensor) -> Quantized:
        """(..., channels) to levels of the same shape, whose scale is the step."""
        if self.calibrating:
            with torch.no_grad():
                self.step.copy_(self.start * x.detach().abs().mean())
        step = self.positive_step
        levels = _Levels.apply(x, self.threshold, step, self.bits, self.signed)  # type: ignore[no-untyped-call]
        return Quantized(levels, step.detach().view((1,) * x.dim()), whole=True)

    @property
    def positive_step(self) -> Tensor:
        """The step, which training may push below 0, kept above it."""
        return self.step.clamp_min(SMALLEST_STEP)

    @property
    def rule(self) -> Rule:
        """The rule of the forward pass, for `export`."""
        return rule_of(self.threshold.detach(), self.positive_step.detach(), self.bits, signed=self.signed)

    def reset(self) -> None:
        """Set the step for a standard normal, whose mean|x| is 0.8."""
        nn.init.constant_(self.step, 0.8 * self.start)
        nn.init.zeros_(self.threshold)


def weight_distances(scale: float, bits: int, head_size: int) -> list[int]:
    """How far below the greatest score of a query a key may be to get the attention weight 1, 2, ..., 2^bits - 1.

    The weight of a key is floor(top · exp(score - greatest) + 1/2). Scores are integers S times `scale`, all of them
    even or all odd, so (max S - S) / 2 is an integer, and the list holds its limits (numeric contract, rule 11).
    """
    top = 2**bits - 1
    farthest = head_size * top * top  # the distance of opposite scores
    limits = (math.log(top / (weight - 0.5)) / (2 * scale) for weight in range(1, top + 1))
    return [int(min(limit, farthest)) for limit in limits]


class LevelAttention(nn.Module):
    """Softmax rounded to k bits relative to the greatest weight of each query, on k-bit queries, keys and values.

    In eval mode everything but the last product is an integer. The gradient is that of softmax.
    """

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def forward(
        self, query: Quantized, key: Quantized, value: Quantized, mask: Tensor, dropout: float
    ) -> AttentionResult:
        """(B, H, T, D) each; `mask` is (B, 1, 1, T)."""
        if self.training:
            return self._train(query, key, value, mask, dropout)
        return self._evaluate(query, key, value, mask)

    def _train(
        self, query: Quantized, key: Quantized, value: Quantized, mask: Tensor, dropout: float
    ) -> AttentionResult:
        scores = functional.attention_scores(query, key)
        masked = functional.mask_keys(scores, mask)
        with torch.no_grad():
            rounded = torch.exp(masked - masked.amax(dim=-1, keepdim=True)).mul_(2**self.bits - 1).add_(0.5).floor_()
            rounded /= rounded.sum(dim=-1, keepdim=True)
        weights = F.dropout(functional.straight_through(functional.softmax(masked), rounded), dropout)
        levels = HeadLevels(query.levels, key.levels, value.levels)
        return AttentionResult(functional.bamm(Quantized(weights), value), scores, weights, levels)

    def _evaluate(self, query: Quantized, key: Quantized, value: Quantized, mask: Tensor) -> AttentionResult:
        head_size = query.levels.shape[-1]
        scale = step_of(query) * step_of(key) / math.sqrt(head_size)
        integers = query.levels @ key.levels.transpose(-1, -2)
        masked = integers.masked_fill(mask == 0, -torch.inf)
        distances = (masked.amax(dim=-1, keepdim=True) - masked) / 2
        weights = torch.zeros_like(integers)
        for limit in weight_distances(scale, self.bits, head_size):
            weights += distances <= limit
        total = weights.sum(dim=-1, keepdim=True)
        assert value.scale is not None
        # A tensor over a tensor: torch computes a number over a tensor as a reciprocal and a product, rounded twice.
        context = (weights @ value.levels) * (value.scale / total)
        levels = HeadLevels(query.levels, key.levels, value.levels)
        return AttentionResult(context, integers * scale, weights / total, levels)


def step_of(x: Quantized) -> float:
    """The step of levels, a float32."""
    assert x.scale is not None
    return x.scale.item()

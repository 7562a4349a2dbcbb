"""Quantizers by name: how a weight row, an activation or an attention weight becomes a few levels and a scale.

A quantizer is its forward levels and its straight-through gradient, and nothing else. The tables at the end are
what `schemes` names. BiBERT's own sign and bool are in `functional`; the rivals' recipes are described in
docs/paper-to-code.md. Scales measured at run time are taken per token, per head or per attention row, over real
tokens only, so that an answer never depends on its neighbours in the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bibert.errors import SchemeError, did_you_mean
from bibert.nn.functional import Quantized, binarize_rows, bool_, gelu_sign, sign, signs, straight_through

CLIP = 2.5  # TernaryBERT and BinaryBERT clip activations here before they quantize
TERNARY_THRESHOLD = 0.7  # TWN: a value below 0.7 · mean|x| becomes 0
WEIGHT_GROUPS = 128  # Q-BERT: groups of output rows with a range of their own
RANGE_MOMENTUM = 0.99  # Q8BERT: moving average of max|x|
TINY = 1e-8
SMALLEST_STEP = 1e-5  # LSQ: a learned step stays positive
RANK_GUARD = 1e-9


@dataclass(frozen=True)
class Scope:
    """Over what a scale is shared and measured.

    Attributes:
        bits: the bits of the quantizer; those with fixed levels do not read it.
        dims: the dimensions that share one scale.
        mask: 1 where a value counts for the scale, broadcast over the tensor; None counts all.
        clip: values are cut to ±clip first, and get no gradient outside.
    """

    bits: int
    dims: tuple[int, ...] = (-1,)
    mask: Tensor | None = None
    clip: float = torch.inf

    def mean(self, x: Tensor) -> Tensor:
        """The mean of what counts."""
        if self.mask is None:
            return x.mean(dim=self.dims, keepdim=True)
        return self.total(x) / self.total(torch.ones_like(x)).clamp_min(1)

    def total(self, x: Tensor) -> Tensor:
        """The sum of what counts."""
        return (x if self.mask is None else x * self.mask).sum(dim=self.dims, keepdim=True)

    def low(self, x: Tensor) -> Tensor:
        """The least value that counts."""
        return self._hide(x, torch.inf).amin(dim=self.dims, keepdim=True)

    def high(self, x: Tensor) -> Tensor:
        """The greatest value that counts."""
        return self._hide(x, -torch.inf).amax(dim=self.dims, keepdim=True)

    def inside(self, x: Tensor) -> Tensor | None:
        """Where the clip lets the gradient through; None for everywhere."""
        return None if self.clip == torch.inf else x.detach().abs() <= self.clip

    def _hide(self, x: Tensor, value: float) -> Tensor:
        return x if self.mask is None else x.masked_fill(self.mask == 0, value)


def bwn(x: Tensor, scope: Scope) -> Quantized:
    """Binary-Weight-Network: mean|x| · sign(x), the gradient passes everywhere."""
    values = x.detach()
    return Quantized(straight_through(x, signs(values)), scope.mean(values.abs()))


def twn(x: Tensor, scope: Scope) -> Quantized:
    """Ternary-Weight-Network: {-1, 0, 1}, zero below 0.7 · mean|x|, scaled by the mean of what is not zero."""
    values = x.detach()
    size = values.abs()
    kept = (size >= TERNARY_THRESHOLD * scope.mean(size)).to(x.dtype)
    scale = scope.total(size * kept) / scope.total(kept).clamp_min(1)
    return Quantized(straight_through(x, kept * signs(values)), scale)


def symmetric(x: Tensor, scope: Scope) -> Quantized:
    """Integers in ±(2^(bits-1) - 1) with the step max|x| / (2^(bits-1) - 1)."""
    values = x.detach().clamp(-scope.clip, scope.clip)
    top = 2 ** (scope.bits - 1) - 1
    step = scope.high(values.abs()).clamp_min(TINY) / top
    levels = torch.round(values / step).clamp(-top, top)  # padding does not count for the step and may lie outside
    return Quantized(straight_through(x, levels, scope.inside(x)), step)


def affine(x: Tensor, scope: Scope) -> Quantized:
    """2^bits even levels from min to max; they need an offset, so they enter the product as values."""
    values = x.detach().clamp(-scope.clip, scope.clip)
    low, top = scope.low(values), 2**scope.bits - 1
    step = (scope.high(values) - low).clamp_min(TINY) / top
    index = torch.round((values - low) / step).clamp(0, top)
    return Quantized(straight_through(x, index * step + low, scope.inside(x)))


def group_affine(weight: Tensor, scope: Scope) -> Quantized:
    """Q-BERT's weights: `affine` with one range per group of output rows."""
    rows = weight.shape[0]
    groups = next(count for count in range(min(WEIGHT_GROUPS, rows), 0, -1) if rows % count == 0)
    grouped = affine(weight.reshape(groups, -1), Scope(scope.bits))
    return Quantized(grouped.levels.view_as(weight))


def asym(x: Tensor, scope: Scope) -> Quantized:
    """The row's maximum where x ≥ (max + min) / 2, its minimum elsewhere (the paper's Baseline_asym)."""
    values = x.detach()
    low, high = scope.low(values), scope.high(values)
    return Quantized(straight_through(x, torch.where(values >= 0.5 * (high + low), high, low)))


def mean_threshold(x: Tensor, scope: Scope) -> Quantized:
    """bool(p - 1/k): the mean of a row of softmax over k real keys is 1/k (the paper's Baseline_μ)."""
    keys = scope.total(torch.ones_like(x)).clamp_min(1)
    return Quantized(straight_through(x, (x.detach() >= 1.0 / keys).to(x.dtype)))


class Elementwise(nn.Module):
    """A quantizer that looks at one value at a time: sign, bool, or nothing at all."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, scope: Scope | None = None) -> Quantized:  # noqa: ARG002
        """Quantize `x`; there is no scale, so the scope does not matter."""
        return Quantized(self.function(x))


class Measured(nn.Module):
    """A quantizer that measures its scale on the tensor itself, at run time."""

    def __init__(self, function: Callable[[Tensor, Scope], Quantized], bits: int) -> None:
        super().__init__()
        self.function = function
        self.row = Scope(bits, clip=CLIP)

    def forward(self, x: Tensor, scope: Scope | None = None) -> Quantized:
        """Quantize `x` with one scale per row, or as `scope` says."""
        return self.function(x, self.row if scope is None else replace(self.row, dims=scope.dims, mask=scope.mask))


class EmaSymmetric(nn.Module):
    """Q8BERT's activations: `symmetric` with a range that is a moving average gathered in training."""

    range: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.top = 2 ** (bits - 1) - 1
        self.calibrating = False
        self.register_buffer("range", torch.empty(()))
        self.reset()

    def forward(self, x: Tensor, scope: Scope | None = None) -> Quantized:
        """Quantize `x` with the one range of this site."""
        if self.training or self.calibrating:
            self._observe(x.detach(), scope)
        step = (self.range / self.top).view((1,) * x.dim())
        levels = torch.round(x.detach() / step).clamp(-self.top, self.top)
        return Quantized(straight_through(x, levels, x.detach().abs() <= self.range), step)

    def reset(self) -> None:
        """A wide range, until `calibrate` or training has seen something."""
        nn.init.constant_(self.range, 4.0)

    def _observe(self, x: Tensor, scope: Scope | None) -> None:
        seen = (x.abs() if scope is None else scope.high(x.abs())).amax().clamp_min(TINY)
        self.range.copy_(seen if self.calibrating else torch.lerp(seen, self.range, RANGE_MOMENTUM))


class _LearnedStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor, low: int, high: int) -> Tensor:
        ctx.save_for_backward(x, step)
        ctx.low, ctx.high = low, high
        return torch.round(x / step).clamp(low, high)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, step = ctx.saved_tensors
        ratio = x / step
        inside = (ratio >= ctx.low) & (ratio <= ctx.high)
        slope = torch.round(ratio).clamp(ctx.low, ctx.high) - ratio * inside
        grad_step = (gradient * slope).sum() / (x.numel() * ctx.high) ** 0.5
        return gradient * inside, grad_step.reshape(step.shape), None, None


class LearnedStep(nn.Module):
    """LSQ: integers times a learned step, from 0 up (`unsigned`) or on both sides."""

    def __init__(self, bits: int, *, unsigned: bool = False) -> None:
        super().__init__()
        self.low: int = 0 if unsigned else -(2 ** (bits - 1))
        self.high: int = 2**bits - 1 if unsigned else 2 ** (bits - 1) - 1
        self.start: float = (4.0 if unsigned else 2.0) / self.high**0.5  # the first step, in units of mean|x|
        self.calibrating = False
        self.step = nn.Parameter(torch.empty(()))
        self.reset()

    def forward(self, x: Tensor, scope: Scope | None = None) -> Quantized:
        """Quantize `x` with the one step of this site."""
        if self.calibrating:
            size = x.detach().abs()
            with torch.no_grad():
                self.step.copy_(self.start * (size if scope is None else scope.mean(size)).mean())
        step = self.step.clamp_min(SMALLEST_STEP)
        levels = _LearnedStep.apply(x, step, self.low, self.high)  # type: ignore[no-untyped-call]
        return Quantized(levels, step.detach().view((1,) * x.dim()))

    def reset(self) -> None:
        """The step for a standard normal, whose mean|x| is 0.8."""
        nn.init.constant_(self.step, 0.8 * self.start)


class Quantile(nn.Module):
    """bool(p - τ) with τ the quantile of the row over its real keys (the paper's Baseline₅₀ and its sweep).

    A τ between two order statistics lets through what is at least the upper one, so nothing is interpolated.
    """

    def __init__(self, quantile: float) -> None:
        super().__init__()
        self.quantile = quantile

    def forward(self, x: Tensor, scope: Scope) -> Quantized:
        """Binarize attention weights, row by row."""
        values = x.detach() if scope.mask is None else x.detach().masked_fill(scope.mask == 0, torch.inf)
        keys = scope.total(torch.ones_like(x)).clamp_min(1)
        # The product q · (k - 1) is rounded up to a rank; the guard keeps 0.3 · 10 = 3.0000000000000004 at 3.
        rank = torch.ceil(self.quantile * (keys - 1).double() - RANK_GUARD).long()
        threshold = values.sort(dim=-1).values.gather(-1, rank)
        return Quantized(straight_through(x, (x.detach() >= threshold).to(x.dtype)))


ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "sign": sign,
    "bool": bool_,
    "gelu_sign": gelu_sign,
}
MEASURED: dict[str, Callable[[Tensor, Scope], Quantized]] = {
    "bwn": bwn,
    "twn": twn,
    "symmetric": symmetric,
    "affine": affine,
    "group_affine": group_affine,
    "asym": asym,
    "mean": mean_threshold,
}
LEARNED: dict[str, Callable[[int], nn.Module]] = {
    "ema_symmetric": EmaSymmetric,
    "lsq": LearnedStep,
    "lsq_unsigned": partial(LearnedStep, unsigned=True),
}


def activation_quantizer(name: str, bits: int, quantile: float | None = None) -> nn.Module:
    """The module called `name` in a scheme; it maps (x, scope) to `Quantized`."""
    if quantile is not None:
        return Quantile(quantile)
    if name in ELEMENTWISE:
        return Elementwise(ELEMENTWISE[name])
    if name in LEARNED:
        return LEARNED[name](bits)
    if name in MEASURED:
        return Measured(MEASURED[name], bits)
    known = [*ELEMENTWISE, *LEARNED, *MEASURED]
    raise SchemeError(f"there is no activation quantizer {name!r}; {did_you_mean(name, known)}")


def quantize_weight(name: str, weight: Tensor, bits: int) -> Quantized:
    """A linear weight: one scale per output row for `sign`, one per tensor (or group) for the rivals."""
    if name == "sign":
        return binarize_rows(weight)
    return _measured(name)(weight, Scope(bits, dims=(-2, -1)))


def quantize_embedding(name: str, rows: Tensor, bits: int) -> Quantized:
    """Rows of the word embedding: one scale per token in every scheme."""
    if name == "sign":
        return binarize_rows(rows)
    return _measured(name)(rows, Scope(bits))


def _measured(name: str) -> Callable[[Tensor, Scope], Quantized]:
    if name not in MEASURED:
        raise SchemeError(f"there is no quantizer of weights {name!r} in MEASURED; {did_you_mean(name, MEASURED)}")
    return MEASURED[name]

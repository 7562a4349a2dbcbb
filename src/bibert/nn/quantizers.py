"""Quantizers by name: how a weight, an activation or an attention weight becomes a few levels and a scale.

`schemes.QUANTIZERS` lists the names with the bits and places of each; the tables at the end of this file implement
them. A quantizer defines its levels and its straight-through gradient. The paper's sign and bool are in `functional`;
docs/paper-to-code.md describes the rivals. Scales measured at run time are shared by a token, a head or an attention
row, over real tokens only, so that an answer never depends on the rest of the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bibert.nn.functional import binarize_rows, bool_, gelu_sign, sign, signs, straight_through
from bibert.nn.products import Quantized

CLIP = 2.5  # TernaryBERT and BinaryBERT clip activations here before they quantize
TERNARY_THRESHOLD = 0.7  # TWN: a value below 0.7 · mean|x| becomes 0
WEIGHT_GROUPS = 128  # Q-BERT: groups of output rows with a range of their own
RANGE_MOMENTUM = 0.9999  # Q8BERT: moving average of max|x|
TINY = 1e-8
SMALLEST_STEP = 1e-5  # LSQ: a learned step stays positive
RANK_GUARD = 1e-9


@dataclass(frozen=True)
class Scope:
    """The values that share one scale, and those of them that count for it."""

    bits: int  # quantizers with fixed levels ignore it
    dims: tuple[int, ...] = (-1,)  # share one scale
    mask: Tensor | None = None  # 1 where a value counts, broadcast over the tensor; None counts all
    clip: float = torch.inf  # values are clipped to ±clip first and get no gradient outside

    def mean(self, x: Tensor) -> Tensor:
        """The mean of the values that count."""
        if self.mask is None:
            return x.mean(dim=self.dims, keepdim=True)
        return self.total(x) / self.total(torch.ones_like(x)).clamp_min(1)

    def total(self, x: Tensor) -> Tensor:
        """The sum of the values that count."""
        return (x if self.mask is None else x * self.mask).sum(dim=self.dims, keepdim=True)

    def low(self, x: Tensor) -> Tensor:
        """The least value that counts."""
        return self.hide(x, torch.inf).amin(dim=self.dims, keepdim=True)

    def high(self, x: Tensor) -> Tensor:
        """The greatest value that counts."""
        return self.hide(x, -torch.inf).amax(dim=self.dims, keepdim=True)

    def hide(self, x: Tensor, value: float) -> Tensor:
        """`x` with `value` in place of what does not count."""
        return x if self.mask is None else x.masked_fill(self.mask == 0, value)

    def inside(self, x: Tensor) -> Tensor | None:
        """Where the clip lets the gradient pass; None for everywhere."""
        return None if self.clip == torch.inf else x.detach().abs() <= self.clip


def unscaled(x: Tensor, _scope: Scope, function: Callable[[Tensor], Tensor] | None = None) -> Quantized:
    """A function of one value at a time: sign, bool, or none at all."""
    return Quantized(x) if function is None else Quantized(function(x), whole=True)


def bwn(x: Tensor, scope: Scope) -> Quantized:
    """Binary-Weight-Network: mean|x| · sign(x), the gradient passes everywhere."""
    values = x.detach()
    return Quantized(straight_through(x, signs(values)), scope.mean(values.abs()))


def twn(x: Tensor, scope: Scope) -> Quantized:
    """Ternary-Weight-Network: {-1, 0, 1}, zero below 0.7 · mean|x|, scaled by the mean of the others' size."""
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
    levels = torch.round(values / step).clamp(-top, top)  # padding does not count and may lie outside
    return Quantized(straight_through(x, levels, scope.inside(x)), step)


def affine(x: Tensor, scope: Scope) -> Quantized:
    """2^bits even levels from min to max; they have an offset, so they enter the product as values without a scale."""
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


def quantile(x: Tensor, scope: Scope, share: float) -> Quantized:
    """bool(p - τ) with τ the quantile of the row over its real keys (the paper's Baseline_50 and its sweep).

    A τ between two order statistics passes values from the upper one on, so nothing is interpolated.
    """
    keys = scope.total(torch.ones_like(x)).clamp_min(1)
    # The product q · (k - 1) is rounded up to a rank; the guard keeps 0.3 · 10 = 3.0000000000000004 at 3.
    rank = torch.ceil(share * (keys - 1).double() - RANK_GUARD).long()
    threshold = scope.hide(x.detach(), torch.inf).sort(dim=-1).values.gather(-1, rank)
    return Quantized(straight_through(x, (x.detach() >= threshold).to(x.dtype)))


class Stateless(nn.Module):
    """A quantizer without parameters: it looks at the tensor itself and nothing else."""

    def __init__(self, function: Callable[[Tensor, Scope], Quantized], bits: int) -> None:
        super().__init__()
        self.function = function
        self.row = Scope(bits, clip=CLIP)

    def forward(self, x: Tensor, scope: Scope | None = None) -> Quantized:
        """Quantize `x` with one scale per row, or with the dims and mask of `scope`."""
        return self.function(x, self.row if scope is None else replace(self.row, dims=scope.dims, mask=scope.mask))


class Calibrated(nn.Module):
    """A quantizer with a range or step of its own; while `calibrating` is set, a forward pass initialises it."""

    calibrating = False

    def reset(self) -> None:
        """Set the value for inputs that are not known yet."""
        raise NotImplementedError


class EmaSymmetric(Calibrated):
    """Q8BERT's activations: `symmetric` with a moving average of the range; the gradient passes outside it too."""

    range: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.top = 2 ** (bits - 1) - 1
        self.register_buffer("range", torch.empty(()))
        self.reset()

    def forward(self, x: Tensor, scope: Scope | None = None) -> Quantized:
        """Quantize `x` with the one range of this site."""
        if self.training or self.calibrating:
            size = x.detach().abs()
            seen = (size if scope is None else scope.high(size)).amax().clamp_min(TINY)
            self.range.copy_(seen if self.calibrating else torch.lerp(seen, self.range, RANGE_MOMENTUM))
        step = (self.range / self.top).view((1,) * x.dim())
        levels = torch.round(x.detach() / step).clamp(-self.top, self.top)
        return Quantized(straight_through(x, levels), step)

    def reset(self) -> None:
        """Set a wide range."""
        nn.init.constant_(self.range, 4.0)


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


class LearnedStep(Calibrated):
    """LSQ: integers times a learned step, from 0 up (`unsigned`) or on both sides."""

    def __init__(self, bits: int, *, unsigned: bool = False) -> None:
        super().__init__()
        self.low: int = 0 if unsigned else -(2 ** (bits - 1))
        self.high: int = 2**bits - 1 if unsigned else 2 ** (bits - 1) - 1
        self.start: float = (4.0 if unsigned else 2.0) / self.high**0.5  # the initial step, in units of mean|x|
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
        """Set the step for a standard normal, whose mean|x| is 0.8."""
        nn.init.constant_(self.step, 0.8 * self.start)


STATELESS: dict[str, Callable[..., Quantized]] = {
    "none": unscaled,
    "sign": partial(unscaled, function=sign),
    "bool": partial(unscaled, function=bool_),
    "gelu_sign": partial(unscaled, function=gelu_sign),  # chosen by `Scheme.ffn_quantizer`; no field names it
    "bwn": bwn,
    "twn": twn,
    "symmetric": symmetric,
    "affine": affine,
    "group_affine": group_affine,
    "asym": asym,
    "mean": mean_threshold,
    "quantile": quantile,
}
CALIBRATED: dict[str, Callable[[int], Calibrated]] = {
    "ema_symmetric": EmaSymmetric,
    "lsq": LearnedStep,
    "lsq_unsigned": partial(LearnedStep, unsigned=True),
}


def activation_quantizer(name: str, bits: int, share: float | None = None) -> nn.Module:
    """The module called `name` in a scheme, which maps (x, scope) to `Quantized`; `share` is for `quantile`."""
    if name in CALIBRATED:
        return CALIBRATED[name](bits)
    return Stateless(STATELESS[name] if share is None else partial(STATELESS[name], share=share), bits)


def quantize_weight(name: str, weight: Tensor, bits: int, dims: tuple[int, ...] = (-2, -1)) -> Quantized:
    """A weight with one scale per row for `sign`, one per `dims` for the rivals: a matrix, or (-1,) for embeddings."""
    return binarize_rows(weight) if name == "sign" else STATELESS[name](weight, Scope(bits, dims))

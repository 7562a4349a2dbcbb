"""The arithmetic of the method, forward and backward: one formula, one function.

Contents: sign and bool with their straight-through gradients, the row binarization of weights, BAMM, Bi-Attention, and
the exact LayerNorm of eval mode. The products, bi-linear among them, are in `products`, the rivals' quantizers in
`quantizers`, modules with parameters in `layers`, the same formulas on packed bits in `packed`.

Shapes: B batch, T tokens, C channels, H heads, D head size. Equations are those of the paper's Sections 2 and 3.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bibert.errors import NumericError
from bibert.nn.products import Quantized, rows_product
from bibert.packed.schema import GRID, LAYER_NORM_LIMIT

Map = Callable[[Tensor], Tensor]
AFTER_ONE = 1.0 + 2.0**-23  # the float32 after 1: below it is at most 1
AFTER_GELU_ONE = 1.1444507837295532  # the least float32 whose GELU is above 1; no GELU is below -1
MINUS_ONE = torch.tensor(-1.0)
SHORTEST_SOFTMAX = 16  # torch computes a softmax of fewer numbers one by one, ten times as slowly


def bools(x: Tensor) -> Tensor:
    """1 where x ≥ 0, 0 elsewhere, without a gradient; comparing into floats is 20 times as fast as `torch.where`."""
    return torch.ge(x, 0, out=torch.empty_like(x))


def signs(x: Tensor) -> Tensor:
    """+1 where x ≥ 0, -1 elsewhere, without a gradient."""
    return signs_of(bools(x))


def signs_of(bits: Tensor) -> Tensor:
    """2 · bits - 1, in place and in one pass."""
    return torch.add(MINUS_ONE, bits, alpha=2, out=bits)


def where_at_most_one(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient where |x| ≤ 1, 0 elsewhere, in one pass: 8 times as fast as a mask and a product."""
    return torch.ops.aten.hardtanh_backward(gradient, x, -AFTER_ONE, AFTER_ONE)  # type: ignore[no-any-return]


class _Binarize(torch.autograd.Function):
    """`levels` of each value in the forward pass, `gradient_of` the incoming gradient and the value in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, levels: Map, gradient_of: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.gradient_of = gradient_of
        return levels(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.gradient_of(gradient, ctx.saved_tensors[0]), None, None


class _BinarizeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        mean = weight.mean(dim=-1, keepdim=True)
        # Latent weights of a BERT rarely differ by more than 1; only then can one be outside the window.
        ctx.save_for_backward(*((weight, mean) if weight.amax() - weight.amin() > 1 else ()))
        return signs_of(torch.ge(weight, mean, out=torch.empty_like(weight)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if ctx.saved_tensors:
            weight, mean = ctx.saved_tensors
            gradient = where_at_most_one(gradient, weight - mean)
        return gradient - gradient.mean(dim=-1, keepdim=True)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, levels: Tensor, window: Tensor | None) -> Tensor:  # noqa: ARG004 - `x` receives the gradient
        ctx.window = window
        return levels.view_as(levels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient if ctx.window is None else gradient * ctx.window, None, None


def sign(x: Tensor) -> Tensor:
    """+1 where x ≥ 0, -1 elsewhere; the gradient passes where |x| ≤ 1 (Eq. 1). Unlike `torch.sign`, ±0 gives +1."""
    return _Binarize.apply(x, signs, where_at_most_one)  # type: ignore[no-untyped-call, no-any-return]


def sign_within(x: Tensor, width: Tensor) -> Tensor:
    """sign(x / width) for a positive width: the same signs, and a gradient 1 / width where |x| ≤ width.

    Dividing first would be wrong: a tiny negative x can become -0.0, which counts as ≥ 0.
    """

    def gradient_of(gradient: Tensor, x: Tensor) -> Tensor:
        return where_at_most_one(gradient, x / width) / width

    return _Binarize.apply(x, signs, gradient_of)  # type: ignore[no-untyped-call, no-any-return]


def bool_(x: Tensor) -> Tensor:
    """1 where x ≥ 0, 0 elsewhere; the gradient passes where |x| ≤ 1 (Eq. 10)."""
    return _Binarize.apply(x, bools, where_at_most_one)  # type: ignore[no-untyped-call, no-any-return]


def gelu_sign(x: Tensor) -> Tensor:
    """sign(gelu(x)), which equals sign(x): GELU affects only the gradient.

    The sign of a computed GELU would be wrong: below about -5.6 GELU underflows to -0.0, which counts as ≥ 0.
    """

    def gradient_of(gradient: Tensor, x: Tensor) -> Tensor:
        inside = torch.ops.aten.hardtanh_backward(gradient, x, -math.inf, AFTER_GELU_ONE)
        return torch.ops.aten.gelu_backward(inside, x)  # type: ignore[no-any-return]

    return _Binarize.apply(x, signs, gradient_of)  # type: ignore[no-untyped-call, no-any-return]


def straight_through(x: Tensor, levels: Tensor, window: Tensor | None = None) -> Tensor:
    """`levels` in the forward pass; the gradient passes to `x` where `window` is true, or everywhere without one."""
    return _StraightThrough.apply(x, levels, window)  # type: ignore[no-untyped-call, no-any-return]


def binarize_rows(weight: Tensor) -> Quantized:
    """sign(W - mu) and alpha of each row, with mu = mean(W) and alpha = mean|W| (Eq. 2).

    alpha has no gradient. The latent weight gets the gradient of the scaled weight inside |W - mu| ≤ 1, minus its row
    mean, because mu depends on the weight too.
    """
    alpha = weight.detach().abs().mean(dim=-1, keepdim=True)
    return Quantized(_BinarizeRows.apply(weight), alpha, whole=True)  # type: ignore[no-untyped-call]


def dequantize(x: Quantized) -> Tensor:
    """The value, scale · levels, with the gradient convention of `Quantized`."""
    if x.scale is None:
        return x.levels
    return straight_through(x.levels, x.levels.detach() * x.scale)


def bamm(weights: Quantized, value: Quantized) -> Tensor:
    """The paper's ⊠: attention weights in {0, 1} times values in ±1, (..., T, T) and (..., T, D) to (..., T, D).

    On bits it is 2·popcount(a & v) - popcount(a). The formula printed in the paper's appendix is wrong.
    """
    return rows_product(weights, Quantized(value.levels.transpose(-1, -2), value.scale))


class HeadLevels(NamedTuple):
    """Quantized queries, keys and values, (B, H, T, D) each, without their scales."""

    query: Tensor
    key: Tensor
    value: Tensor


class AttentionResult(NamedTuple):
    """The output of an attention, and its intermediate values for the trace."""

    context: Tensor  # (B, H, T, D)
    scores: Tensor  # (B, H, T, T), scaled by 1/√D, before the mask
    weights: Tensor  # (B, H, T, T), what multiplies the values
    levels: HeadLevels


def attention_scores(query: Quantized, key: Quantized) -> Tensor:
    """A = (B_Q ⊗ B_Kᵀ) / √D, the attention scores (Eq. 4)."""
    return rows_product(query, key) / math.sqrt(query.levels.shape[-1])


def mask_keys(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with the least float where `mask` is 0; a sum is ten times as fast as `masked_fill`."""
    return scores + (1 - mask) * torch.finfo(scores.dtype).min


def softmax(x: Tensor) -> Tensor:
    """The softmax of the last dimension; a short one is filled up with numbers whose weight is 0."""
    missing = SHORTEST_SOFTMAX - x.shape[-1]
    if missing <= 0:
        return torch.softmax(x, dim=-1)
    filled = torch.nn.functional.pad(x, (0, missing), value=torch.finfo(x.dtype).min)
    return torch.softmax(filled, dim=-1)[..., :-missing]


def bi_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, binarize: Map = bool_, threshold: Tensor | None = None
) -> AttentionResult:
    """The paper's Bi-Attention (Eq. 11 and 12): bool(A) ⊠ sign(V), without softmax; a mask sets weights to 0.

    Queries, keys and values are (B, H, T, D), before their signs; `mask` is 1 for real keys and broadcasts over
    (B, H, T, T). 1/√D does not change the forward pass: it sets the window of the gradient. `binarize` is `sign` in the
    appendix's third variant. `threshold` (H,) is the least score that is attended to; None means 0.
    """
    levels = HeadLevels(sign(query), sign(key), sign(value))
    scores = attention_scores(Quantized(levels.query), Quantized(levels.key))
    weights = binarize(scores if threshold is None else scores - threshold[:, None, None]) * mask
    return AttentionResult(bamm(Quantized(weights), Quantized(levels.value)), scores, weights, levels)


def exact_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, name: str = "LayerNorm") -> Tensor:
    """LayerNorm of (..., C) whose bits do not depend on the order of its sums (numeric contract, rule 7).

    Inputs are rounded to a grid of 2^-16, so that their sum and their sum of squares are 64-bit integers; mean and
    1/√(var + eps) follow in float64; each output is computed in float64 and rounded once to float32. For eval mode
    only: the statistics have no gradient.

    Raises:
        NumericError: a row is not finite or so long that its squares may overflow; the message begins with `name`. A
            network that can be packed has no such rows (`packed.bounds`).
    """
    longest = float(torch.linalg.vector_norm(x.detach(), dim=-1).amax()) if x.numel() else 0.0
    if not longest < LAYER_NORM_LIMIT:
        limits = f"a row of its input has the length {longest:g}, must stay below {LAYER_NORM_LIMIT:g}"
        raise NumericError(f"{name}: {limits}; the model has diverged: train it with a lower learning rate")
    grid = torch.round(x * GRID).to(torch.int64)
    channels = x.shape[-1]
    mean = grid.sum(dim=-1, keepdim=True).double() / channels
    variance = ((grid * grid).sum(dim=-1, keepdim=True).double() / channels - mean * mean).clamp_min(0.0)
    inverse = 1.0 / torch.sqrt(variance / GRID**2 + eps)
    return (((x.double() - mean / GRID) * inverse) * weight.double() + bias.double()).to(x.dtype)


def exact_tanh(x: Tensor) -> Tensor:
    """Tanh by basic operations in float64, rounded once (numeric contract, rule 7): no library's tanh differs from it.

    Lambert's continued fraction, cut off, for a 32nd of x; then tanh(2a) = 2·tanh(a) / (1 + tanh²(a)) five times.
    """
    small = x.double().clamp(-10.0, 10.0) / 32.0
    square = small * small
    value = small * (((square + 378.0) * square + 17325.0) * square + 135135.0)
    value = value / (((28.0 * square + 3150.0) * square + 62370.0) * square + 135135.0)
    for _ in range(5):
        value = (value + value) / (value * value + 1.0)
    return value.to(x.dtype)


def exact_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A float layer (B, C) to (B, N) in float64, one channel after the other, the bias last, rounded once (rule 7).

    Raises:
        NumericError: a logit is not finite.
    """
    total = torch.zeros(len(x), len(weight), dtype=torch.float64, device=x.device)
    for channel, column in zip(x.double().unbind(-1), weight.double().unbind(-1), strict=True):
        total = total + channel[:, None] * column
    out = (total + bias.double()).to(x.dtype)
    if not out.isfinite().all():
        raise NumericError("a logit is not finite; the model has diverged: train it with a lower learning rate")
    return out

"""Products of quantized tensors, forward and backward, and their precision: float32, bfloat16 or int8.

Levels are integers, so their products are exact in float32 and int8 (numeric contract, rules 4 and 10); bfloat16 rounds
attention scores of 2 and 4 bits while a student trains. Rounding also touches gradients and the full-precision teacher:
inside `in_int8` each row of a gradient, of a hidden state and of a teacher's weight becomes integers from -127 to 127
and one scale. With VNNI instructions a CPU multiplies these two to seven times as fast as bfloat16.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGEST = 127.0  # of an int8 row
TINY = 1e-30  # keeps the scale of a row of zeros above 0

_IN_INT8 = ContextVar("_IN_INT8", default=False)


@contextmanager
def in_int8() -> Iterator[None]:
    """Inside, products on a CPU are computed in int8; backward passes follow their forward pass."""
    token = _IN_INT8.set(True)
    try:
        yield
    finally:
        _IN_INT8.reset(token)


class Quantized(NamedTuple):
    """A tensor as the levels that enter a matrix product and the scale that is applied after it.

    By convention `levels` receives the gradient of the scaled value `scale * levels`: a straight-through quantizer
    passes it to its latent input unchanged, without a factor `scale`.
    """

    levels: Tensor
    scale: Tensor | None = None  # (..., rows, 1), broadcast over a row of levels; None means 1
    whole: bool = False  # levels are integers of at most 8 bits


class Int8(NamedTuple):
    """A matrix as one int8 matrix and the scale of each row, (rows, 1), or of each column, (1, columns)."""

    levels: Tensor
    scale: Tensor


def nearest_int8(x: Tensor, factor: Tensor | None = None, dim: int = -1) -> Int8:
    """The nearest int8 matrix to x · factor, with a scale for each row (dim -1) or column (dim 0).

    NaN and infinity make their scale NaN or infinite.
    """
    x = x if factor is None else x * factor
    largest = torch.maximum(x.amax(dim=dim, keepdim=True), x.amin(dim=dim, keepdim=True).neg())
    scale = largest.clamp_min(TINY) / LARGEST
    return Int8((x / scale).round_().to(torch.int8), scale)


def linear(x: Tensor, weight: Int8, bias: Tensor) -> Tensor:
    """A linear layer in int8: the rows of `x`, (..., in), are rounded too."""
    rows = nearest_int8(x.reshape(-1, x.shape[-1]))
    product = torch._int_mm(rows.levels, weight.levels.t()).to(x.dtype)
    return scaled(product, rows.scale, weight.scale.t(), bias).view(*x.shape[:-1], -1)


def scaled(product: Tensor, rows: Tensor | None, columns: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """A product, changed in place, with the scales of its rows, (m, 1), and columns, (1, n), and a bias.

    A scale of `rows` that is a single number is multiplied with those of the columns first, because the engine stores
    both as one scale; otherwise the columns come first.
    """
    if rows is not None and columns is not None and rows.numel() == 1:
        columns, rows = columns * rows, None
    for factor in (columns, rows):
        if factor is not None:
            product.mul_(factor)
    return product if bias is None else product.add_(bias)


def computes_in_int8(device: str) -> bool:
    """Whether products are computed in int8 here."""
    return device == "cpu" and _IN_INT8.get()


class _RowsProduct(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913 - levels and scale of both operands
        ctx: Any, a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, bias: Tensor | None, whole: bool
    ) -> Tensor:
        # The integer product first, the scale after it: exact in float32 below 2^24.
        device, dtype = a.device.type, a.dtype
        ctx.int8 = whole and computes_in_int8(device)
        ctx.dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else dtype
        if ctx.int8 or ctx.dtype != dtype:
            stored = torch.int8 if whole and device == "cpu" else ctx.dtype
            a, b = (x.to(stored, memory_format=torch.contiguous_format) for x in (a, b))
        product = (torch._int_mm(a, b.t()) if a.dtype == torch.int8 else a @ b.transpose(-1, -2)).to(dtype)
        ctx.save_for_backward(a, b, scale_a, scale_b)
        return scaled(product, scale_a, None if scale_b is None else scale_b.transpose(-1, -2), bias)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, Tensor | None, None]:
        def product(levels: Tensor, factor: Tensor | None, dim: int) -> Tensor:
            """The gradient, or for dim 0 its transpose, times a scale and times levels."""
            if ctx.int8:
                part, scale = nearest_int8(gradient, factor, dim)
                part, scale = (part, scale) if dim else (part.t(), scale.t())
                return scaled(torch._int_mm(part, levels).to(gradient.dtype), scale, None)
            part = gradient if factor is None else gradient * factor
            part = part if dim else part.transpose(-1, -2)
            return (part.to(ctx.dtype) @ levels.to(ctx.dtype)).to(gradient.dtype)

        a, b, scale_a, scale_b = ctx.saved_tensors
        needs_a, needs_b, _, needs_scale, needs_bias, _ = ctx.needs_input_grad
        grad_a = grad_b = grad_scale = None
        if needs_a:
            grad_a = product(b, None if scale_b is None else scale_b.transpose(-1, -2), dim=-1)
        if needs_b or needs_scale:
            grad_b = product(a, scale_a, dim=0)
            if needs_scale:
                grad_scale = (b * grad_b).sum(dim=-1, keepdim=True)  # = Σ gradient · product, without the product
        return grad_a, grad_b, None, grad_scale, gradient.sum(dim=0) if needs_bias else None, None


def rows_product(a: Quantized, b: Quantized, bias: Tensor | None = None) -> Tensor:
    """Every row of `a` with every row of `b`: scale_a · scale_b · (a @ bᵀ), (..., m, k) and (..., n, k) to (..., m, n).

    For levels ±1 this is the paper's ⊗: n - 2·popcount(a ^ b). A `bias` (n,) is for matrices only.
    """
    whole = a.whole and b.whole and a.levels.dim() == 2
    return _RowsProduct.apply(a.levels, b.levels, a.scale, b.scale, bias, whole)  # type: ignore[no-untyped-call, no-any-return]


def bi_linear(x: Quantized, weight: Quantized, bias: Tensor | None = None) -> Tensor:
    """The paper's bi-linear layer (Eq. 2), alpha · (sign(x) ⊗ sign(W - mu)), for operands of any quantizer.

    Eq. 2 itself is `bi_linear(Quantized(sign(x)), binarize_rows(weight))`. (..., in) and (out, in) to (..., out).
    """
    lead = x.levels.shape[:-1]
    scale = x.scale if x.scale is None or x.scale.numel() == 1 else x.scale.expand(*lead, 1).reshape(-1, 1)
    scale = scale.view(1, 1) if scale is not None and scale.numel() == 1 else scale
    flat = rows_product(Quantized(x.levels.reshape(-1, x.levels.shape[-1]), scale, x.whole), weight, bias)
    return flat.view(*lead, -1)

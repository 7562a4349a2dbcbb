"""Direction-Matching Distillation (the paper's Section 3.3.2): compare directions, not sizes.

P_Q = QQᵀ / ‖QQᵀ‖ and so on are similarity matrices of the tokens of one text. A term is ‖P - P_T‖, which equals
√(2 - 2·cos) of the two matrices: it depends on their direction alone. The terms that compare values are in
`vanilla`; weights, layers and sums are in `objective`.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

NormScope = Literal["sample", "batch"]
TINY = 1e-12  # keeps the direction of an all-zero tensor finite


class _Similarity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.transpose(-1, -2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return (gradient + gradient.transpose(-1, -2)) @ x  # one product where autograd would take two


class _DirectionDistance(torch.autograd.Function):
    """d = ‖S/‖S‖ - T/‖T‖‖ with ∂d/∂S = (cos · S/‖S‖ - T/‖T‖) / (‖S‖ d), which is 0 at d = 0."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, dims: tuple[int, ...]) -> Tensor:
        size_s, size_t = (size(x, dims).clamp_min(TINY) for x in (student, teacher))
        distance = size(student / size_s - teacher / size_t, dims)
        ctx.save_for_backward(student, teacher, size_s, size_t, distance)
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        student, teacher, size_s, size_t, distance = ctx.saved_tensors
        slope = torch.where(distance > 0, gradient / (size_s * distance), 0.0)
        cosine = 1 - distance * distance / 2
        return student * (slope * cosine / size_s) - teacher * (slope / size_t), None, None


def size(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The Euclidean norm over some dimensions, which stay as 1."""
    return (x * x).sum(dim=dims, keepdim=True).sqrt()


def similarity(x: Tensor) -> Tensor:
    """XXᵀ of each head, (B, H, T, D) to (B, H, T, T); its scale does not matter."""
    return _Similarity.apply(x)  # type: ignore[no-untyped-call, no-any-return]


def direction_distance(student: Tensor, teacher: Tensor, kept: int, scope: NormScope) -> Tensor:
    """‖S/‖S‖ - T/‖T‖‖, a number from 0 to 2; the mean over the first `kept` dimensions.

    Args:
        student: any tensor with the batch first; padding is already 0.
        teacher: the same shape; it takes no gradient.
        kept: how many leading dimensions have a norm of their own: 2 for (sample, head), 1 for sample.
        scope: "sample" is the paper's reading, a norm per matrix; "batch" is the released code's, one norm over
            the whole tensor, by which long texts and large heads weigh more.
    """
    dims = tuple(range(kept if scope == "sample" else 0, student.dim()))
    return _DirectionDistance.apply(student, teacher, dims).mean()  # type: ignore[no-untyped-call, no-any-return]


def dmd_loss(student: Tensor, teacher: Tensor, mask: Tensor, scope: NormScope) -> Tensor:
    """‖P_F - P_F,T‖ for one F of {Q, K, V} in one layer; (B, H, T, D) each, `mask` (B, T) or ones."""
    real = mask[:, None, :, None]
    return direction_distance(similarity(student * real), similarity(teacher * real), 2, scope)


def hidden_direction_loss(student: Tensor, teacher: Tensor, mask: Tensor, scope: NormScope) -> Tensor:
    """The paper's hidden-state term "in ℓ2-normalized form"; (B, T, C) each, `mask` (B, T) or ones."""
    real = mask[:, :, None]
    return direction_distance(student * real, teacher * real, 1, scope)

"""The terms of a distillation loss, each between one tensor of the student and the teacher's.

The usual terms (the paper's Section 2.2) compare numbers: mean squared errors of features, soft cross-entropy of
logits. Direction-Matching Distillation (Section 3.3.2) compares directions: P_Q = QQᵀ / ‖QQᵀ‖ is the similarity matrix
of the tokens of one text, and a term ‖P - P_T‖ equals √(2 - 2·cos) of the two matrices. Every term is computed per
text, over its real tokens, and then averaged over heads and over the batch. So it does not depend on padding, and the
mean over the processes of a distributed run is the loss of the whole batch; `norm_scope = "batch"` is the exception.
Each function sees one layer; `objective` sums over layers and applies the weights. The teacher is frozen: no `detach`.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

NormScope = Literal["sample", "batch"]
TINY = 1e-12  # keeps the direction of an all-zero tensor finite


def token_mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """MSE of hidden states or MHA outputs; (B, T, C) each, `mask` (B, T)."""
    squares = (student - teacher).pow(2).mean(dim=-1) * mask
    return (squares.sum(dim=-1) / mask.sum(dim=-1).clamp_min(1)).mean()


def score_mse(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """MSE of attention scores over pairs of real tokens; (B, H, T, T) each, `mask` (B, T)."""
    pairs = mask[:, :, None] * mask[:, None, :]
    squares = (student - teacher).pow(2).mean(dim=1) * pairs
    return (squares.sum(dim=(-1, -2)) / pairs.sum(dim=(-1, -2)).clamp_min(1)).mean()


def prediction_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Soft cross-entropy of the logits (B, labels); MSE for one output, whose soft cross-entropy is always 0."""
    if student.shape[-1] == 1:
        return F.mse_loss(student, teacher)
    return F.cross_entropy(student, teacher.softmax(dim=-1))


class _Similarity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.transpose(-1, -2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return (gradient + gradient.transpose(-1, -2)) @ x  # autograd would compute two products


class _DirectionDistance(torch.autograd.Function):
    """d = ‖S/‖S‖ - T/‖T‖‖ with ∂d/∂S = (cos · S/‖S‖ - T/‖T‖) / (‖S‖ d), which is 0 at d = 0."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, mask: Tensor, dims: tuple[int, ...]) -> Tensor:
        norm_s, norm_t = (norm((x * x).mul_(mask), dims).clamp_min(TINY) for x in (student, teacher))
        distance = norm((student / norm_s).sub_(teacher / norm_t).square_().mul_(mask), dims)
        ctx.save_for_backward(student, teacher, mask, norm_s, norm_t, distance)
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        student, teacher, mask, norm_s, norm_t, distance = ctx.saved_tensors
        slope = torch.where(distance > 0, gradient / (norm_s * distance), 0.0)
        cosine = 1 - distance * distance / 2
        difference = (student * (slope * cosine / norm_s)).sub_(teacher * (slope / norm_t))
        return difference.mul_(mask), None, None, None


def norm(squares: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The Euclidean norm, from squares, over some dimensions, which are kept with size 1."""
    return squares.sum(dim=dims, keepdim=True).sqrt()


def similarity(x: Tensor) -> Tensor:
    """XXᵀ of each head, (B, H, T, D) to (B, H, T, T)."""
    return _Similarity.apply(x)  # type: ignore[no-untyped-call, no-any-return]


def direction_distance(
    student: Tensor, teacher: Tensor, mask: Tensor, norm_scope: NormScope, *, lead_dims: int
) -> Tensor:
    """The mean of ‖S/‖S‖ - T/‖T‖‖ where `mask` is 1, a number from 0 to 2; the teacher has no gradient.

    Scope "sample", the paper's reading, takes a norm per index of the first `lead_dims` dimensions: 2 for (sample,
    head), 1 for sample. "batch", the released code's, takes one for the tensor: long texts and large heads dominate.
    """
    dims = tuple(range(lead_dims if norm_scope == "sample" else 0, student.dim()))
    return _DirectionDistance.apply(student, teacher, mask, dims).mean()  # type: ignore[no-untyped-call, no-any-return]


def dmd_loss(student: Tensor, teacher: Tensor, mask: Tensor, norm_scope: NormScope) -> Tensor:
    """‖P_F - P_F,T‖ for one F of {Q, K, V} of any scale; (B, H, T, D) each, `mask` (B, T) or ones."""
    pairs = mask[:, None, :, None] * mask[:, None, None, :]
    return direction_distance(similarity(student), similarity(teacher), pairs, norm_scope, lead_dims=2)


def sentence(states: Tensor, mask: Tensor) -> Tensor:
    """The embedding of each text as sentence encoders define it, the mean over its tokens: (B, T, C) to (B, C)."""
    return (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)


def hidden_direction_loss(student: Tensor, teacher: Tensor, mask: Tensor, norm_scope: NormScope) -> Tensor:
    """The paper's hidden-state term "in ℓ2-normalized form"; (B, T, C) each, `mask` (B, T) or ones."""
    return direction_distance(student, teacher, mask[:, :, None], norm_scope, lead_dims=1)

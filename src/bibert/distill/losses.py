"""The terms of a distillation loss, each between one tensor of the student and the teacher's.

The usual terms (the paper's Section 2.2) compare numbers: mean squared errors of features, soft cross-entropy of
logits. Direction-Matching Distillation (Section 3.3.2) compares directions: P_Q = QQᵀ / ‖QQᵀ‖ is the similarity matrix
of the tokens of one text, and a term ‖P - P_T‖ equals √(2 - 2·cos) of the two matrices. Every term is computed per
text, over its real tokens, and then averaged over heads and over the batch. So it does not depend on padding, and the
mean over the processes of a distributed run is the loss of the whole batch; `norm_scope = "batch"` is the exception.
Each function sees one layer; `objective` sums over layers and applies the weights. The teacher is frozen: no `detach`.
"""

import math
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


class _DirectionDistance(torch.autograd.Function):
    """d = ‖S/‖S‖ - T/‖T‖‖ of each group, with ∂d/∂S = (S/‖S‖ - T/‖T‖ - d²/2 · S/‖S‖) / (‖S‖ d), which is 0 at d = 0.

    S is the student's masked tensor X, or XXᵀ; then ∂d/∂X = 2 · ∂d/∂S · X. The gradient is computed in the forward
    pass, because it is smaller than XXᵀ, which need not be kept.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, mask: Tensor, lead_dims: int, similar: bool) -> Tensor:
        x, y = (torch.mul(one, mask, out=one.new_empty(one.shape)) for one in (student, teacher))
        s, t = (similarity(one) if similar else one for one in (x, y))
        groups = math.prod(x.shape[:lead_dims])
        s, t = s.view(groups, -1), t.view(groups, -1)
        norm_s, norm_t = norm(s).clamp_min_(TINY), norm(t).clamp_min_(TINY)
        difference = torch.sub(s.div_(norm_s), t.div_(norm_t), out=t)
        distance = norm(difference)
        if ctx.needs_input_grad[0]:
            slope = torch.where(distance > 0, (2 if similar else 1) / (norm_s * distance), 0.0)
            gradient = difference.addcmul_(s, distance * distance, value=-0.5).mul_(slope)
            gradient = gradient.view(*x.shape[:-1], -1) @ x if similar else gradient.view_as(x)
            ctx.save_for_backward(gradient.mul_(mask))
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        slope: Tensor = ctx.saved_tensors[0]
        return (slope.view(len(gradient), -1) * gradient).view_as(slope), None, None, None, None


def norm(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row, (rows, 1)."""
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True)  # type: ignore[no-any-return]


def similarity(x: Tensor) -> Tensor:
    """XXᵀ of each head, (B, H, T, D) to (B, H, T, T)."""
    return x @ x.transpose(-1, -2)


def direction_distance(
    student: Tensor, teacher: Tensor, mask: Tensor, norm_scope: NormScope, *, lead_dims: int, similar: bool = False
) -> Tensor:
    """The mean of ‖S/‖S‖ - T/‖T‖‖ where `mask` is 1, a number from 0 to 2; the teacher has no gradient.

    Scope "sample", the paper's reading, takes a norm per index of the first `lead_dims` dimensions: 2 for (sample,
    head), 1 for sample. "batch", the released code's, takes one for the tensor: long texts and large heads dominate.
    `similar` compares the similarities of the last two dimensions, XXᵀ, instead of the tensors.
    """
    lead_dims = lead_dims if norm_scope == "sample" else 0
    return _DirectionDistance.apply(student, teacher, mask, lead_dims, similar).mean()  # type: ignore[no-untyped-call, no-any-return]


def dmd_loss(student: Tensor, teacher: Tensor, mask: Tensor, norm_scope: NormScope) -> Tensor:
    """‖P_F - P_F,T‖ for one F of {Q, K, V} of any scale; (B, H, T, D) each, `mask` (B, T) or ones."""
    return direction_distance(student, teacher, mask[:, None, :, None], norm_scope, lead_dims=2, similar=True)


def sentence(states: Tensor, mask: Tensor) -> Tensor:
    """The embedding of each text as sentence encoders define it, the mean over its tokens: (B, T, C) to (B, C)."""
    return (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)


def hidden_direction_loss(student: Tensor, teacher: Tensor, mask: Tensor, norm_scope: NormScope) -> Tensor:
    """The paper's hidden-state term "in ℓ2-normalized form"; (B, T, C) each, `mask` (B, T) or ones."""
    return direction_distance(student, teacher, mask[:, :, None], norm_scope, lead_dims=1)

"""The usual distillation terms (the paper's Section 2.2): mean squared errors of features, soft cross-entropy.

Every mean is taken within a text first, over its real tokens, and then over the batch. So a loss does not depend
on padding, and the mean over the processes of a distributed run is the loss of the whole batch.
"""

from torch import Tensor
from torch.nn import functional as F


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
    """Soft cross-entropy of the logits (B, labels), per text; MSE where there is one output (regression).

    With one output the soft cross-entropy is 0 whatever the student says, so it could not teach anything.
    """
    if student.shape[-1] == 1:
        return F.mse_loss(student, teacher)
    return F.cross_entropy(student, teacher.softmax(dim=-1))

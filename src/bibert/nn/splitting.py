"""BinaryBERT's two moves: cut a teacher to half its width, and split a ternary weight into two binary ones.

Splitting is exact: with TWN(w) the ternary weight, BWN(a) + BWN(b) = TWN(w) and a + b = w. DynaBERT, from which
BinaryBERT takes its half-width model, orders heads and neurons by importance; here importance is the size of a
head's or neuron's output weights.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from bibert.nn.config import BiBertConfig
from bibert.nn.layers import QuantEmbedding, QuantLinear
from bibert.nn.model import BertLayer, BiBertForSequenceClassification
from bibert.nn.quantizers import Scope, twn


def split_ternary(weight: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Two latent weights whose binarized sum is the ternary `weight` and whose sum is `weight`.

    Where TWN(w) is not 0: a·w and (1 - a)·w. Where it is: w + c and -c for w > 0, c and w - c for w ≤ 0. The two
    numbers a and c, one pair per scale, make both halves have the same mean size. This needs 0 < a < 1: the sum of
    the small weights must be less than the summed size of the large ones, as it is unless they all lean to one side.

    Args:
        weight: the latent weight.
        dims: the dimensions that share one scale: (-2, -1) for a linear layer, (-1,) for an embedding.
    """
    w = weight.detach().double()
    ternary = twn(w, Scope(2, dims))
    alpha = ternary.scale
    assert alpha is not None  # TWN always has a scale
    size, zero = w.abs(), (ternary.levels == 0).double()
    count = math.prod(w.shape[dim] for dim in dims)
    zeros = zero.sum(dim=dims, keepdim=True)
    c = (alpha * count - size.sum(dim=dims, keepdim=True)) / (2 * zeros).clamp_min(1)
    up = torch.where(w > 0, w + c, c.expand_as(w))  # the first half, where the ternary weight is 0
    down = torch.where(w > 0, -c.expand_as(w), w - c)
    kept = (size * (1 - zero)).sum(dim=dims, keepdim=True)
    surplus = ((down.abs() - up.abs()) * zero).sum(dim=dims, keepdim=True)
    a = (kept + surplus) / (2 * kept).clamp_min(torch.finfo(torch.float64).tiny)
    first = torch.where(zero == 1, up, a * w)
    second = torch.where(zero == 1, down, (1 - a) * w)
    return first.to(weight.dtype), second.to(weight.dtype)


@torch.no_grad()
def split_model(
    ternary: BiBertForSequenceClassification, split: BiBertForSequenceClassification
) -> BiBertForSequenceClassification:
    """Fill `split`, which has twin weights, from a ternary model of the same shape."""
    split.load_state_dict(ternary.state_dict(), strict=False)
    for module in split.modules():
        if isinstance(module, QuantLinear | QuantEmbedding) and module.twin_weight is not None:
            dims = (-2, -1) if isinstance(module, QuantLinear) else (-1,)
            first, second = split_ternary(module.weight, dims)
            module.weight.copy_(first)
            module.twin_weight.copy_(second)
    return split


@torch.no_grad()
def half_width(teacher: BiBertForSequenceClassification) -> BiBertForSequenceClassification:
    """The teacher with the more important half of its heads and FFN neurons; the hidden size stays."""
    heads = max(1, teacher.config.num_attention_heads // 2)
    neurons = max(1, teacher.config.intermediate_size // 2)
    kept_heads = [_important_heads(layer, heads) for layer in _layers(teacher)]
    values = teacher.config.to_dict() | {
        "num_attention_heads": heads,
        "attention_head_size": teacher.config.head_size,
        "intermediate_size": neurons,
        "kept_heads": kept_heads,
    }
    values.pop("model_type")
    student = BiBertForSequenceClassification(BiBertConfig(**values))
    cut = {name for name, value in student.state_dict().items() if value.shape != teacher.state_dict()[name].shape}
    student.load_state_dict({k: v for k, v in teacher.state_dict().items() if k not in cut}, strict=False)
    for narrow, wide, kept in zip(_layers(student), _layers(teacher), kept_heads, strict=True):
        _copy_heads(narrow, wide, torch.tensor(kept))
        _copy_neurons(narrow, wide, neurons)
    return student


def _layers(model: BiBertForSequenceClassification) -> list[BertLayer]:
    return cast("list[BertLayer]", list(model.bert.encoder.layer))


def _important_heads(layer: BertLayer, heads: int) -> list[int]:
    output = layer.attention.output.dense.weight  # (C, H · D)
    size = output.view(output.shape[0], -1, layer.attention.self.head_size).pow(2).sum(dim=(0, 2))
    return sorted(size.topk(heads).indices.tolist())


def _copy_heads(narrow: BertLayer, wide: BertLayer, heads: Tensor) -> None:
    size = wide.attention.self.head_size
    channels = (heads[:, None] * size + torch.arange(size)).flatten()
    for name in ("query", "key", "value"):
        _copy_rows(getattr(narrow.attention.self, name), getattr(wide.attention.self, name), channels)
    narrow.attention.output.dense.weight.copy_(wide.attention.output.dense.weight[:, channels])


def _copy_neurons(narrow: BertLayer, wide: BertLayer, neurons: int) -> None:
    size = wide.output.dense.weight.pow(2).sum(dim=0)
    kept = size.topk(neurons).indices.sort().values
    _copy_rows(narrow.intermediate.dense, wide.intermediate.dense, kept)
    narrow.output.dense.weight.copy_(wide.output.dense.weight[:, kept])


def _copy_rows(narrow: nn.Linear, wide: nn.Linear, rows: Tensor) -> None:
    narrow.weight.copy_(wide.weight[rows])
    narrow.bias.copy_(wide.bias[rows])

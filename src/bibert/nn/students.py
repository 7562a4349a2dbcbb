"""Students: a copy of a full-precision BERT under a scheme, with the same latent weights.

Split schemes (BinaryBERT) cut the teacher to half its width, train it with ternary weights and split each of them into
two binary ones. Splitting is exact: BWN(a) + BWN(b) = TWN(w) and a + b = w. BinaryBERT takes its half-width model from
DynaBERT, which ranks heads and neurons by importance; here importance is the size of their output weights.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from bibert.errors import SchemeError
from bibert.nn.layers import BiBertConfig, QuantEmbedding, QuantLinear
from bibert.nn.model import BertLayer, BiBertForSequenceClassification, evaluating
from bibert.nn.quantizers import Calibrated, Scope, twn
from bibert.nn.schemes import Bits, Scheme, as_scheme

# The fields of a scheme that say how activations are quantized.
OF_ACTIVATIONS = ("activation", "ffn_hidden", "ffn_activation", "attention", "normalizer", "kept", "attention_bits")


def binarize(teacher: BiBertForSequenceClassification, scheme: Scheme | str) -> BiBertForSequenceClassification:
    """A student under `scheme`, a row of `SCHEMES` by name or a value, with the weights of a full-precision teacher."""
    row = as_scheme(scheme)
    student = first_student(teacher, row)
    return split_student(student, row) if row.split else student


def first_student(teacher: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    """The student of the first stage of the scheme's schedule."""
    if not scheme.split:
        return with_scheme(teacher, scheme)
    return with_scheme(half_width(teacher), half_width_ternary(scheme))


def half_width_ternary(scheme: Scheme) -> Scheme:
    """The scheme of the ternary student that BinaryBERT trains first and then splits into `scheme`."""
    if not scheme.split:
        raise SchemeError(f"scheme {scheme.name!r} is not split, so it has no ternary first student")
    bits = Bits(2, 2, scheme.bits.activation)
    return replace(scheme, name=f"{scheme.name}/ternary", bits=bits, weight="twn", embedding="twn", split=False)


def with_scheme(model: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    """A copy of `model` under another scheme, parameter by parameter."""
    if model.config.quantization.split != scheme.split:
        both = f"a model of scheme {model.config.quantization.name!r} cannot become {scheme.name!r}"
        raise SchemeError(f"{both}: only one has split weights; start from the full-precision teacher")
    student = _untrained(model, scheme=scheme.to_dict())
    missing, unexpected = student.load_state_dict(model.state_dict(), strict=False)
    own = (".step", ".range", ".threshold", ".gain")  # a scheme may have its own
    if lost := [name for name in (*missing, *unexpected) if not name.endswith(own)]:
        raise SchemeError(f"scheme {scheme.name!r}: parameters {lost[:3]} do not carry over")
    return student


def _untrained(model: BiBertForSequenceClassification, **changes: Any) -> BiBertForSequenceClassification:
    values = model.config.to_dict() | changes
    values.pop("model_type")
    return BiBertForSequenceClassification(BiBertConfig(**values))


def calibrate(
    model: BiBertForSequenceClassification, batch: dict[str, Tensor], source: BiBertForSequenceClassification
) -> None:
    """Initialise learned steps, moving ranges and gains of signs from one batch, if the scheme has any.

    `source` is the model that `model` was made from. If it quantizes activations in the same way, its steps, ranges and
    gains were copied and are kept.
    """
    sites = [module for module in model.modules() if isinstance(module, Calibrated)]
    before, now = source.config.quantization, model.config.quantization
    same = before.bits.activation == now.bits.activation
    same &= all(getattr(before, name) == getattr(now, name) for name in OF_ACTIVATIONS)
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    if now.activation == "sign" != before.activation and now.gain != "none":
        fit_gains(model, inputs, source)
    if not sites or same:
        return
    for site in sites:
        site.calibrating = True
    try:
        with evaluating(model):
            model(**inputs)
    finally:
        for site in sites:
            site.calibrating = False


@torch.no_grad()
def fit_gains(
    model: BiBertForSequenceClassification, inputs: Mapping[str, Tensor], source: BiBertForSequenceClassification
) -> None:
    """Multiply each gain by the mean size of the inputs of its layer in `source`, of which a sign keeps nothing.

    Without this a layer adds several times as much to the residual as it did in `source`, most of it noise. An input in
    {0, 1} stands for the positive values.
    """
    with evaluating(source):
        trace = source(**inputs, trace=True).trace
    assert trace is not None
    real, states = trace.mask.bool(), trace.hidden_states
    bools = model.config.quantization.part("output").ffn_quantizer == "bool"
    bert: Any = model.bert
    fit = {bert.pooler.dense: states[-1][:, 0]}
    for layer, state, inside in zip(bert.encoder.layer, states, trace.layers, strict=False):
        attention, of_values = layer.attention, inside.ffn_hidden[real]
        fit |= dict.fromkeys((attention.self.query, attention.self.key, attention.self.value), state[real])
        fit |= {attention.output.dense: inside.context[real], layer.intermediate.dense: state[real]}
        fit[layer.output.dense] = of_values[of_values > 0] if bools else of_values
    for linear, values in fit.items():
        if linear.gain is not None:
            linear.gain.mul_(values.abs().mean())


@torch.no_grad()
def split_student(ternary: BiBertForSequenceClassification, scheme: Scheme) -> BiBertForSequenceClassification:
    """BinaryBERT's second student: two binary weights for each ternary one, with the same sum."""
    split = _untrained(ternary, scheme=scheme.to_dict())
    split.load_state_dict(ternary.state_dict(), strict=False)
    for module in split.modules():
        if isinstance(module, QuantLinear | QuantEmbedding) and module.twin_weight is not None:
            dims = (-2, -1) if isinstance(module, QuantLinear) else (-1,)
            first, second = split_ternary(module.weight, dims)
            module.weight.copy_(first)
            module.twin_weight.copy_(second)
    return split


def split_ternary(weight: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Two latent weights with the sum `weight`, whose binarized sum is the ternary `weight`; `dims` share one scale.

    Where TWN(w) is not 0: a·w and (1 - a)·w. Where it is 0: w + c and -c for w > 0, c and w - c for w ≤ 0. One pair of
    a and c per scale makes the mean sizes of both halves equal. This needs 0 < a < 1: the sum of the small weights must
    be less than the summed size of the large ones, which holds unless almost all have the same sign.
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
def half_width(teacher: BiBertForSequenceClassification) -> BiBertForSequenceClassification:
    """The teacher with the more important half of its heads and FFN neurons; the hidden size stays."""
    heads = max(1, teacher.config.num_attention_heads // 2)
    neurons = max(1, teacher.config.intermediate_size // 2)
    outputs = [layer.attention.output.dense.weight for layer in _layers(teacher)]  # (C, H · D) each
    sizes = [output.view(len(output), -1, teacher.config.head_size).pow(2).sum(dim=(0, 2)) for output in outputs]
    kept_heads = [sorted(size.topk(heads).indices.tolist()) for size in sizes]
    shape = {"attention_head_size": teacher.config.head_size, "intermediate_size": neurons}
    student = _untrained(teacher, num_attention_heads=heads, kept_heads=kept_heads, **shape)
    shapes = {name: value.shape for name, value in student.state_dict().items()}
    whole = {name: value for name, value in teacher.state_dict().items() if shapes[name] == value.shape}
    student.load_state_dict(whole, strict=False)
    for narrow, wide, kept in zip(_layers(student), _layers(teacher), kept_heads, strict=True):
        mine, theirs, size = narrow.attention, wide.attention, wide.attention.self.head_size
        channels = (torch.tensor(kept)[:, None] * size + torch.arange(size)).flatten()
        for name in ("query", "key", "value"):
            _copy_rows(getattr(mine.self, name), getattr(theirs.self, name), channels)
        mine.output.dense.weight.copy_(theirs.output.dense.weight[:, channels])
        important = wide.output.dense.weight.pow(2).sum(dim=0).topk(neurons).indices.sort().values
        _copy_rows(narrow.intermediate.dense, wide.intermediate.dense, important)
        narrow.output.dense.weight.copy_(wide.output.dense.weight[:, important])
    return student


def _layers(model: BiBertForSequenceClassification) -> list[BertLayer]:
    return cast("list[BertLayer]", list(model.bert.encoder.layer))


def _copy_rows(narrow: nn.Linear, wide: nn.Linear, rows: Tensor) -> None:
    narrow.weight.copy_(wide.weight[rows])
    narrow.bias.copy_(wide.bias[rows])

"""The inside of a torch model whose activations have one bit, or full precision: see `look` for the form.

A full-precision model is shown as a sign would see it: its bits are the signs of its values. All its attention bits,
signs of a softmax, are therefore 1: the paper's argument against binarizing a softmax (Section 3.2.1).
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from bibert.errors import SchemeError
from bibert.lab.look import Arrays, Flags, Floats, Inside, LayerInside, by_head
from bibert.nn.layers import LayerTrace, QuantLinear
from bibert.nn.model import LINEARS, BertLayer, BiBertForSequenceClassification, Trace, evaluating
from bibert.nn.schemes import Scheme


def inside_of_network(model: BiBertForSequenceClassification, batch: Arrays) -> Inside:
    """Read a batch with a network in eval mode."""
    return inside_of_trace(model, trace_of(model, {name: torch.from_numpy(array) for name, array in batch.items()}))


def trace_of(model: BiBertForSequenceClassification, inputs: Mapping[str, Tensor]) -> Trace:
    """The trace of a pass in eval mode; the model's mode is restored."""
    with evaluating(model):
        trace: Trace = model(**{name: value.to(model.device) for name, value in inputs.items()}, trace=True).trace
    return trace


@torch.no_grad()
def inside_of_trace(model: BiBertForSequenceClassification, trace: Trace) -> Inside:
    """The inside of a traced pass; activations of several bits raise a `SchemeError`."""
    scheme = model.config.quantization
    if scheme.is_quantized and not scheme.is_binarized:
        kept = f" and keeps {', '.join(scheme.kept)}" if scheme.kept else ""
        raise SchemeError(
            f"scheme {scheme.name!r} has activations of {scheme.bits.activation} bits{kept}; only single bits can be "
            "shown: give a 1-bit student, or a full-precision model"
        )
    pairs = zip(model.bert.encoder.layer, trace.layers, strict=True)
    real = trace.mask.cpu().numpy() == 1
    return Inside(real, tuple(_layer(scheme, block, layer, real) for block, layer in pairs))


def _layer(scheme: Scheme, block: nn.Module, trace: LayerTrace, real: Flags) -> LayerInside:
    assert isinstance(block, BertLayer)
    projection, output = block.attention.output, block.output
    context = projection.dense.input_quantizer(projection.input_shift(trace.context)).levels
    ffn_hidden = output.dense.input_quantizer(output.input_shift(trace.ffn_hidden)).levels
    attention = trace.weights.cpu().numpy()
    zero_is_one = not scheme.is_quantized  # the sign of a float counts 0 as +1; a level of 0 is a bit of 0
    has_bits = not scheme.split and (scheme.bits.weight == 1 or not scheme.is_quantized)
    return LayerInside(
        **{name: _bits(getattr(trace.levels, name), zero_is_one) for name in ("query", "key", "value")},
        attention=attention,
        attended=_attended(scheme, attention, real),
        context=by_head(_bits(context, zero_is_one), block.attention.self.heads),
        ffn_hidden=_bits(ffn_hidden, zero_is_one),
        weights=lambda: {name: _weight_bits(block.get_submodule(path)) for name, path in LINEARS.items() if has_bits},
    )


def _bits(levels: Tensor, zero_is_one: bool) -> Flags:
    flags: Flags = (levels >= 0 if zero_is_one else levels > 0).cpu().numpy()
    return flags


def _attended(scheme: Scheme, attention: Floats, real: Flags) -> Flags:
    """The bits of attention weights; `asym` has two values in a row, of which the larger one is the 1."""
    keys = real[:, None, None, :]
    if scheme.attention == "asym":
        low = np.where(keys, attention, np.inf).min(axis=-1, keepdims=True)
        high = np.where(keys, attention, -np.inf).max(axis=-1, keepdims=True)
        flags: Flags = (attention >= (low + high) / 2) & keys
        return flags
    return (attention > 0 if scheme.is_quantized else attention >= 0) & keys


@torch.no_grad()
def _weight_bits(linear: nn.Module) -> Flags:
    assert isinstance(linear, QuantLinear)
    if linear.quantizer == "none":
        return _bits(linear.weight, zero_is_one=True)
    return _bits(linear.quantized_weight().levels, zero_is_one=False)

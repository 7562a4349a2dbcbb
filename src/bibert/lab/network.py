"""The inside of a torch model whose activations are bits, levels or floats: see `look` for the form.

A full-precision model is shown as a sign would see it: its bits are the signs of its values. All its attention bits,
signs of a softmax, are therefore 1: the paper's argument against binarizing a softmax (Section 3.2.1).
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from bibert.errors import SchemeError
from bibert.lab.look import Arrays, Flags, Floats, Inside, LayerInside, Levels, by_head
from bibert.nn.layers import LayerTrace, QuantLinear
from bibert.nn.model import BertLayer, BiBertForSequenceClassification, Trace, evaluating
from bibert.nn.packable import LINEARS
from bibert.nn.products import Quantized
from bibert.nn.schemes import Scheme


def inside_of_network(model: BiBertForSequenceClassification, batch: Arrays) -> Inside:
    """Read a batch with a network in eval mode."""
    return inside_of_trace(model, trace_of(model, {name: torch.from_numpy(array) for name, array in batch.items()}))


def logits_of_network(model: BiBertForSequenceClassification, batch: Arrays) -> Floats:
    """The logits of a batch in eval mode."""
    with evaluating(model):
        inputs = {name: torch.from_numpy(array).to(model.device) for name, array in batch.items()}
        return np.asarray(model(**inputs).logits.cpu().numpy())


def trace_of(model: BiBertForSequenceClassification, inputs: Mapping[str, Tensor]) -> Trace:
    """The trace of a pass in eval mode; the model's mode is restored."""
    with evaluating(model):
        trace: Trace = model(**{name: value.to(model.device) for name, value in inputs.items()}, trace=True).trace
    return trace


@torch.no_grad()
def inside_of_trace(model: BiBertForSequenceClassification, trace: Trace) -> Inside:
    """The inside of a traced pass; activations of other quantizers raise a `SchemeError`."""
    scheme = model.config.quantization
    if scheme.is_quantized and not scheme.is_discrete:
        kept = f" and keeps {', '.join(scheme.kept)}" if scheme.kept else ""
        raise SchemeError(
            f"scheme {scheme.name!r} has activations of {scheme.bits.activation} bits{kept}; only those of --bits 1, 2 "
            "and 4 can be shown: give such a student, or a full-precision model"
        )
    pairs = zip(model.bert.encoder.layer, trace.layers, strict=True)
    real = trace.mask.cpu().numpy() == 1
    return Inside(real, tuple(_layer(scheme, block, layer, real) for block, layer in pairs))


def _layer(scheme: Scheme, block: nn.Module, trace: LayerTrace, real: Flags) -> LayerInside:
    assert isinstance(block, BertLayer)
    projection, output = block.attention.output, block.output
    context = _entering(projection.input_shift, projection.dense, trace.context)
    ffn_hidden = _entering(output.input_shift, output.dense, trace.ffn_hidden)
    attention = trace.weights.cpu().numpy()
    has_bits = not scheme.split and (scheme.bits.weight == 1 or not scheme.is_quantized)
    return LayerInside(
        **{name: _levels(scheme, getattr(trace.levels, name)) for name in ("query", "key", "value")},
        attention=attention,
        attended=_attended(scheme, attention, real),
        context=by_head(_levels(scheme, context), block.attention.self.heads),
        ffn_hidden=_levels(scheme, ffn_hidden),
        weights=lambda: {name: _weight_bits(block.get_submodule(path)) for name, path in LINEARS.items() if has_bits},
    )


def _entering(shift: nn.Module, linear: QuantLinear, values: Tensor) -> Tensor:
    """The levels that enter a linear layer."""
    shifted = shift(values)
    quantized: Quantized = shifted if isinstance(shifted, Quantized) else linear.input_quantizer(shifted)
    return quantized.levels


def _levels(scheme: Scheme, levels: Tensor) -> Levels:
    """Levels of several bits as integers, others as bits: the sign of a float counts 0 as +1, a level of 0 is 0."""
    if scheme.attention_bits:
        return np.asarray(levels.cpu().numpy(), dtype=np.int32)
    return _bits(levels, zero_is_one=not scheme.is_quantized)


def _bits(levels: Tensor, zero_is_one: bool) -> Flags:
    return np.asarray((levels >= 0 if zero_is_one else levels > 0).cpu().numpy())


def _attended(scheme: Scheme, attention: Floats, real: Flags) -> Levels:
    """The bits of attention weights; `asym` has two values in a row, of which the larger one is the 1."""
    keys = real[:, None, None, :]
    if scheme.attention_bits:  # the greatest weight of a query has the greatest level
        top = 2**scheme.attention_bits - 1
        return np.asarray(np.rint(attention / attention.max(axis=-1, keepdims=True) * top), dtype=np.int32)
    if scheme.attention == "asym":
        low = np.where(keys, attention, np.inf).min(axis=-1, keepdims=True)
        high = np.where(keys, attention, -np.inf).max(axis=-1, keepdims=True)
        return np.asarray((attention >= (low + high) / 2) & keys)
    return (attention > 0 if scheme.is_quantized else attention >= 0) & keys


@torch.no_grad()
def _weight_bits(linear: nn.Module) -> Flags:
    assert isinstance(linear, QuantLinear)
    if linear.quantizer == "none":
        return _bits(linear.weight, zero_is_one=True)
    return _bits(linear.quantized_weight().levels, zero_is_one=False)

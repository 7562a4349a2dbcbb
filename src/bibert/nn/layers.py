"""Layers with parameters: linear, word embedding and LayerNorm, in the form a scheme asks for.

The parameters are called and shaped as in `torch.nn`, so that any BERT checkpoint loads as it is. The arithmetic
is in `functional` and `quantizers`; the attention block is in `attention`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bibert.errors import NumericError
from bibert.nn.functional import Quantized, dequantize, exact_layer_norm, quantized_linear
from bibert.nn.quantizers import activation_quantizer, quantize_embedding, quantize_weight
from bibert.nn.schemes import Scheme


class Shift(nn.Module):
    """A learned threshold per channel in front of a sign: x - threshold, rounded, has the sign of x ≥ threshold."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels) to the same shape."""
        return x - self.threshold


def shift(site: str, channels: int, scheme: Scheme) -> nn.Module:
    """The threshold of a site, or nothing where the scheme has none there."""
    return Shift(channels) if site in scheme.thresholds else nn.Identity()


class QuantLinear(nn.Linear):
    """A linear layer whose input and weight are quantized as the scheme says; bias in float32.

    With `scheme.split` the weight is the sum of two binary ones, `weight` and `twin_weight` (BinaryBERT). With
    `scheme.gain` the scale of the weight has a learned factor.
    """

    def __init__(self, inputs: int, outputs: int, scheme: Scheme, input_quantizer: str | None = None) -> None:
        super().__init__(inputs, outputs)
        self.quantizer = scheme.weight
        self.bits = scheme.bits.weight
        self.input_quantizer = activation_quantizer(input_quantizer or scheme.activation, scheme.bits.activation)
        self.twin_weight = nn.Parameter(torch.zeros_like(self.weight)) if scheme.split else None
        gains = {"none": 0, "layer": 1, "row": outputs}[scheme.gain]
        self.gain = nn.Parameter(torch.ones(gains)) if gains else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        if self.quantizer == "none":
            return super().forward(x).to(x.dtype)  # under autocast the product is in fewer bits, nothing else
        rows = self.input_quantizer(x)
        out = quantized_linear(rows, self.quantized_weight())
        if self.twin_weight is not None:
            out = out + quantized_linear(rows, quantize_weight(self.quantizer, self.twin_weight, self.bits))
        return out + self.bias

    def quantized_weight(self) -> Quantized:
        """The levels of the weight and its scale, with the gain in it; a scale has no minus sign (contract, rule 4)."""
        quantized = quantize_weight(self.quantizer, self.weight, self.bits)
        if self.gain is None or quantized.scale is None:
            return quantized
        return quantized._replace(scale=quantized.scale * self.gain.abs().unsqueeze(-1))


class QuantEmbedding(nn.Embedding):
    """The word embedding; only the rows of the batch are quantized, which row-wise scales allow."""

    def __init__(self, vocabulary: int, channels: int, scheme: Scheme, padding_id: int | None) -> None:
        super().__init__(vocabulary, channels, padding_idx=padding_id)
        self.quantizer = scheme.embedding
        self.bits = scheme.bits.embedding
        self.twin_weight = nn.Parameter(torch.zeros_like(self.weight)) if scheme.split else None

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids to rows of float32."""
        out = self._look_up(ids, self.weight)
        return out if self.twin_weight is None else out + self._look_up(ids, self.twin_weight)

    def _look_up(self, ids: Tensor, table: Tensor) -> Tensor:
        rows = F.embedding(ids, table, self.padding_idx)
        if self.quantizer == "none":
            return rows
        return dequantize(quantize_embedding(self.quantizer, rows, self.bits))


class FloatLayerNorm(nn.LayerNorm):
    """LayerNorm in float32."""

    def forward(self, x: Tensor, needed: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Normalize the last dimension; no value is refused, so it does not matter which rows are needed."""
        return super().forward(x)


class ExactLayerNorm(FloatLayerNorm):
    """LayerNorm of a quantized model: exact statistics in eval mode, ordinary float32 in training for speed.

    Attributes:
        name: where it stands in the model, for messages.
    """

    name = "LayerNorm"

    def forward(self, x: Tensor, needed: Tensor | None = None) -> Tensor:
        """Normalize the last dimension; rows that are `needed` must be in range."""
        if self.training:
            return super().forward(x)
        return exact_layer_norm(x, self.weight, self.bias, self.eps, self.name, needed)


def layer_norm(channels: int, eps: float, scheme: Scheme) -> FloatLayerNorm:
    """The LayerNorm a scheme needs: bits may depend on it only where something is quantized after it."""
    return (ExactLayerNorm if scheme.is_quantized else FloatLayerNorm)(channels, eps=eps)


def in_float64(function: nn.Module, x: Tensor) -> Tensor:
    """Evaluate a float head in float64 and round once to float32 (contract, rule 7).

    Raises:
        NumericError: an answer is not finite.
    """
    parameters = {name: value.double() for name, value in function.named_parameters()}
    out: Tensor = torch.func.functional_call(function, parameters, (x.double(),)).to(x.dtype)
    if not out.isfinite().all():
        raise NumericError("a logit is not finite; the model has diverged: train it with a lower learning rate")
    return out

"""The configuration of the network and its layers: linear, word embedding, LayerNorm and attention under a scheme.

Modules and parameters are named and shaped as in Hugging Face's BERT, so that any checkpoint loads unchanged. The
arithmetic is in `functional` and `quantizers`; `model` builds the network from these layers.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig

from bibert.nn import functional, products
from bibert.nn.functional import AttentionResult, HeadLevels
from bibert.nn.levels import LevelAttention, Levels
from bibert.nn.products import Int8, Quantized
from bibert.nn.quantizers import Scope, activation_quantizer, quantize_weight
from bibert.nn.schemes import Scheme, as_scheme

TensorOrLevels = TypeVar("TensorOrLevels", Tensor, Quantized)


class BiBertConfig(BertConfig):  # type: ignore[misc]
    """A BERT configuration with a scheme; the defaults describe a full-precision BERT."""

    model_type = "bibert"

    scheme: dict[str, Any] | str | None = None  # as plain values in config.json
    attention_head_size: int | None = None  # None means hidden_size / num_attention_heads
    kept_heads: list[list[int]] | None = None  # the teacher's heads that a half-width student kept, by layer

    def __post_init__(self, **kwargs: Any) -> None:
        self.scheme = as_scheme(self.scheme if self.scheme is not None else "full_precision").to_dict()
        super().__post_init__(**kwargs)

    @property
    def quantization(self) -> Scheme:
        """The scheme as a value."""
        return as_scheme(self.scheme)

    @property
    def head_size(self) -> int:
        """Channels of one head."""
        return self.attention_head_size or self.hidden_size // self.num_attention_heads


@dataclass
class LayerTrace:
    """The intermediate values of one block, for distillation and analysis."""

    query: Tensor  # (B, H, T, D), before any quantizer, like key and value
    key: Tensor
    value: Tensor
    scores: Tensor  # (B, H, T, T), A = QKᵀ/√D of the quantized queries and keys, before the mask
    # (B, H, T, T), after mask and dropout: levels without their scale, or a softmax (full precision and `levels`). So
    # the weights of different schemes cannot be compared.
    weights: Tensor
    context: Tensor  # (B, T, H · D), the heads side by side
    levels: HeadLevels  # queries, keys and values after their thresholds and quantizers
    mha: Tensor = field(init=False)  # (B, T, C), the paper's M: the output projection before residual and LayerNorm
    # (B, T, intermediate): the input of the second FFN layer before its threshold and quantizer. `gelu_sign` includes
    # the GELU, so under it this tensor is the one before GELU, unlike a full-precision teacher's.
    ffn_hidden: Tensor = field(init=False)

    def keep(self, names: Collection[str]) -> None:
        """Drop the other fields, and with them their memory."""
        for name in vars(self).keys() - names:
            delattr(self, name)


PER_HEAD = ("query", "key", "value", "scores", "weights")  # the fields of `LayerTrace` of shape (B, H, ...)


class Shift(nn.Module):
    """A learned threshold per channel in front of a sign: x - threshold, rounded, is negative iff x < threshold."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels) to the same shape."""
        return x - self.threshold


def shift(site: str, channels: int, scheme: Scheme) -> nn.Module:
    """What a site does to a value first: its levels, its threshold, or nothing if the scheme has neither there.

    `Shift` and the identity leave the quantizer to the reader of the site. Checkpoints name all three `*_shift`.
    """
    if scheme.activation == "levels":
        bits = scheme.attention_bits if site in ("query", "key", "value") else scheme.bits.activation
        return Levels(channels, bits, signed=site != "ffn_hidden")
    return Shift(channels) if site in scheme.thresholds else nn.Identity()


class QuantLinear(nn.Linear):
    """A linear layer with the scheme's quantizers of input and weight; the bias is float32.

    With `scheme.split` the weight is the sum of two binary ones, `weight` and `twin_weight` (BinaryBERT). With
    `scheme.gain` the scale of the weight has a learned factor.
    """

    def __init__(self, inputs: int, outputs: int, scheme: Scheme, input_quantizer: str | None = None) -> None:
        super().__init__(inputs, outputs)
        self.quantizer = scheme.weight
        self.bits = scheme.bits.weight
        name = input_quantizer or scheme.activation
        # `Levels` at the site in front have quantized the input: query, key and value share one step.
        self.input_quantizer = activation_quantizer("none" if name == "levels" else name, scheme.bits.activation)
        self.twin_weight = nn.Parameter(torch.zeros_like(self.weight)) if scheme.split else None
        gains = {"none": 0, "layer": 1, "row": outputs}[scheme.gain]
        self.gain = nn.Parameter(torch.ones(gains)) if gains else None

    def forward(self, x: Tensor | Quantized) -> Tensor:
        """(..., in) to (..., out)."""
        if isinstance(x, Tensor) and self.quantizer == "none":
            if not self.weight.requires_grad and products.computes_in_int8(x.device.type):
                return products.linear(x, self.int8_weight, self.bias)
            return super().forward(x).to(x.dtype)  # autocast lowers the precision of the product and nothing else
        rows = self.input_quantizer(x) if isinstance(x, Tensor) else x
        out = products.bi_linear(rows, self.quantized_weight(), self.bias)
        if self.twin_weight is not None:
            out = out + products.bi_linear(rows, quantize_weight(self.quantizer, self.twin_weight, self.bits))
        return out

    @cached_property
    def int8_weight(self) -> Int8:
        """The rounded weight of a frozen teacher."""
        return products.nearest_int8(self.weight)

    def quantized_weight(self) -> Quantized:
        """The levels of the weight and its scale times |gain|: a scale is never negative (numeric contract, rule 4)."""
        quantized = quantize_weight(self.quantizer, self.weight, self.bits)
        if self.gain is None or quantized.scale is None:
            return quantized
        return quantized._replace(scale=quantized.scale * self.gain.abs().unsqueeze(-1))


class QuantEmbedding(nn.Embedding):
    """The word embedding; scales are per row, so only the rows of the batch are quantized."""

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
        return functional.dequantize(quantize_weight(self.quantizer, rows, self.bits, dims=(-1,)))


class LayerNorm(nn.LayerNorm):
    """LayerNorm in float32; with exact statistics in eval mode if anything in the scheme is quantized.

    A rounding error could flip a bit after it. Training uses the ordinary LayerNorm for speed.
    """

    name = "LayerNorm"  # its path in the model, for messages

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__(config.hidden_size, eps=config.layer_norm_eps)
        self.is_exact = config.quantization.is_quantized

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        if self.training or not self.is_exact:
            return super().forward(x)
        return functional.exact_layer_norm(x, self.weight, self.bias, self.eps, self.name)


class SoftmaxAttention(nn.Module):
    """Quantized softmax(A) times quantized values: full precision, the baselines, the rivals."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.is_quantized, self.bits = scheme.is_quantized, scheme.bits.activation
        self.query_quantizer = activation_quantizer(scheme.activation, self.bits)
        self.key_quantizer = activation_quantizer(scheme.activation, self.bits)
        self.value_quantizer = activation_quantizer(scheme.activation, self.bits)
        self.weight_quantizer = activation_quantizer(scheme.attention, self.bits, scheme.quantile)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float) -> AttentionResult:
        """(B, H, T, D) each; `mask` is (B, 1, 1, T)."""
        head = Scope(self.bits, dims=(-2, -1), mask=mask.transpose(-1, -2))
        queries, keys = self.query_quantizer(query, head), self.key_quantizer(key, head)
        values = self.value_quantizer(value, head)
        scores = functional.attention_scores(queries, keys)
        quantized = self.weight_quantizer(self._softmax(scores, mask), Scope(self.bits, mask=mask))
        weights = F.dropout(quantized.levels * mask, dropout)
        context = functional.bamm(quantized._replace(levels=weights), values)
        return AttentionResult(context, scores, weights, HeadLevels(queries.levels, keys.levels, values.levels))

    def _softmax(self, scores: Tensor, mask: Tensor) -> Tensor:
        masked = functional.mask_keys(scores, mask)
        if self.training or not self.is_quantized:
            return functional.softmax(masked)
        # Rounded once from float64, equal scores get equal weights, so a threshold cannot separate them.
        return torch.softmax(masked.double(), dim=-1).to(scores.dtype)


class BiAttention(nn.Module):
    """The paper's Bi-Attention (`bool`), or the appendix's variant with `sign` weights."""

    def __init__(self, scheme: Scheme, heads: int) -> None:
        super().__init__()
        self.binarize = {"bool": functional.bool_, "sign": functional.sign}[scheme.attention]
        self.threshold = nn.Parameter(torch.zeros(heads)) if scheme.score_thresholds else None

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float) -> AttentionResult:
        """(B, H, T, D) each; `mask` is (B, 1, 1, T)."""
        if dropout:  # a dropped weight is a masked key: weights stay in {0, 1} and are not rescaled
            mask = mask * torch.rand_like(mask.expand(-1, query.shape[1], query.shape[2], -1)).ge(dropout)
        return functional.bi_attention(query, key, value, mask, self.binarize, self.threshold)


def attention(scheme: Scheme, heads: int) -> nn.Module:
    """The attention of a scheme."""
    if scheme.attention == "levels":
        return LevelAttention(scheme.attention_bits)
    return BiAttention(scheme, heads) if scheme.normalizer == "none" else SoftmaxAttention(scheme)


class BertSelfAttention(nn.Module):
    """Queries, keys, values, heads."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        inner, scheme = self.heads * self.head_size, config.quantization.part("mha")
        self.query = QuantLinear(config.hidden_size, inner, scheme)
        self.key = QuantLinear(config.hidden_size, inner, scheme)
        self.value = QuantLinear(config.hidden_size, inner, scheme)
        self.input_shift = shift("attention_input", config.hidden_size, scheme)
        self.query_shift = shift("query", inner, scheme)
        self.key_shift = shift("key", inner, scheme)
        self.value_shift = shift("value", inner, scheme)
        self.attention = attention(scheme, self.heads)
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, hidden: Tensor, mask: Tensor) -> LayerTrace:
        """(B, T, C) to a trace whose `context` is (B, T, H · D)."""
        shifted = self.input_shift(hidden)
        query, key, value = (project(shifted) for project in (self.query, self.key, self.value))
        result = self.attention(
            self._heads(self.query_shift(query)),
            self._heads(self.key_shift(key)),
            self._heads(self.value_shift(value)),
            mask,
            self.dropout if self.training else 0.0,
        )
        context = result.context.transpose(1, 2).flatten(2)
        heads = (self._heads(query), self._heads(key), self._heads(value))
        return LayerTrace(*heads, result.scores, result.weights, context, result.levels)

    def _heads(self, x: TensorOrLevels) -> TensorOrLevels:
        if isinstance(x, Quantized):
            assert x.scale is not None  # the step of `Levels`
            return x._replace(levels=self._heads(x.levels), scale=x.scale.unsqueeze(0))
        return x.view(*x.shape[:2], self.heads, self.head_size).transpose(1, 2)


class BertSelfOutput(nn.Module):
    """The output projection, residual and LayerNorm after the heads."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        inner, scheme = config.num_attention_heads * config.head_size, config.quantization.part("mha")
        self.input_shift = shift("context", inner, scheme)
        self.scaled_context = scheme.scaled_context
        self.dense = QuantLinear(inner, config.hidden_size, scheme)
        self.LayerNorm = LayerNorm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def project(self, trace: LayerTrace) -> Tensor:
        """The heads' context (B, T, H · D) to (B, T, C).

        A context is a sum of ±1 over the attended keys, so it grows with the square root of their number. With
        `scaled_context` the gradient window of its sign grows with it. The sign in `dense` then changes nothing.
        """
        context = self.input_shift(trace.context)
        if self.scaled_context:
            keys = trace.weights.detach().sum(dim=-1).clamp_min(1)  # (B, H, T)
            width = keys.sqrt().transpose(1, 2).unsqueeze(-1)
            context = functional.sign_within(context.unflatten(-1, (keys.shape[1], -1)), width).flatten(-2)
        return self.dense(context)  # type: ignore[no-any-return]


class BertAttention(nn.Module):
    """Attention with its residual: hidden states in, hidden states and trace out."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertSelfOutput(config)

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, LayerTrace]:
        """(B, T, C) to (B, T, C)."""
        trace = self.self(hidden, mask)
        trace.mha = self.output.project(trace)
        return self.output.LayerNorm(self.output.dropout(trace.mha) + hidden), trace

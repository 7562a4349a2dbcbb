"""Multi-head attention in every form of the paper's tables: softmax with quantized weights, and Bi-Attention.

Bi-Attention itself is a formula and lives in `functional`; here are the projections, the heads, and the softmax
rivals. Module names equal Hugging Face's BERT.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bibert.nn.config import BiBertConfig
from bibert.nn.functional import (
    AttentionResult,
    HeadLevels,
    attention_scores,
    bamm,
    bi_attention,
    bool_,
    sign,
    sign_within,
)
from bibert.nn.layers import QuantLinear, layer_norm, shift
from bibert.nn.quantizers import Scope, activation_quantizer
from bibert.nn.trace import LayerTrace

BI_ATTENTION = {"bool": bool_, "sign": sign}  # what binarizes the scores where there is no softmax


class SoftmaxAttention(nn.Module):
    """softmax(A) quantized by the scheme, times quantized values: full precision, the baselines, the rivals."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        scheme = config.quantization.part("mha")
        bits = scheme.bits.activation
        self.is_quantized = scheme.is_quantized
        self.query_quantizer = activation_quantizer(scheme.activation, bits)
        self.key_quantizer = activation_quantizer(scheme.activation, bits)
        self.value_quantizer = activation_quantizer(scheme.activation, bits)
        self.weight_quantizer = activation_quantizer(scheme.attention, bits, scheme.quantile)
        self.bits = bits

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float) -> AttentionResult:
        """(B, H, T, D) each; `mask` is (B, 1, 1, T)."""
        head = Scope(self.bits, dims=(-2, -1), mask=mask.transpose(-1, -2))
        queries, keys = self.query_quantizer(query, head), self.key_quantizer(key, head)
        values = self.value_quantizer(value, head)
        scores = attention_scores(queries, keys)
        quantized = self.weight_quantizer(self._softmax(scores, mask), Scope(self.bits, mask=mask))
        weights = F.dropout(quantized.levels * mask, dropout)
        context = bamm(quantized._replace(levels=weights), values)
        return AttentionResult(context, scores, weights, HeadLevels(queries.levels, keys.levels, values.levels))

    def _softmax(self, scores: Tensor, mask: Tensor) -> Tensor:
        masked = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        if self.training or not self.is_quantized:
            return torch.softmax(masked, dim=-1)
        # Rounded once from float64, equal scores get equal weights, so a threshold cannot split them.
        return torch.softmax(masked.double(), dim=-1).to(scores.dtype)


class BiAttention(nn.Module):
    """The paper's Bi-Attention (`bool`), or the appendix's variant with `sign` weights."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        scheme = config.quantization.part("mha")
        self.binarize = BI_ATTENTION[scheme.attention]
        self.threshold = nn.Parameter(torch.zeros(config.num_attention_heads)) if scheme.score_thresholds else None

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float) -> AttentionResult:
        """(B, H, T, D) each; `mask` is (B, 1, 1, T)."""
        if dropout:  # a weight that is dropped is a masked key, and weights stay in {0, 1}: nothing is rescaled
            mask = mask * torch.rand_like(mask.expand(-1, query.shape[1], query.shape[2], -1)).ge(dropout)
        return bi_attention(query, key, value, mask, self.binarize, self.threshold)


ATTENTION = {"softmax": SoftmaxAttention, "none": BiAttention}


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
        self.attention = ATTENTION[scheme.normalizer](config)
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

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, self.head_size).transpose(1, 2)


class BertSelfOutput(nn.Module):
    """The output projection, residual and LayerNorm after the heads."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        inner, scheme = config.num_attention_heads * config.head_size, config.quantization.part("mha")
        self.input_shift = shift("context", inner, scheme)
        self.scaled_context = scheme.scaled_context
        self.dense = QuantLinear(inner, config.hidden_size, scheme)
        self.LayerNorm = layer_norm(config.hidden_size, config.layer_norm_eps, config.quantization)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def project(self, trace: LayerTrace) -> Tensor:
        """The heads' context (B, T, H · D) to (B, T, C).

        A context is a sum of ±1 over the attended keys, so it grows with the root of their number: with
        `scaled_context` the gradient window of its sign grows alike. A sign of a sign is itself, gradient and all.
        """
        context = self.input_shift(trace.context)
        if self.scaled_context:
            keys = trace.weights.detach().sum(dim=-1).clamp_min(1)  # (B, H, T)
            width = keys.sqrt().transpose(1, 2).unsqueeze(-1)
            context = sign_within(context.unflatten(-1, (keys.shape[1], -1)), width).flatten(-2)
        return self.dense(context)  # type: ignore[no-any-return]


class BertAttention(nn.Module):
    """Attention with its residual: hidden states in, hidden states and trace out."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertSelfOutput(config)

    def forward(self, hidden: Tensor, mask: Tensor, needed: Tensor | None = None) -> tuple[Tensor, LayerTrace]:
        """(B, T, C) to (B, T, C); `needed` (B, T) as in `exact_layer_norm`."""
        trace = self.self(hidden, mask)
        mha = self.output.project(trace)
        trace.mha = mha
        return self.output.LayerNorm(self.output.dropout(mha) + hidden, needed), trace

"""The network: one BERT for the teacher and every student; the scheme in its configuration makes the difference.

Parameter names equal Hugging Face's `BertForSequenceClassification`, so any BERT checkpoint loads unchanged. Importing
this module registers the model with the Auto classes. `students` makes a student from a teacher; `checkpoint` reads
checkpoints with all checks.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.utils import ModelOutput

from bibert.nn import functional
from bibert.nn.layers import (
    BertAttention,
    BiAttention,
    BiBertConfig,
    LayerNorm,
    LayerTrace,
    QuantEmbedding,
    QuantLinear,
    Shift,
    shift,
)
from bibert.nn.quantizers import Calibrated

NO_CLASS = -100  # the label of a row without one


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside the block; the mode of the model is restored afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


@dataclass
class Trace:
    """The intermediate values of a forward pass, for distillation and analysis."""

    mask: Tensor  # (B, T), 1 for real tokens
    hidden_states: list[Tensor] = field(default_factory=list)  # the embedding output and each layer's, (B, T, C)
    layers: list[LayerTrace] = field(default_factory=list)
    pooled: Tensor | None = None  # the pooler's output, (B, C)


@dataclass
class BiBertModelOutput(ModelOutput):  # type: ignore[misc]
    """The output of the encoder; `trace` only on request."""

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    trace: Trace | None = None


@dataclass
class BiBertOutput(ModelOutput):  # type: ignore[misc]
    """The output of the classifier; `trace` only on request."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    trace: Trace | None = None


class BertEmbeddings(nn.Module):
    """The scheme's word embedding, token-type and position embedding in float32, LayerNorm."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        words, channels = config.quantization.part("embedding"), config.hidden_size
        self.word_embeddings = QuantEmbedding(config.vocab_size, channels, words, config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, channels)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, channels)
        self.LayerNorm = LayerNorm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        """(B, T) ids to (B, T, C); the numeric contract fixes the order of the two sums."""
        positions = self.position_embeddings.weight[: input_ids.shape[1]]
        rows = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids) + positions
        return self.dropout(self.LayerNorm(rows))  # type: ignore[no-any-return]


class BertIntermediate(nn.Module):
    """The first FFN layer and its activation."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        scheme = config.quantization.part("intermediate")
        self.input_shift = shift("ffn_input", config.hidden_size, scheme)
        self.dense = QuantLinear(config.hidden_size, config.intermediate_size, scheme)
        reader = config.quantization.part("output")  # the activation belongs to the layer that quantizes its output
        name = config.hidden_act if reader.ffn_activation == "gelu" else reader.ffn_activation
        # In front of a sign GELU has no forward effect; `gelu_sign` keeps it in the gradient.
        self.activation = nn.Identity() if reader.ffn_quantizer == "gelu_sign" else ACT2FN[name]

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, C) to (B, T, intermediate)."""
        return self.activation(self.dense(self.input_shift(hidden)))  # type: ignore[no-any-return]


class BertOutput(nn.Module):
    """The second FFN layer, residual and LayerNorm."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        scheme = config.quantization.part("output")
        self.input_shift = shift("ffn_hidden", config.intermediate_size, scheme)
        self.dense = QuantLinear(config.intermediate_size, config.hidden_size, scheme, scheme.ffn_quantizer)
        self.LayerNorm = LayerNorm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, inner: Tensor, hidden: Tensor) -> Tensor:
        """(B, T, intermediate) and the residual (B, T, C) to (B, T, C)."""
        return self.LayerNorm(self.dropout(self.dense(self.input_shift(inner))) + hidden)  # type: ignore[no-any-return]


class BertLayer(nn.Module):
    """One transformer block."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config)

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, LayerTrace]:
        """(B, T, C) to (B, T, C)."""
        attended, trace = self.attention(hidden, mask)
        trace.ffn_hidden = self.intermediate(attended)
        return self.output(trace.ffn_hidden, attended), trace


class BertEncoder(nn.Module):
    """The stack of blocks."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))


class BertPooler(nn.Module):
    """The tanh of a linear map of the first token."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__()
        scheme = config.quantization.part("pooler")
        self.input_shift = shift("pooler_input", config.hidden_size, scheme)
        self.dense = QuantLinear(config.hidden_size, config.hidden_size, scheme)
        self.activation = nn.Tanh()
        self.is_exact = config.quantization.is_quantized

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, C) to (B, C)."""
        first = self.dense(self.input_shift(hidden[:, 0]))
        exact = self.is_exact and not self.training
        return functional.exact_tanh(first) if exact else self.activation(first)


class BiBertPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """The Hugging Face settings of both models."""

    config_class = BiBertConfig
    base_model_prefix = "bert"
    # A checkpoint in half precision is read as float32: rounding in front of a sign could flip it.
    _keep_in_fp32_modules_strict = ("embeddings", "encoder", "pooler", "classifier")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise parameters that a checkpoint lacks; the library protects those that it has from `nn.init`."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
            elif module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[module.padding_idx].zero_()
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Calibrated):
            module.reset()
        if isinstance(module, QuantLinear | QuantEmbedding) and module.twin_weight is not None:
            nn.init.zeros_(module.twin_weight)
        if isinstance(module, QuantLinear) and module.gain is not None:
            nn.init.ones_(module.gain)
        if isinstance(module, Shift | BiAttention) and module.threshold is not None:
            nn.init.zeros_(module.threshold)


class BiBertModel(BiBertPreTrainedModel):
    """Embeddings, encoder and pooler."""

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config)
        self.is_exact = config.quantization.is_quantized
        for name, module in self.named_modules():
            if isinstance(module, LayerNorm):
                module.name = name
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The word embedding, for Hugging Face utilities."""
        return self.embeddings.word_embeddings

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        trace: bool | Collection[str] = False,
    ) -> BiBertModelOutput:
        """(B, T) ids to hidden states and the pooled first token.

        A `trace` has every field of `LayerTrace`, or those of the given names.
        """
        attention_mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        token_type_ids = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        # A student in eval mode ignores the caller's autocast: its integers must be exact (numeric contract, rule 7).
        exact = self.is_exact and not self.training
        with torch.autocast(input_ids.device.type, enabled=False) if exact else nullcontext():
            hidden = self.embeddings(input_ids, token_type_ids)
            kept = Trace(mask=attention_mask.to(hidden.dtype), hidden_states=[hidden])
            mask = kept.mask[:, None, None, :]
            for layer in self.encoder.layer:
                hidden, inside = layer(hidden, mask)
                if trace:
                    kept.hidden_states.append(hidden)
                    kept.layers.append(inside)
                if not isinstance(trace, bool):
                    inside.keep(trace)
            kept.pooled = pooled = self.pooler(hidden)
        return BiBertModelOutput(last_hidden_state=hidden, pooler_output=pooled, trace=kept if trace else None)


class BiBertForSequenceClassification(BiBertPreTrainedModel):
    """A BERT classifier (or regressor) in any precision.

    Examples:
        >>> model = BiBertForSequenceClassification.from_pretrained("path/to/any/bert", scheme="bibert")
    """

    def __init__(self, config: BiBertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BiBertModel(config)
        dropout = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if dropout is None else dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.is_exact = config.quantization.is_quantized
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        trace: bool | Collection[str] = False,
    ) -> BiBertOutput:
        """(B, T) ids to (B, labels) logits; `labels` add the usual loss, `trace` the intermediate values."""
        out = self.bert(input_ids, attention_mask, token_type_ids, trace)
        pooled = self.dropout(out.pooler_output)
        if self.is_exact and not self.training:
            logits = functional.exact_linear(pooled, self.classifier.weight, self.classifier.bias)
        else:
            logits = self.classifier(pooled).to(pooled.dtype)
        loss = None if labels is None else label_loss(logits, labels)
        return BiBertOutput(loss=loss, logits=logits, trace=out.trace)


def label_loss(
    logits: Tensor, labels: Tensor, class_weights: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy of class ids; mean squared error of scores if there is one output.

    Rows with the label `NO_CLASS`, or a score that is NaN, do not count.
    """
    scores = logits.shape[-1] == 1
    known = ~labels.isnan() if scores else labels != NO_CLASS
    if not known.all():
        logits, labels = logits[known], labels[known]
    if not len(labels):
        return logits.sum()
    if scores:
        return F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
    gold = labels.long()
    if class_weights is None:
        return F.cross_entropy(logits, gold, label_smoothing=label_smoothing)
    rows = F.cross_entropy(logits, gold, label_smoothing=label_smoothing, reduction="none")
    weights = class_weights[gold]  # of rows: torch would weigh the smoothed part of rare classes in every row
    return (rows * weights).sum() / weights.sum()


AutoConfig.register("bibert", BiBertConfig)
AutoModel.register(BiBertConfig, BiBertModel)
AutoModelForSequenceClassification.register(BiBertConfig, BiBertForSequenceClassification)

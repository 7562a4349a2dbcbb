"""What a forward pass leaves behind for distillation and analysis: named tensors, layer by layer."""

from dataclasses import dataclass, field

from torch import Tensor

from bibert.nn.functional import HeadLevels


@dataclass
class LayerTrace:
    """The inside of one block.

    Attributes:
        query: (B, H, T, D), before any quantizer; key and value alike.
        key: see query.
        value: see query.
        scores: (B, H, T, T), A = QKᵀ/√D of the quantized queries and keys, before the mask.
        weights: (B, H, T, T), what multiplies the values.
        context: (B, T, H · D), the heads side by side.
        levels: queries, keys and values behind their thresholds and quantizers.
        mha: (B, T, C), the paper's M: the output projection of the heads, before residual and LayerNorm.
        ffn_hidden: (B, T, intermediate), behind the activation of the first FFN layer, before any quantizer.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    weights: Tensor
    context: Tensor
    levels: HeadLevels
    mha: Tensor = field(init=False)  # filled in where the output projection is
    ffn_hidden: Tensor = field(init=False)  # and where the FFN is


@dataclass
class Trace:
    """The inside of a whole forward pass.

    Attributes:
        mask: (B, T), 1 for real tokens.
        hidden_states: the embedding output and the output of each layer, (B, T, C).
        layers: one trace per layer.
    """

    mask: Tensor
    hidden_states: list[Tensor] = field(default_factory=list)
    layers: list[LayerTrace] = field(default_factory=list)

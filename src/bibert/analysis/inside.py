"""What is inside a model while it reads texts: the bits of every layer and head, in one form for any model.

Here is the form, and how a packed file fills it by the numpy reference; `network` fills it from a torch model. What
is made of it is in `entropy` and `attention`.

Shapes: B texts, T tokens, H heads, D head size, I intermediate. Truth values stand for bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bibert.packed.bits import unpack_rows
from bibert.packed.file import PackedModel
from bibert.runtime import reference

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
Batch = Mapping[str, NDArray[np.int64]]  # input_ids, attention_mask and token_type_ids, (B, T) each


@dataclass(frozen=True)
class LayerInside:
    """The inside of one block; what stands at a padding token has no meaning.

    Attributes:
        query: the bits of the queries, (B, H, T, D); key, value and context alike.
        key: see query.
        value: see query.
        attention: (B, H, T, T), the attention weights as they multiply the values, 0 for a masked key.
        attended: (B, H, T, T), their bits.
        context: see query.
        ffn_hidden: (B, T, I), the bits that enter the second FFN layer.
        weights: the bits of the six matrices, by their names in a packed file; rows are outputs.
    """

    query: Flags
    key: Flags
    value: Flags
    attention: Floats
    attended: Flags
    context: Flags
    ffn_hidden: Flags
    weights: Mapping[str, Flags]


@dataclass(frozen=True)
class Inside:
    """The inside of a pass over a batch; `real` is (B, T), true for what is not padding."""

    real: Flags
    layers: tuple[LayerInside, ...]

    @property
    def heads(self) -> int:
        """Attention heads of a layer."""
        return int(self.layers[0].attention.shape[1])


def inside_of_packed(packed: PackedModel, batch: Batch) -> Inside:
    """Let a packed model read a batch."""
    trace = reference.trace(packed, **batch)
    layers = tuple(_layer(packed, index, layer) for index, layer in enumerate(trace.layers))
    return Inside(batch["attention_mask"] == 1, layers)


def _layer(packed: PackedModel, index: int, layer: reference.LayerTrace) -> LayerInside:
    heads = packed.config.heads
    return LayerInside(
        query=by_head(layer.query, heads),
        key=by_head(layer.key, heads),
        value=by_head(layer.value, heads),
        attention=layer.attention.astype(np.float32),
        attended=layer.attention,
        context=by_head(layer.context, heads),
        ffn_hidden=layer.ffn_hidden,
        weights={name: _matrix(packed, f"layers.{index}.{name}", inputs) for name, inputs in _inputs(packed).items()},
    )


def by_head(rows: Flags, heads: int) -> Flags:
    """Heads side by side, (B, T, H · D), to (B, H, T, D)."""
    return rows.reshape(*rows.shape[:2], heads, -1).swapaxes(1, 2)


def _inputs(packed: PackedModel) -> dict[str, int]:
    config = packed.config
    same = dict.fromkeys(("query", "key", "value", "intermediate"), config.hidden)
    return {**same, "attention_output": config.inner, "output": config.intermediate}


def _matrix(packed: PackedModel, name: str, inputs: int) -> Flags:
    return unpack_rows(packed.tensor(f"{name}.bits"), inputs)

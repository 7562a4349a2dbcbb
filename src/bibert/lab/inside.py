"""What is inside a model while it reads texts: the bits of every layer and head, in one form for any model.

Here is the form, and how a packed file fills it by the numpy reference; `network` fills it from a torch model. What
is made of it is in `entropy` and `attention`.

Shapes: B texts, T tokens, H heads, D head size, I intermediate. Truth values stand for bits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bibert.packed.bits import unpack_rows
from bibert.packed.file import PackedModel
from bibert.runtime import reference

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
Batch = Mapping[str, NDArray[np.int64]]  # input_ids, attention_mask and token_type_ids, (B, T) each


class Matrices(Mapping[str, Flags]):
    """Bits of matrices by name, read from the model whenever one is asked for: most who look at a pass never do."""

    def __init__(self, names: Collection[str], read: Callable[[str], Flags]) -> None:
        self._names = names
        self._read = read

    def __getitem__(self, name: str) -> Flags:
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


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
        weights=_matrices(packed, index),
    )


def by_head(rows: Flags, heads: int) -> Flags:
    """Heads side by side, (B, T, H · D), to (B, H, T, D)."""
    return rows.reshape(*rows.shape[:2], heads, -1).swapaxes(1, 2)


def _matrices(packed: PackedModel, index: int) -> Matrices:
    config = packed.config
    inputs = dict.fromkeys(("query", "key", "value", "intermediate"), config.hidden)
    inputs |= {"attention_output": config.inner, "output": config.intermediate}
    return Matrices(inputs, lambda name: unpack_rows(packed.tensor(f"layers.{index}.{name}.bits"), inputs[name]))

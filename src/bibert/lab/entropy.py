"""Information entropy of binarized tensors, layer by layer and head by head (Section 3.2.1, Fig. "Analysis" (a)).

The entropy is that of one bit drawn from all bits of a tensor, without padding: 1 if half of them are 1, 0 if all are
equal. `look` provides the bits; `probe` logs entropies during training.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError
from bibert.lab.look import Flags, Inside, LayerInside
from bibert.lab.theory import binary_entropy

HEADS = ("query", "key", "value", "attention", "context")  # activations of each head
LAYERS = ("ffn_hidden",)  # activations of each layer
HEAD_WEIGHTS = ("query", "key", "value", "attention_output")  # matrices whose rows or columns belong to heads

Floats = NDArray[np.float64]
_entropy_of_share = np.vectorize(binary_entropy, otypes=[np.float64])


def entropies(insides: Iterable[Inside]) -> dict[str, Floats]:
    """The entropy in bits of each binarized tensor, over all batches together: (layers, heads), or (layers,).

    The entropy of a matrix has the name "weight of ...".
    """
    counts: list[dict[str, Any]] = []  # of each layer, by name: the number of ones and of all bits
    last = None
    for last in insides:
        found = [_counts(layer, last.real) for layer in last.layers]
        both = zip(counts, found, strict=True) if counts else ()
        counts = [{name: one[name] + other[name] for name in one} for one, other in both] or found
    if last is None:
        raise DataError("no text was read, so there is no entropy; give at least one text")
    shares = [
        {name: ones / total for name, (ones, total) in count.items()} | _shares_of_weights(layer.weights(), last.heads)
        for count, layer in zip(counts, last.layers, strict=True)
    ]
    return {name: _entropy_of_share(np.array([layer[name] for layer in shares])) for name in shares[0]}


def rounded(tables: Mapping[str, Floats]) -> dict[str, Any]:
    """Entropies with four digits, as plain values for JSON."""
    return {name: np.round(table, 4).tolist() for name, table in tables.items()}


def _counts(layer: LayerInside, real: Flags) -> dict[str, Any]:
    tokens, keys = real[:, None, :, None], real[:, None, None, :]
    found = {}
    for name in HEADS:
        bits, where = (layer.attended, tokens & keys) if name == "attention" else (getattr(layer, name), tokens)
        found[name] = _count(bits, where, (0, 2, 3))
    return found | {"ffn_hidden": _count(layer.ffn_hidden, real[..., None], (0, 1, 2))}


def _count(bits: Flags, where: Flags, axes: tuple[int, ...]) -> NDArray[np.int64]:
    counted = np.broadcast_to(where, bits.shape)
    return np.array([(bits & counted).sum(axes), counted.sum(axes)])


def _shares_of_weights(weights: Mapping[str, Flags], heads: int) -> dict[str, Any]:
    """The share of ones in each matrix."""
    shares = {}
    for name, bits in weights.items():
        rows = bits.T if name == "attention_output" else bits  # (H · D, other side) if they belong to heads
        shape = (heads, -1) if name in HEAD_WEIGHTS else (-1,)
        shares[f"weight of {name}"] = rows.reshape(shape).mean(axis=-1, dtype=np.float64)
    return shares

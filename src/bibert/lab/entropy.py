"""Information entropy of binarized tensors, layer by layer and head by head (Section 3.2.1, Fig. "Analysis" (a)).

The entropy is that of one bit drawn from all bits of a tensor, without padding: 1 if half of them are 1, 0 if all are
equal. For levels of k bits it is that of one level, up to k. `look` provides bits and levels; `probe` logs entropies
during training.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError
from bibert.lab.look import Flags, Inside, LayerInside, Levels

HEADS = ("query", "key", "value", "attention", "context")  # activations of each head
LAYERS = ("ffn_hidden",)  # activations of each layer
HEAD_WEIGHTS = ("query", "key", "value", "attention_output")  # matrices whose rows or columns belong to heads

Floats = NDArray[np.float64]
MOST_LEVEL = 15  # levels of 4 bits are -15 to 15; attention weights and the FFN's are 0 to 15


def entropies(insides: Iterable[Inside]) -> dict[str, Floats]:
    """The entropy in bits of each binarized tensor, over all batches together: (layers, heads), or (layers,).

    The entropy of a matrix has the name "weight of ...".
    """
    counts: list[dict[str, Any]] = []  # of each layer, by name: how often each level occurs
    last = None
    for last in insides:
        found = [_counts(layer, last.real) for layer in last.layers]
        both = zip(counts, found, strict=True) if counts else ()
        counts = [{name: one[name] + other[name] for name in one} for one, other in both] or found
    if last is None:
        raise DataError("no text was read, so there is no entropy; give at least one text")
    for count, layer in zip(counts, last.layers, strict=True):
        count |= _counts_of_weights(layer)
    return {name: np.array([_entropy(count[name]) for count in counts]) for name in counts[0]}


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


def _count(values: Levels, where: Flags, axes: tuple[int, ...]) -> NDArray[np.int64]:
    """How often each level occurs, (levels, ...)."""
    levels = (False, True) if values.dtype == np.bool_ else range(-MOST_LEVEL, MOST_LEVEL + 1)
    return np.array([((values == level) & where).sum(axes) for level in levels])


def _entropy(counts: NDArray[np.int64]) -> Floats:
    """The entropy of levels that occur so often, over the first axis."""
    shares = counts / counts.sum(axis=0)
    return np.asarray(np.abs((shares * np.log2(np.where(shares > 0, shares, 1.0))).sum(axis=0)))


def _counts_of_weights(layer: LayerInside) -> dict[str, Any]:
    """The zeros and ones of each matrix."""
    counts = {}
    for name, bits in layer.weights().items():
        rows = bits.T if name == "attention_output" else bits  # (H · D, other side) if they belong to heads
        shape = (layer.attention.shape[1], -1) if name in HEAD_WEIGHTS else (-1,)
        counts[f"weight of {name}"] = _count(rows.reshape(shape), np.array(True), (-1,))
    return counts

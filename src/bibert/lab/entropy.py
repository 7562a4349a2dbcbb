"""Information entropy of binarized tensors, layer by layer and head by head (Section 3.2.1, Fig. "Analysis" (a)).

The entropy is that of one bit drawn from all bits of a tensor, without padding: 1 if half of them are 1, 0 if all are
equal. `look` provides the bits; `probe` logs entropies during training.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError
from bibert.lab.look import Flags, Inside, LayerInside
from bibert.lab.theory import binary_entropy

HEADS = ("query", "key", "value", "attention", "context")  # activations of each head
LAYERS = ("ffn_hidden",)  # activations of each layer
HEAD_WEIGHTS = ("query", "key", "value", "attention_output")  # matrices whose rows or columns belong to heads
LAYER_WEIGHTS = ("intermediate", "output")

Floats = NDArray[np.float64]
_entropy_of_share = np.vectorize(binary_entropy, otypes=[np.float64])


class Tally(NamedTuple):
    """The number of ones, and of all bits."""

    ones: Any
    total: Any


@dataclass(frozen=True)
class Entropies:
    """Entropies in bits; those of a matrix have the name "weight of ...".

    Attributes:
        heads: (layers, heads) for each of `HEADS` and `HEAD_WEIGHTS`.
        layers: (layers,) for each of `LAYERS` and `LAYER_WEIGHTS`.
    """

    heads: Mapping[str, Floats]
    layers: Mapping[str, Floats]

    def by_layer(self) -> dict[str, Floats]:
        """(layers,) for each name, the mean over heads."""
        return {name: table.mean(axis=1) for name, table in self.heads.items()} | dict(self.layers)

    def to_dict(self) -> dict[str, list[object]]:
        """Plain values, rounded to four digits."""
        tables = chain(self.heads.items(), self.layers.items())
        return {name: np.round(table, 4).tolist() for name, table in tables}


def entropies(insides: Iterable[Inside]) -> Entropies:
    """The entropy of each binarized tensor of a model, over the bits of all batches together."""
    tallies: list[dict[str, Tally]] = []
    last = None
    for last in insides:
        found = [_tally(layer, last.real, last.heads) for layer in last.layers]
        tallies = found if not tallies else [_added(*both) for both in zip(tallies, found, strict=True)]
    if last is None:
        raise DataError("no text was read, so there is no entropy; give at least one text")
    shares = [
        {name: ones / total for name, (ones, total) in tally.items()} | _shares_of_weights(layer.weights(), last.heads)
        for tally, layer in zip(tallies, last.layers, strict=True)
    ]
    tables = {name: _entropy_of_share(np.array([layer[name] for layer in shares])) for name in shares[0]}
    return Entropies(
        heads={name: table for name, table in tables.items() if table.ndim == 2},
        layers={name: table for name, table in tables.items() if table.ndim == 1},
    )


def _tally(layer: LayerInside, real: Flags, heads: int) -> dict[str, Tally]:
    """The bits of each activation of a layer; (heads,) for those of heads."""
    tokens = np.broadcast_to(real[:, None, :], (len(real), heads, real.shape[1]))
    pairs = tokens[..., None] & real[:, None, None, :]
    found = {name: _tally_of_tokens(getattr(layer, name), tokens) for name in HEADS if name != "attention"}
    found["attention"] = Tally((layer.attended & pairs).sum(axis=(0, 2, 3)), pairs.sum(axis=(0, 2, 3)))
    found["ffn_hidden"] = Tally(layer.ffn_hidden[real].sum(), real.sum() * layer.ffn_hidden.shape[-1])
    return found


def _tally_of_tokens(bits: Flags, tokens: Flags) -> Tally:
    ones = bits.sum(axis=-1).sum(axis=(0, 2), where=tokens)
    return Tally(ones, tokens.sum(axis=(0, 2)) * bits.shape[-1])


def _added(one: dict[str, Tally], other: dict[str, Tally]) -> dict[str, Tally]:
    return {name: Tally(*(a + b for a, b in zip(one[name], other[name], strict=True))) for name in one}


def _shares_of_weights(weights: Mapping[str, Flags], heads: int) -> dict[str, Any]:
    """The share of ones in each matrix, if its weights have bits."""
    if not weights:
        return {}
    shares: dict[str, Any] = {}
    for name in HEAD_WEIGHTS:
        rows = weights[name].T if name == "attention_output" else weights[name]  # (H · D, other side)
        shares[f"weight of {name}"] = rows.reshape(heads, -1).mean(axis=1, dtype=np.float64)
    for name in LAYER_WEIGHTS:
        shares[f"weight of {name}"] = weights[name].mean(dtype=np.float64)
    return shares

"""Information entropy of what a model binarizes, layer by layer and head by head (Section 3.2.1, Fig. "Analysis" (a)).

The entropy is that of one bit drawn from all bits of a tensor, padding left out: 1 where half of them are 1, 0 where
all are equal. Where the bits come from is `inside`; through training they are logged by `training.probe`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.lab.inside import Flags, Inside, LayerInside
from bibert.lab.theory import binary_entropy

HEADS = ("query", "key", "value", "attention", "context")  # activations that every head has
LAYERS = ("ffn_hidden",)  # those that a layer has once
HEAD_WEIGHTS = ("query", "key", "value", "attention_output")  # matrices whose rows or columns belong to heads
LAYER_WEIGHTS = ("intermediate", "output")

Floats = NDArray[np.float64]
_entropy_of_share = np.vectorize(binary_entropy, otypes=[np.float64])


class Tally(NamedTuple):
    """Bits that are 1, and all bits."""

    ones: Any
    total: Any


@dataclass(frozen=True)
class Entropies:
    """Entropies in bits.

    Attributes:
        heads: (layers, heads) for each of `HEADS`, and for each of `HEAD_WEIGHTS` under "weight of …".
        layers: (layers,) for each of `LAYERS`, and for each of `LAYER_WEIGHTS` alike.
    """

    heads: Mapping[str, Floats]
    layers: Mapping[str, Floats]

    def by_layer(self) -> dict[str, Floats]:
        """The mean over heads, (layers,) for everything."""
        return {name: table.mean(axis=1) for name, table in self.heads.items()} | dict(self.layers)

    def to_dict(self) -> dict[str, list[object]]:
        """Plain values, rounded to four digits."""
        tables = chain(self.heads.items(), self.layers.items())
        return {name: np.round(table, 4).tolist() for name, table in tables}


def entropies(insides: Iterable[Inside]) -> Entropies:
    """The entropy of every binarized tensor of a model, of all bits of the batches that it read together."""
    tallies: list[dict[str, Tally]] = []
    for inside in insides:
        found = [_tally(layer, inside.real, inside.heads) for layer in inside.layers]
        tallies = found if not tallies else [_added(*both) for both in zip(tallies, found, strict=True)]
    shares = [{name: ones / total for name, (ones, total) in layer.items()} for layer in tallies]
    weights = [_shares_of_weights(layer.weights, inside.heads) for layer in inside.layers]
    tables = {
        name: _entropy_of_share(np.array([{**bits, **more}[name] for bits, more in zip(shares, weights, strict=True)]))
        for name in (*shares[0], *weights[0])
    }
    return Entropies(
        heads={name: table for name, table in tables.items() if table.ndim == 2},
        layers={name: table for name, table in tables.items() if table.ndim == 1},
    )


def weight_of(matrix: str) -> str:
    """The name of the entropy of a matrix."""
    return f"weight of {matrix}"


def _tally(layer: LayerInside, real: Flags, heads: int) -> dict[str, Tally]:
    """How many bits of each activation of a layer are 1, of how many; by head, (heads,), where heads have them."""
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


def _shares_of_weights(weights: Mapping[str, Flags], heads: int) -> dict[str, Floats]:
    """How many bits of each matrix are 1, which no text changes."""
    if not weights:
        return {}
    shares = {}
    for name in HEAD_WEIGHTS:
        rows = weights[name].T if name == "attention_output" else weights[name]  # (H · D, other side)
        shares[weight_of(name)] = rows.reshape(heads, -1).mean(axis=1, dtype=np.float64)
    for name in LAYER_WEIGHTS:
        shares[weight_of(name)] = weights[name].mean(dtype=np.float64)
    return shares

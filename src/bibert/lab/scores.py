"""The attention scores of a model before any scale: integers from -D to D, which Theorem 2 says are binomial.

They follow from the bits of queries and keys alone (`inside`); the binomial and the Gaussian are in `theory`.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bibert.lab.inside import Flags, Inside, LayerInside

Floats = NDArray[np.float64]


def score_shares(insides: Iterable[Inside]) -> Floats:
    """How often each score -D, -D + 2, ..., D occurs in all batches, (layers, D + 1); padding is left out."""
    counts = sum(np.array([_counts(layer, inside.real) for layer in inside.layers]) for inside in insides)
    shares: Floats = counts / np.sum(counts, axis=1, keepdims=True)
    return shares


def _counts(layer: LayerInside, real: Flags) -> NDArray[np.int64]:
    query, key = (np.where(bits, np.float32(1), np.float32(-1)) for bits in (layer.query, layer.key))
    scores = (query @ key.swapaxes(-1, -2)).astype(np.int64)
    size = query.shape[-1]
    pairs = np.broadcast_to(real[:, None, :, None] & real[:, None, None, :], scores.shape)
    return np.bincount((scores[pairs] + size) // 2, minlength=size + 1)

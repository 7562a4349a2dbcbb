"""The attention scores of a model before any scale: integers from -D to D, which Theorem 2 says are binomial.

They follow from the bits of queries and keys alone (`inside`); the binomial and the Gaussian are in `theory`.
"""

import numpy as np
from numpy.typing import NDArray

from bibert.analysis.inside import Inside

Floats = NDArray[np.float64]


def score_shares(inside: Inside) -> Floats:
    """How often each score -D, -D + 2, ..., D occurs, (layers, D + 1); padding is left out."""
    pairs = inside.real[:, None, :, None] & inside.real[:, None, None, :]
    shares = []
    for layer in inside.layers:
        query, key = (np.where(bits, np.float32(1), np.float32(-1)) for bits in (layer.query, layer.key))
        scores = (query @ key.swapaxes(-1, -2)).astype(np.int64)
        size = query.shape[-1]
        counts = np.bincount((scores[np.broadcast_to(pairs, scores.shape)] + size) // 2, minlength=size + 1)
        shares.append(counts / counts.sum())
    return np.array(shares)

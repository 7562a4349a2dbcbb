"""The bit convention of the packed file, in numpy: bit 1 stands for +1, bit 0 for -1 (for 0 where levels are {0, 1}).

Channel c of a row is bit c % 64 of its 64-bit little-endian word c // 64; what a row leaves of its last word is 0.
Nothing here knows of layers or files (`schema`, `file`).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORD_BITS = 64
Words = NDArray[np.uint64]


def words_for(channels: int) -> int:
    """How many words hold a row of `channels` bits."""
    return -(-channels // WORD_BITS)


def pack_rows(ones: ArrayLike) -> Words:
    """Truth values (..., channels) to words (..., words); what is true becomes bit 1."""
    flags = np.asarray(ones, dtype=bool)
    missing = words_for(flags.shape[-1]) * WORD_BITS - flags.shape[-1]
    padded = np.pad(flags, [(0, 0)] * (flags.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(np.packbits(padded, axis=-1, bitorder="little")).view("<u8")


def unpack_rows(words: Words, channels: int) -> NDArray[np.bool_]:
    """Words (..., words) to truth values (..., channels)."""
    octets = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=channels, bitorder="little").astype(bool)


def has_stray_bits(words: Words, channels: int) -> bool:
    """Whether a bit is set behind the last channel of a row."""
    used = channels % WORD_BITS
    return bool(used) and bool((words[..., -1] >> np.uint64(used)).any())

"""The bit convention of the packed file, in numpy: bit 1 is +1, bit 0 is -1 (or 0 where the levels are {0, 1}).

Channel c of a row is bit c % 64 of its little-endian 64-bit word c // 64; unused bits of the last word are 0.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORD_BITS = 64
Words = NDArray[np.uint64]


def words_for(channels: int) -> int:
    """Number of words in a row of `channels` bits."""
    return -(-channels // WORD_BITS)


def pack_rows(ones: ArrayLike) -> Words:
    """Pack booleans (..., channels) into words (..., words); True becomes bit 1."""
    flags = np.asarray(ones, dtype=bool)
    missing = words_for(flags.shape[-1]) * WORD_BITS - flags.shape[-1]
    padded = np.pad(flags, [(0, 0)] * (flags.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(np.packbits(padded, axis=-1, bitorder="little")).view("<u8")


def unpack_rows(words: Words, channels: int) -> NDArray[np.bool_]:
    """Unpack words (..., words) into booleans (..., channels)."""
    octets = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=channels, bitorder="little").astype(bool)


def has_stray_bits(words: Words, channels: int) -> bool:
    """Whether any bit after the last channel of a row is set."""
    used = channels % WORD_BITS
    return bool(used) and bool((words[..., -1] >> np.uint64(used)).any())

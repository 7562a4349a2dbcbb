"""What every engine is given: batches of random token ids of one length, without padding, and what it gives back."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.errors import BibertError

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]
Run = Callable[[Ids, Ids], Logits]  # token ids and attention mask, (batch, length) each, to logits (batch, labels)


class Shape(NamedTuple):
    """How many texts at once, and how many tokens each has; written 8x128."""

    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.length}"

    @classmethod
    def parse(cls, word: str) -> "Shape":
        """Read what `str` writes.

        Raises:
            BibertError: `word` is something else.
        """
        found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", word, flags=re.ASCII)
        if found is None:
            raise BibertError(f"shape {word!r}: write texts x tokens as two whole numbers from 1, such as 8x128")
        return cls(int(found[1]), int(found[2]))


def random_batch(shape: Shape, vocabulary: int, seed: int = 0) -> tuple[Ids, Ids]:
    """Token ids and a mask of ones: every text is as long as the batch, so that nobody computes padding."""
    ids = np.random.default_rng(seed).integers(vocabulary, size=shape, dtype=np.int64)
    return ids, np.ones_like(ids)

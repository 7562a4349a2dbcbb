"""What the heads of several models attend to in one text (Fig. "Attention-head view", Fig. "Attention pattern").

Maps are arrays, which `plots.attention` draws and `pages` shows in a browser.
Shapes: L layers, H heads, T tokens; rows of a (T, T) matrix are queries, its columns keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError
from bibert.lab.look import Flags, Floats, Inside, LayerInside, Subject
from bibert.runtime.text import Text


@dataclass(frozen=True)
class AttentionMap:
    """The attention of one model on one text."""

    title: str
    scheme: str
    tokens: tuple[str, ...]
    weights: Floats  # (L, H, T, T); for a 1-bit model its bits, as 0 and 1
    is_bits: bool  # of weights -1 and +1 the bit 1 is +1, of the two values of `asym` the larger one
    answer: str = ""  # the label that the model gives, with its probability

    @property
    def largest(self) -> Floats:
        """(L, H): the weight that is drawn darkest in each head; 1 for bits, which are never rescaled."""
        if self.is_bits:
            return np.ones(self.weights.shape[:2], np.float32)
        return np.asarray(self.weights.max(axis=(-2, -1)))

    @property
    def scaled(self) -> Floats:
        """(L, H, T, T) between 0 and 1: the weights of each head divided by its largest, or the bits."""
        return self.weights / self.largest[:, :, None, None]


def attention_maps(subjects: Mapping[str, Subject], row: Text) -> tuple[AttentionMap, ...]:
    """The attention of every model, by title, on the same text or pair of texts, read as the same tokens."""
    if not subjects:
        raise DataError("no model to look into; give at least one")
    maps = tuple(attention_map(subject, title, row) for title, subject in subjects.items())
    for other in maps[1:]:
        _require_same_tokens(maps[0], other)
    return maps


def attention_map(subject: Subject, title: str, row: Text) -> AttentionMap:
    """The attention of one model on a text, or pair of texts."""
    tokens, inside = subject.read(row)
    weights = np.stack([layer.attention[0] for layer in inside.layers])
    bits = np.stack([layer.attended[0] for layer in inside.layers])
    # If all bits are 1 but the weights differ, this is a softmax that is not binarized.
    is_bits = bool(bits.dtype == np.bool_ and (not bits.all() or (weights == 1).all()))
    shown = bits.astype(np.float32) if is_bits else weights
    return AttentionMap(title, subject.scheme, tokens, shown, is_bits, subject.answer(row))


def _require_same_tokens(one: AttentionMap, other: AttentionMap) -> None:
    counts = len(one.tokens), len(other.tokens)
    if counts[0] != counts[1]:  # usually one model truncates earlier
        remedy = f"give a text of at most {min(counts)} tokens to models with the same tokenizer"
        raise DataError(f"{one.title} reads {counts[0]} tokens, {other.title} {counts[1]}; {remedy}")
    for place, (left, right) in enumerate(zip(one.tokens, other.tokens, strict=True)):
        if left != right:
            tokens = f"token {place} is {left!r} for {one.title} and {right!r} for {other.title}"
            raise DataError(f"{tokens}; give models with the same tokenizer")


def score_shares(insides: Iterable[Inside]) -> NDArray[np.float64]:
    """How often each score of Theorem 2, -D, -D + 2, ..., D, occurs in all batches, (layers, D + 1); no padding."""
    counts = sum(np.array([_score_counts(layer, inside.real) for layer in inside.layers]) for inside in insides)
    return np.asarray(counts / np.sum(counts, axis=1, keepdims=True))


def _score_counts(layer: LayerInside, real: Flags) -> NDArray[np.int64]:
    if layer.query.dtype != np.bool_:
        raise DataError("Theorem 2 is about scores of single bits; give a 1-bit student")
    query, key = (np.where(bits, np.float32(1), np.float32(-1)) for bits in (layer.query, layer.key))
    scores = (query @ key.swapaxes(-1, -2)).astype(np.int64)
    size = query.shape[-1]
    pairs = np.broadcast_to(real[:, None, :, None] & real[:, None, None, :], scores.shape)
    return np.bincount((scores[pairs] + size) // 2, minlength=size + 1)

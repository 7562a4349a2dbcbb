"""What every head of several models attends to in one text (Fig. "Attention-head view", Fig. "Attention pattern").

Here are the arrays, made from `subject`; they are drawn by `plots.attention` and shown in a browser by `pages`.

Shapes: L layers, H heads, T tokens; rows of a (T, T) matrix are queries, its columns keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bibert.errors import BibertError, DataError
from bibert.lab.inside import Flags, Floats, Inside
from bibert.lab.subject import Subject
from bibert.runtime.text import Row


@dataclass(frozen=True)
class AttentionMap:
    """The attention of one model on one text.

    Attributes:
        title: what stands above it.
        scheme: the name of the model's scheme.
        tokens: what it read, T of them.
        weights: (L, H, T, T); of a 1-bit model its bits, as 0 and 1.
        is_bits: whether they are bits; of weights -1 and +1 the bit is 1 for +1, of two values in a row for the larger.
    """

    title: str
    scheme: str
    tokens: tuple[str, ...]
    weights: Floats
    is_bits: bool

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return len(self.weights)

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return int(self.weights.shape[1])

    @property
    def largest(self) -> Floats:
        """(L, H): what a head's weights are divided by to be shown; 1 for bits, so that no head looks like another."""
        if self.is_bits:
            return np.ones(self.weights.shape[:2], np.float32)
        largest: Floats = self.weights.max(axis=(-2, -1))
        return largest

    @property
    def scaled(self) -> Floats:
        """(L, H, T, T) between 0 and 1: the weights of every head divided by its largest, or the bits."""
        return self.weights / self.largest[:, :, None, None]

    def head(self, layer: int, head: int) -> Floats:
        """The scaled (T, T) of one head.

        Raises:
            BibertError: there is no such head.
        """
        if not (0 <= layer < self.layers and 0 <= head < self.heads):
            raise BibertError(
                f"{self.title}: has no layer {layer} with a head {head}; layers are 0 to {self.layers - 1}, "
                f"heads 0 to {self.heads - 1}"
            )
        matrix: Floats = self.weights[layer, head] / self.largest[layer, head]
        return matrix


def attention_maps(subjects: Mapping[str, Subject], row: Row) -> tuple[AttentionMap, ...]:
    """The attention of every model, by its title, on the same text, or pair of texts.

    Raises:
        DataError: there is no model, or two read different tokens.
        SchemeError: a model's activations have several bits.
    """
    if not subjects:
        raise DataError("no model to look into; give at least one")
    maps = tuple(attention_map(subject, title, row) for title, subject in subjects.items())
    for other in maps[1:]:
        _require_same_tokens(maps[0], other)
    return maps


def attention_map(subject: Subject, title: str, row: Row) -> AttentionMap:
    """The attention of one model on a text, or pair of texts."""
    reading = subject.read(row)
    weights, bits = _weights(reading.inside), _bits(reading.inside)
    # All bits of a softmax are 1 while its weights differ: that is a model whose attention has no bits.
    is_bits = bool(not bits.all() or (weights == 1).all())
    return AttentionMap(title, subject.scheme, reading.tokens, bits.astype(np.float32) if is_bits else weights, is_bits)


def _weights(inside: Inside) -> Floats:
    return np.stack([layer.attention[0] for layer in inside.layers])


def _bits(inside: Inside) -> Flags:
    return np.stack([layer.attended[0] for layer in inside.layers])


def _require_same_tokens(one: AttentionMap, other: AttentionMap) -> None:
    counts = len(one.tokens), len(other.tokens)
    if counts[0] != counts[1]:  # mostly one was cut, by a limit of its own
        raise DataError(
            f"{one.title} reads {counts[0]} tokens, {other.title} {counts[1]}; give a text that both read whole, of at "
            f"most {min(counts)} tokens, to models with the same tokenizer"
        )
    for place, (left, right) in enumerate(zip(one.tokens, other.tokens, strict=True)):
        if left != right:
            raise DataError(
                f"token {place} is {left!r} for {one.title} and {right!r} for {other.title}; only models with the same "
                "tokenizer can be shown side by side"
            )

"""Text to token ids, with the tokenizer of a packed file: the same ids as transformers gives, and never padding.

Truncation and special tokens are done here and not by the tokenizer, which would first work through all of a text,
then keep what it cut off, and for two long texts every combination of it. How a text may be read piece by piece is
the business of `cutting`; what happens to the ids, of `engine`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from bibert.errors import BibertError, EngineError, ModelFileError, one_line
from bibert.packed.header import PACK_AGAIN
from bibert.runtime.cutting import Scissors
from bibert.runtime.engine import Encoded

MOST_CHARACTERS = 100_000
PARALLEL_FROM = 32  # texts; the tokenizer's threads are not worth waking for fewer

Row = str | tuple[str, str]  # a text, or a text and its pair

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no UTF-8 can hold


class TextEncoder:
    """A tokenizer that encodes texts and pairs of texts for one model.

    Any number of threads may use it at once. Of a text with more than `most_characters` only so many are read.

    Args:
        tokenizer: the contents of tokenizer.json.
        vocabulary: rows of the model's word embedding.
        max_length: tokens of the longest input; what is longer is cut.
        most_characters: see above.
        parallel: whether many texts may be encoded by several threads; TOKENIZERS_PARALLELISM can forbid it too.

    Raises:
        ModelFileError: the tokenizer cannot be read, or does not fit the model.
    """

    def __init__(
        self,
        tokenizer: bytes,
        vocabulary: int,
        max_length: int,
        *,
        most_characters: int = MOST_CHARACTERS,
        parallel: bool = True,
    ) -> None:
        self.max_length = max_length
        self.most_characters = most_characters
        with _as_error(ModelFileError, f"tokenizer: cannot be read ({{}}); {PACK_AGAIN}"):
            self._tokenizer = _read_tokenizer(tokenizer, vocabulary)
            self._layouts = {texts: _Layout.of(self._tokenizer, texts) for texts in (1, 2)}
            self._scissors = Scissors(self._tokenizer, max_length)
        self._parallel_in = os.getpid() if parallel else None  # a child of fork has lost the tokenizer's threads
        if self._layouts[1].special >= max_length:
            raise ModelFileError(
                f"tokenizer: adds {self._layouts[1].special} special tokens, the longest input has {max_length}; "
                f"{PACK_AGAIN}"
            )

    def encode(self, rows: Sequence[Row], first: int = 0) -> list[Encoded]:
        """Encode texts and pairs.

        Args:
            rows: each a text, or two.
            first: the number of the first row, for messages.

        Raises:
            EngineError: a row is not a text or a pair of texts, or has no tokens; the message has its number.
        """
        readings = [
            [_Reading(self, text[: self.most_characters]) for text in self._texts_of(row, number)]
            for number, row in enumerate(rows, first)
        ]
        with _as_error(EngineError, f"rows {first} to {first + len(rows) - 1}: the tokenizer fails ({{}})"):
            self._read_first_pieces([reading for row in readings for reading in row])
            encoded = [self._encoded(*both) for both in zip(readings, rows, strict=True)]
        empty = next((number for number, row in enumerate(encoded, first) if not row.ids.size), None)
        if empty is not None:
            raise EngineError(f"row {empty}: has no tokens, and the tokenizer adds none; leave it out")
        return encoded

    def pieces(self, text: str) -> Iterator[str]:
        """Texts that together have the tokens of `text` and that UTF-8 can hold."""
        return self._scissors.pieces(text if text.isascii() else _SURROGATE.sub("\ufffd", text))

    def ids_of(self, text: str) -> list[int]:
        """All tokens of `text`, without special ones."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def tokens_of(self, ids: Sequence[int]) -> list[str]:
        """The tokens behind ids, as they stand in the vocabulary."""
        return [str(self._tokenizer.id_to_token(token)) for token in ids]

    def _texts_of(self, row: object, number: int) -> tuple[str, ...]:
        match row:
            case str():
                return (row,)
            case (str() as text, str() as pair):
                if self._layouts[2].special < self.max_length:
                    return text, pair
                raise EngineError(
                    f"row {number}: a pair has {self._layouts[2].special} special tokens, the longest input has "
                    f"{self.max_length}; give single texts"
                )
        raise EngineError(f"row {number}: {_describe(row)}, must be a text (str) or a pair of texts")

    def _read_first_pieces(self, readings: "list[_Reading]") -> None:
        """Most texts have only one piece, so this is where the tokenizer's threads are worth it."""
        if len(readings) < PARALLEL_FROM or self._parallel_in != os.getpid():
            return
        pieces = [next(reading.pieces) for reading in readings]
        encodings = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
        for reading, encoding in zip(readings, encodings, strict=True):
            reading.ids += encoding.ids

    def _encoded(self, readings: "list[_Reading]", row: Row) -> Encoded:
        layout = self._layouts[len(readings)]
        room = self.max_length - layout.special
        for reading in readings:
            reading.read(room + 1)  # one more than there is room for tells that something is left out
        kept = (room,) if len(readings) == 1 else _shares(readings[0], readings[1], room)
        left_out = any(len(reading.ids) > count for reading, count in zip(readings, kept, strict=True))
        unread = any(len(text) > self.most_characters for text in ((row,) if isinstance(row, str) else row))
        ids = [reading.ids[:count] for reading, count in zip(readings, kept, strict=True)]
        return layout.fill(ids, truncated=left_out or unread)


class _Reading:
    """The tokens of a text, as far as they were read."""

    def __init__(self, encoder: TextEncoder, text: str) -> None:
        self._encoder = encoder
        self.pieces = encoder.pieces(text)
        self.ids: list[int] = []
        self.whole = False

    def read(self, tokens: int) -> None:
        """Read until there are so many tokens, or all."""
        while len(self.ids) < tokens and not self.whole:
            piece = next(self.pieces, None)
            self.whole = piece is None
            self.ids += [] if piece is None else self._encoder.ids_of(piece)


def _shares(first: _Reading, second: _Reading, room: int) -> tuple[int, int]:
    """How many tokens each of two texts keeps: the longer gives up first, by transformers' rule "longest_first".

    If both are longer than half of the room, each gets half, and of an odd number the longer gets one more. Only then
    it matters which of two long texts has more tokens.
    """
    counts = len(first.ids), len(second.ids)
    if sum(counts) <= room:
        return counts
    half = room // 2
    if min(counts) > half and room % 2 == 1:
        return (half + 1, half) if _has_more_tokens(first, second) else (half, half + 1)
    short = min(*counts, half)
    return (room - short, short) if counts[0] > counts[1] else (short, room - short)


def _has_more_tokens(first: _Reading, second: _Reading) -> bool:
    """Whether the first text has more tokens than the second; reads only as far as it must."""
    while not (first.whole and len(first.ids) <= len(second.ids)) and not (
        second.whole and len(second.ids) < len(first.ids)
    ):
        unread = [reading for reading in (first, second) if not reading.whole]
        behind = min(unread, key=lambda reading: len(reading.ids))
        behind.read(len(behind.ids) + 1)
    return len(first.ids) > len(second.ids)


class _Place(NamedTuple):
    """A place in an input: a special token, or where the tokens of a text go."""

    text: int | None
    token: int
    token_type: int


class _Layout(NamedTuple):
    """Where special tokens stand beside a text or a pair of texts."""

    places: tuple[_Place, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: int) -> "_Layout":
        """Learn it from an example, since a tokenizer does not tell it."""
        example = tokenizer.encode("a", "a" if texts == 2 else None)
        places = tuple(map(_Place, example.sequence_ids, example.ids, example.type_ids))
        once = [place for place, before in zip(places, (None, *places), strict=False) if not _goes_on(place, before)]
        if sorted(place.text for place in once if place.text is not None) != list(range(texts)):
            raise ModelFileError(f"tokenizer: an input of {texts} texts does not have each of them once; {PACK_AGAIN}")
        return cls(tuple(once))

    @property
    def special(self) -> int:
        """How many special tokens there are."""
        return sum(place.text is None for place in self.places)

    def fill(self, texts: Sequence[list[int]], truncated: bool) -> Encoded:
        """Put the tokens of texts into their places."""
        ids: list[int] = []
        token_types: list[int] = []
        for text, token, token_type in self.places:
            tokens = [token] if text is None else texts[text]
            ids += tokens
            token_types += [token_type] * len(tokens)
        return Encoded(np.array(ids, dtype=np.int32), np.array(token_types, dtype=np.int32), truncated)


def _goes_on(place: _Place, before: _Place | None) -> bool:
    return before is not None and place.text is not None and place.text == before.text


def _read_tokenizer(raw: bytes, vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer.from_buffer(raw)
    tokens, unknown = tokenizer.get_vocab_size(), getattr(tokenizer.model, "unk_token", None)
    if tokens > vocabulary:
        raise ModelFileError(f"tokenizer: has {tokens} tokens, the word embedding has {vocabulary} rows; {PACK_AGAIN}")
    if unknown is not None and tokenizer.token_to_id(unknown) is None:
        raise ModelFileError(f"tokenizer: {unknown!r}, for unknown words, is not among its tokens; {PACK_AGAIN}")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@contextmanager
def _as_error(kind: type[BibertError], what: str) -> Iterator[None]:
    """Any failure of the tokenizer as an error of ours, its message where `what` has braces.

    Where its Rust half panics, what it raises is not even an `Exception`.
    """
    try:
        yield
    except (BibertError, KeyboardInterrupt, MemoryError, SystemExit):
        raise
    except BaseException as error:
        raise kind(what.format(one_line(error))) from error


def _describe(row: Any) -> str:
    match row:
        case (str(), other) | (other, str()):
            return f"a pair with {other!r:.40} ({type(other).__name__})"
    return f"{row!r:.40} ({type(row).__name__})"

"""Texts to token ids, with the tokenizer of a packed file: the same ids as transformers gives, without padding.

Truncation and special tokens are handled here. The tokenizer itself would process all of a text, which takes seconds
for a megabyte, and keep what it cuts off. `Scissors` cuts a long text into pieces whose tokens are those of the text,
so that encoding can stop once an input is full.
"""

import os
import re
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bibert.data import MOST_CHARACTERS
from bibert.errors import BibertError, EngineError, ModelFileError, one_line
from bibert.packed.header import PACK_AGAIN
from bibert.packed.schema import LIMITS
from bibert.packed.tokenizer import read_tokenizer
from bibert.runtime.engine import Encoded

PARALLEL_FROM = 32  # texts; for fewer, waking the tokenizer's threads does not pay

Text = str | tuple[str, str]  # a text, or a text and its pair
Where = Callable[[int], str]  # the place of a row, by its number from 0, for messages
BY_NUMBER: Where = "row {}".format

SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 cannot represent

CHARACTERS_PER_TOKEN = 8  # a piece should have as many tokens as the longest input; English has about 5
SMALLEST_PIECE = 512  # characters
SPACES = " \t\n\r\u00a0\u3000"  # BERT always splits here; other control characters vanish inside a word
PUNCTUATION = re.escape(string.punctuation) + "\u2010-\u2027\u3001\u3002\uff01\uff0c\uff1f"  # each is a word
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff"  # each is a word, unless the tokenizer is configured otherwise

# Characters that never end a word: they stay in it or vanish. A few large blocks of Unicode without punctuation; the
# tests check each of them against the tokenizer. A script that is missing here costs time, not correctness.
INSIDE_A_WORD = (
    "0-9A-Za-z"
    "\u00c0-\u036f"  # Latin with accents, phonetic letters, accents alone
    "\u0388-\u0481\u048a-\u052f"  # Greek, Cyrillic
    "\u05d0-\u05ea\u0620-\u065f\u066e-\u06d3"  # Hebrew, Arabic
    "\u0900-\u0963\u0e01-\u0e4e"  # Devanagari, Thai
    "\u1100-\u11ff\uac00-\ud7a3"  # Hangul
    "\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe"  # Kana
    "\u200d\ufe0e\ufe0f\u2600-\u2767\U0001f300-\U0001faff"  # emoji and their joiners
)
LONGEST_ADDED = 64  # characters of an added token such as [MASK]
MOST_ADDED = 64  # BERT has 5; each is looked for wherever a piece may end, so thousands would take seconds
KEPT_HEAD, KEPT_TAIL = 512, LONGEST_ADDED  # of a very long word
_LONG_WORD = re.compile(f"(?<![{INSIDE_A_WORD}])[{INSIDE_A_WORD}]{{{KEPT_HEAD + KEPT_TAIL + 1},}}")
_WORD_ONLY = re.compile(f"[{INSIDE_A_WORD}]*")
_MANY_SPACES = re.compile(f"[{SPACES}]{{2,}}")
_REACH = 2 * (KEPT_HEAD + KEPT_TAIL)  # how far back to look for the end of a word


def is_blank(row: Text) -> bool:
    """Whether a text, or both of a pair, holds nothing but whitespace as far as it is read."""
    texts = (row,) if isinstance(row, str) else row
    return all(not text or text[:MOST_CHARACTERS].isspace() for text in texts)


class TextEncoder:
    """Encodes texts and pairs of texts for one model. Threads may share it.

    `tokenizer` has the contents of tokenizer.json, `vocabulary` and `token_types` are the numbers of rows of the
    model's tables. At most `most_characters` of a text are read, and at most `max_length` tokens are kept. With
    `parallel`, several threads encode many texts, unless TOKENIZERS_PARALLELISM forbids it.
    """

    def __init__(
        self,
        tokenizer: bytes,
        vocabulary: int,
        max_length: int,
        *,
        token_types: int = LIMITS["token_types"],
        most_characters: int = MOST_CHARACTERS,
        parallel: bool = True,
    ) -> None:
        self.max_length = max_length
        self.most_characters = most_characters
        with _as_error(ModelFileError, f"tokenizer: cannot be read ({{}}); {PACK_AGAIN}"):
            self._tokenizer = read_tokenizer(tokenizer, vocabulary)
            self._layouts = {texts: _Layout.of(self._tokenizer, texts) for texts in (1, 2)}
            self._scissors = Scissors(self._tokenizer, max_length)
        self._parallel_in = os.getpid() if parallel else None  # after a fork, the child lacks the tokenizer's threads
        special = self._layouts[1].special
        if special >= max_length:
            problem = f"adds {special} special tokens, the longest input has {max_length}"
            raise ModelFileError(f"tokenizer: {problem}; {PACK_AGAIN}")
        token_type = max(place.token_type for place in self._layouts[1].places)
        if token_type >= token_types:
            problem = f"gives a text the token type {token_type}, the model has {token_types} types"
            raise ModelFileError(f"tokenizer: {problem}; {PACK_AGAIN}")

    def encode(self, rows: Sequence[Text], first: int = 0, where: Where = BY_NUMBER) -> list[Encoded]:
        """Encode texts and pairs; `first` is the number of the first row, for messages."""
        texts = [self._texts_of(row, where(number)) for number, row in enumerate(rows, first)]
        readings = [[_Reading(self, text) for text in row] for row in texts]
        with _as_error(EngineError, f"{where(first)} to {where(first + len(rows) - 1)}: the tokenizer fails ({{}})"):
            self._read_first_pieces([reading for row in readings for reading in row])
            return [self._encoded(row) for row in readings]

    def pieces(self, text: str) -> Iterator[str]:
        """Cut `text` into pieces that together have its tokens and that UTF-8 can represent."""
        return self._scissors.pieces(text if text.isascii() else SURROGATE.sub("\ufffd", text))

    def ids_of(self, text: str) -> list[int]:
        """Return all tokens of `text`, without special ones."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def tokens_of(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens behind ids, as in the vocabulary."""
        return [str(self._tokenizer.id_to_token(token)) for token in ids]

    def _texts_of(self, row: object, where: str) -> tuple[str, ...]:
        match row:
            case str():
                return (row,)
            case (str() as text, str() as pair):
                special = self._layouts[2].special
                if special < self.max_length:
                    return text, pair
                problem = f"a pair has {special} special tokens, the longest input has {self.max_length}"
                raise EngineError(f"{where}: {problem}; use single texts")
            case (str(), other) | (other, str()):
                found = f"a pair with {other!r:.40} ({type(other).__name__})"
            case _:
                found = f"{row!r:.40} ({type(row).__name__})"
        raise EngineError(f"{where}: {found}, must be a text (str) or a pair of texts")

    def _read_first_pieces(self, readings: "list[_Reading]") -> None:
        """Read the first piece of each text with the tokenizer's threads; most texts have only one piece."""
        if len(readings) < PARALLEL_FROM or self._parallel_in != os.getpid():
            return
        pieces = [next(reading.pieces) for reading in readings]
        encodings = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
        for reading, encoding in zip(readings, encodings, strict=True):
            reading.ids += encoding.ids

    def _encoded(self, readings: "list[_Reading]") -> Encoded:
        layout = self._layouts[len(readings)]
        room = self.max_length - layout.special
        for reading in readings:
            reading.read(room + 1)  # one token more than fits shows that the text is truncated
        kept = (room,) if len(readings) == 1 else _shares(readings[0], readings[1], room)
        truncated = any(reading.cut or len(reading.ids) > count for reading, count in zip(readings, kept, strict=True))
        return layout.fill([reading.ids[:count] for reading, count in zip(readings, kept, strict=True)], truncated)


class _Reading:
    """The tokens of a text that were read so far."""

    def __init__(self, encoder: TextEncoder, text: str) -> None:
        self._encoder = encoder
        self.pieces = encoder.pieces(text[: encoder.most_characters])
        self.cut = len(text) > encoder.most_characters
        self.ids: list[int] = []
        self.whole = False

    def read(self, tokens: int) -> None:
        """Read until there are that many tokens, or the text ends."""
        while len(self.ids) < tokens and not self.whole:
            piece = next(self.pieces, None)
            self.whole = piece is None
            self.ids += [] if piece is None else self._encoder.ids_of(piece)


def _shares(first: _Reading, second: _Reading, room: int) -> tuple[int, int]:
    """How many tokens each of two texts keeps, by transformers' rule "longest_first": the longer loses tokens first.

    If both are longer than half of the room, each gets half, and the one with more tokens gets the odd token. Only then
    must both be read far enough to know which one has more.
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
    """Whether the first text has more tokens than the second; reads only as far as necessary."""
    while not (first.whole and len(first.ids) <= len(second.ids)) and not (
        second.whole and len(second.ids) < len(first.ids)
    ):
        behind = min((one for one in (first, second) if not one.whole), key=lambda reading: len(reading.ids))
        behind.read(len(behind.ids) + 1)
    return len(first.ids) > len(second.ids)


class _Place(NamedTuple):
    """A place in an input: a special token, or all tokens of a text."""

    text: int | None
    token: int
    token_type: int


class _Layout(NamedTuple):
    """Where the special tokens stand around a text or a pair of texts, and how many there are."""

    places: tuple[_Place, ...]
    special: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: int) -> "_Layout":
        """Learn it from an example, because a tokenizer does not expose it."""
        example = tokenizer.encode("a", "a" if texts == 2 else None)
        places: list[_Place] = []
        for place in map(_Place, example.sequence_ids, example.ids, example.type_ids):
            if place.text is None or not places or places[-1].text != place.text:
                places.append(place)
        return cls(tuple(places), special=len(places) - texts)

    def fill(self, texts: Sequence[list[int]], truncated: bool) -> Encoded:
        """Put the tokens of texts into their places."""
        ids: list[int] = []
        token_types: list[int] = []
        for text, token, token_type in self.places:
            tokens = [token] if text is None else texts[text]
            ids += tokens
            token_types += [token_type] * len(tokens)
        return Encoded(np.array(ids, dtype=np.int32), np.array(token_types, dtype=np.int32), truncated)


class Scissors:
    """Cuts texts for one tokenizer into pieces of about `max_length` tokens in most languages.

    A piece ends where a word certainly ends. That is known for BERT's tokenizer; for others a text is one piece.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._knows_words = _splits_like_bert(tokenizer)
        self._piece = max(CHARACTERS_PER_TOKEN * max_length, SMALLEST_PIECE)
        self._added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        ideographs = IDEOGRAPHS if getattr(tokenizer.normalizer, "handle_chinese_chars", False) else ""
        self._edge = re.compile(f"[{SPACES}{PUNCTUATION}{ideographs}]")

    def pieces(self, text: str) -> Iterator[str]:
        """Yield texts that together have the tokens of `text`; a short text is yielded as it is."""
        if len(text) <= self._piece or not self._knows_words:
            yield text
            return
        # The same tokens in fewer characters: runs of spaces become one, very long words lose their middle.
        text, start = _LONG_WORD.sub(self._squeeze, _MANY_SPACES.sub(" ", text)), 0
        while start < len(text):
            end = self._next_end(text, start)
            yield text[start:end]
            start = end

    def _next_end(self, text: str, start: int) -> int:
        """The end of the next piece: at the end of a word, or of the text if no such place is found."""
        size = self._piece
        while start + size < len(text):
            for end in range(start + size, max(start, start + size - _REACH), -1):
                if self._edge.match(text, end - 1) and not self._is_inside_added(text, end):
                    return end
            size *= 2
        return len(text)

    def _is_inside_added(self, text: str, end: int) -> bool:
        """Whether an added token starts before `end` and ends after it: its halves would be other tokens."""
        return any(token in text[max(end - len(token) + 1, 0) : end + len(token) - 1] for token in self._added)

    def _squeeze(self, match: re.Match[str]) -> str:
        """Shorten a word that WordPiece takes for unknown because it has too many characters.

        The first and the last characters stay because an added token may begin or end there.
        """
        word = match.group()
        certain = self._tokenizer.normalizer.normalize_str(word[LONGEST_ADDED:KEPT_HEAD])
        if len(certain) <= self._tokenizer.model.max_input_chars_per_word:
            return word
        return word[:KEPT_HEAD] + word[-KEPT_TAIL:]


def _splits_like_bert(tokenizer: Tokenizer) -> bool:
    """Whether everything `Scissors` assumes about words holds for `tokenizer`."""
    kinds = ((tokenizer.normalizer, BertNormalizer), (tokenizer.pre_tokenizer, BertPreTokenizer))
    if not all(isinstance(part, kind) for part, kind in kinds) or not isinstance(tokenizer.model, WordPiece):
        return False
    added = tokenizer.get_added_tokens_decoder().values()
    return len(added) <= MOST_ADDED and all(
        not token.normalized  # it is found in the text as it is,
        and not token.single_word  # whatever surrounds it,
        and len(token.content) <= LONGEST_ADDED
        and not any(space in token.content for space in SPACES)  # is not changed when spaces are squeezed,
        and not _WORD_ONLY.fullmatch(token.content)  # and does not lie in the middle of a word
        for token in added
    )


@contextmanager
def _as_error(kind: type[BibertError], what: str) -> Iterator[None]:
    """Turn any failure of the tokenizer into a `kind`, with its message in the braces of `what`.

    A panic in its Rust code is not even an `Exception`.
    """
    try:
        yield
    except (BibertError, KeyboardInterrupt, MemoryError, SystemExit):
        raise
    except BaseException as error:
        raise kind(what.format(one_line(error))) from error

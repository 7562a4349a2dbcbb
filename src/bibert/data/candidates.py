"""Words that may take the place of a word: TinyBERT's rule of who is asked about which word.

A masked LM (`masked_lm`) is asked about words that are one piece, GloVe (`word_vectors`) about all others. How often
words are replaced is in `augment`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenizers import normalizers, pre_tokenizers

from bibert.data.stop_words import STOP_WORDS
from bibert.data.word_vectors import WordVectors
from bibert.errors import DataError

PLAIN_WORD = re.compile("[a-z]+")


class ProposesWords(Protocol):
    """What is needed of a masked LM; `masked_lm.MaskedWordModel` is one."""

    is_uncased: bool  # whether the model reads lower-cased text

    def propose(self, words: Sequence[str], places: Sequence[int], count: int) -> dict[int, tuple[str, ...]]:
        """Words for each place that the model can speak about."""


@dataclass(frozen=True)
class Candidates:
    """Finds words to put in the place of others.

    Attributes:
        masked_lm: asked about words of one piece; without it GloVe is asked about every word.
        vectors: asked about the words that the masked LM leaves over; without it those stay as they are.
    """

    masked_lm: ProposesWords | None = None
    vectors: WordVectors | None = None

    def __post_init__(self) -> None:
        if self.masked_lm is None and self.vectors is None:
            raise DataError("augmentation needs a source of words: a masked LM, GloVe vectors, or both")

    def split(self, text: str) -> list[str]:
        """The words and marks of a text as BERT splits them, lower-cased unless the masked LM is a cased one."""
        uncased = self.masked_lm is None or self.masked_lm.is_uncased
        normal = normalizers.BertNormalizer(lowercase=uncased).normalize_str(text)
        return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normal)]

    def find(self, words: Sequence[str], count: int) -> dict[int, tuple[str, ...]]:
        """At most `count` candidates for each place whose word may be replaced: letters a to z, no stop word."""
        places = [place for place, word in enumerate(words) if _is_replaceable(word)]
        found = {} if self.masked_lm is None else self.masked_lm.propose(words, places, count)
        if self.vectors is not None:
            rest = {place: words[place].lower() for place in places if place not in found}
            near = self.vectors.neighbours(rest.values(), count)
            found |= {place: near[word] for place, word in rest.items() if word in near}
        return {place: found[place] for place in places if found.get(place)}


def _is_replaceable(word: str) -> bool:
    lower = word.lower()
    return PLAIN_WORD.fullmatch(lower) is not None and lower not in STOP_WORDS

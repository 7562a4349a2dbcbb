"""Long texts in pieces: the tokens of the pieces, one after the other, are the tokens of the text.

A tokenizer works through a whole text even where only its first 128 tokens are wanted, which takes seconds for a
megabyte. In pieces it may stop early. A piece ends where a word ends for certain; this rests on how BERT's tokenizer
splits, and for any other tokenizer a text is one piece.
"""

import re
import string
from collections.abc import Iterator

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

CHARACTERS_PER_TOKEN = 8  # of a piece, which is to have as many tokens as the longest input; English has about 5
SMALLEST_PIECE = 512  # characters
SPACES = " \t\n\r\u00a0\u3000"  # what BERT splits at on any setting; other control characters vanish inside of a word
PUNCTUATION = re.escape(string.punctuation) + "\u2010-\u2027\u3001\u3002\uff01\uff0c\uff1f"  # each a word of its own
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff"  # the same, unless the tokenizer is told otherwise

# Characters that never end a word: they stay in it or vanish. A few large blocks of Unicode, without punctuation; the
# tests hold every one of them against the tokenizer. A script that is not here costs time, not exactness.
INSIDE_A_WORD = "".join(
    (
        "0-9A-Za-z",
        "\u00c0-\u036f",  # Latin with accents, phonetic letters, accents alone
        "\u0388-\u0481\u048a-\u052f",  # Greek, Cyrillic
        "\u05d0-\u05ea\u0620-\u065f\u066e-\u06d3",  # Hebrew, Arabic
        "\u0900-\u0963\u0e01-\u0e4e",  # Devanagari, Thai
        "\u1100-\u11ff\uac00-\ud7a3",  # Hangul
        "\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe",  # Kana
        "\u200d\ufe0e\ufe0f\u2600-\u2767\U0001f300-\U0001faff",  # emoji and what joins them
    )
)
LONGEST_ADDED = 64  # characters of an added token such as [MASK]
KEPT_HEAD, KEPT_TAIL = 512, LONGEST_ADDED  # of a very long word
_LONG_WORD = re.compile(f"(?<![{INSIDE_A_WORD}])[{INSIDE_A_WORD}]{{{KEPT_HEAD + KEPT_TAIL + 1},}}")
_WORD_ONLY = re.compile(f"[{INSIDE_A_WORD}]*")
_MANY_SPACES = re.compile(f"[{SPACES}]{{2,}}")
_REACH = 2 * (KEPT_HEAD + KEPT_TAIL)  # how far back an end of a word is looked for


class Scissors:
    """Cuts texts for one tokenizer, into pieces that have about `max_length` tokens in most languages."""

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._knows_words = _splits_like_bert(tokenizer)
        self._piece = max(CHARACTERS_PER_TOKEN * max_length, SMALLEST_PIECE)
        self._added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        ideographs = IDEOGRAPHS if getattr(tokenizer.normalizer, "handle_chinese_chars", False) else ""
        self._edge = re.compile(f"[{SPACES}{PUNCTUATION}{ideographs}]")

    def pieces(self, text: str) -> Iterator[str]:
        """Texts that together have the tokens of `text`; at least one, and one only if `text` is short."""
        if len(text) <= self._piece or not self._knows_words:
            yield text
            return
        text, start = self._squeeze(text), 0
        while start < len(text):
            end = self._next_end(text, start)
            yield text[start:end]
            start = end

    def _next_end(self, text: str, start: int) -> int:
        """Where the next piece ends: at the end of a word, or of the text if no such place is found."""
        size = self._piece
        while start + size < len(text):
            for end in range(start + size, max(start, start + size - _REACH), -1):
                if self._edge.match(text, end - 1) and not self._is_inside_added(text, end):
                    return end
            size *= 2
        return len(text)

    def _is_inside_added(self, text: str, end: int) -> bool:
        """Whether an added token starts before `end` and goes on behind it: its halves would be other tokens."""
        return any(token in text[max(end - len(token) + 1, 0) : end + len(token) - 1] for token in self._added)

    def _squeeze(self, text: str) -> str:
        """A shorter text with the same tokens: runs of spaces are one, very long words lose their middle."""
        return _LONG_WORD.sub(self._squeeze_word, _MANY_SPACES.sub(" ", text))

    def _squeeze_word(self, match: re.Match[str]) -> str:
        """WordPiece takes a word of too many characters for unknown, so it need not have more than that.

        The first and the last characters are kept because an added token may begin or end there.
        """
        word = match.group()
        certain = self._tokenizer.normalizer.normalize_str(word[LONGEST_ADDED:KEPT_HEAD])
        if len(certain) <= self._tokenizer.model.max_input_chars_per_word:
            return word
        return word[:KEPT_HEAD] + word[-KEPT_TAIL:]


def _splits_like_bert(tokenizer: Tokenizer) -> bool:
    """Whether everything this module knows of words holds for `tokenizer`."""
    kinds = ((tokenizer.normalizer, BertNormalizer), (tokenizer.pre_tokenizer, BertPreTokenizer))
    if not all(isinstance(part, kind) for part, kind in kinds) or not isinstance(tokenizer.model, WordPiece):
        return False
    return all(
        not token.normalized  # it is found in the text as it is,
        and not token.single_word  # whatever stands beside it,
        and len(token.content) <= LONGEST_ADDED
        and not any(space in token.content for space in SPACES)  # is not changed when spaces are squeezed,
        and not _WORD_ONLY.fullmatch(token.content)  # and does not lie in the middle of a word
        for token in tokenizer.get_added_tokens_decoder().values()
    )

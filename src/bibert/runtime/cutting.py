"""Long texts, cut before they are tokenized to the same tokens as if they were cut after.

A tokenizer works through a whole text even where only its first 128 tokens are kept, which takes seconds for a
megabyte. So it is given a beginning of the text that has enough tokens and ends where a word ends for certain. This
rests on how BERT's tokenizer splits; any other tokenizer gets the whole text.
"""

import re
import string
import sys
from bisect import bisect_left

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

SHORT = 16  # characters for each token of the longest input; a text of no more than that is left as it is
PIECE = 8  # the same for what is read at a time; English has about 5 characters a token
SMALLEST_PIECE = 512
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


class Cutter:
    """Cuts texts for one tokenizer.

    Args:
        tokenizer: truncates at `max_length`.
        max_length: tokens of the longest input.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._counter = _without_truncation(tokenizer)
        self._enough = max_length  # special tokens take some of these, so the text cannot keep so many
        self._short = SHORT * max_length if _splits_like_bert(tokenizer) else sys.maxsize
        self._piece = max(PIECE * max_length, SMALLEST_PIECE)
        self._added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        ideographs = IDEOGRAPHS if getattr(tokenizer.normalizer, "handle_chinese_chars", False) else ""
        self._edge = re.compile(f"[{SPACES}{PUNCTUATION}{ideographs}]")
        self._odd = (max_length - tokenizer.num_special_tokens_to_add(True)) % 2 == 1

    def cut(self, text: str) -> str:
        """A text that the tokenizer, truncating, turns into the same tokens as `text`."""
        if len(text) <= self._short:
            return text
        return _Reader(self, text).beginning(self._enough)

    def cut_pair(self, text: str, pair: str) -> tuple[str, str]:
        """The same for two texts, of which truncation shortens the one with more tokens first."""
        if len(text) <= self._short and len(pair) <= self._short:
            return text, pair
        first, second = _Reader(self, text), _Reader(self, pair)
        if not self._odd:
            return first.beginning(self._enough), second.beginning(self._enough)
        # If both are long, each keeps half, and of an odd number the one with more tokens keeps one more.
        shorter, longer = (second, first) if _has_more_tokens(first, second) else (first, second)
        short_text = shorter.beginning(self._enough)
        long_text = longer.beginning(max(self._enough, shorter.tokens_of(short_text) + 1))
        return (long_text, short_text) if longer is first else (short_text, long_text)

    def next_end(self, text: str, start: int) -> int:
        """Where the next piece of `text` ends: at the end of a word, or of the text if no such place is found."""
        size = self._piece
        while start + size < len(text):
            for end in range(start + size, max(start, start + size - _REACH), -1):
                if self._edge.match(text, end - 1) and not self._is_inside_added(text, end):
                    return end
            size *= 2
        return len(text)

    def count(self, text: str) -> int:
        """The number of tokens of `text`, without special tokens."""
        return len(self._counter.encode(text, add_special_tokens=False))

    def squeeze(self, text: str) -> str:
        """A shorter text with the same tokens: runs of spaces are one, very long words lose their middle."""
        return _LONG_WORD.sub(self._squeeze_word, _MANY_SPACES.sub(" ", text))

    def _is_inside_added(self, text: str, end: int) -> bool:
        """Whether an added token starts before `end` and goes on behind it: its halves would be other tokens."""
        return any(token in text[max(end - len(token) + 1, 0) : end + len(token) - 1] for token in self._added)

    def _squeeze_word(self, match: re.Match[str]) -> str:
        """WordPiece takes a word of too many characters for unknown, so it need not have more than that.

        The first and the last characters are kept because an added token may begin or end there.
        """
        word = match.group()
        certain = self._tokenizer.normalizer.normalize_str(word[LONGEST_ADDED:KEPT_HEAD])
        if len(certain) <= self._tokenizer.model.max_input_chars_per_word:
            return word
        return word[:KEPT_HEAD] + word[-KEPT_TAIL:]


class _Reader:
    """Reads a text piece by piece and remembers how many tokens it had found where."""

    def __init__(self, cutter: Cutter, text: str) -> None:
        self._cutter = cutter
        self._text = cutter.squeeze(text)
        self._ends, self._tokens = [0], [0]

    @property
    def whole(self) -> bool:
        """Whether the text is read to its end."""
        return self._ends[-1] == len(self._text)

    @property
    def tokens(self) -> int:
        """How many tokens were found so far."""
        return self._tokens[-1]

    def read_on(self) -> None:
        """Read one more piece."""
        start = self._ends[-1]
        end = self._cutter.next_end(self._text, start)
        self._tokens.append(self.tokens + self._cutter.count(self._text[start:end]))
        self._ends.append(end)

    def beginning(self, tokens: int) -> str:
        """The shortest read beginning with so many tokens, or the whole text if it has fewer."""
        while self.tokens < tokens and not self.whole:
            self.read_on()
        place = bisect_left(self._tokens, tokens)
        return self._text[: self._ends[min(place, len(self._ends) - 1)]]

    def tokens_of(self, beginning: str) -> int:
        """How many tokens a beginning has that was read."""
        return self._tokens[self._ends.index(len(beginning))]


def _has_more_tokens(first: _Reader, second: _Reader) -> bool:
    """Whether the first text has more tokens than the second; reads only as far as it must."""
    while not ((first.whole and first.tokens <= second.tokens) or (second.whole and second.tokens < first.tokens)):
        min((reader for reader in (first, second) if not reader.whole), key=lambda reader: reader.tokens).read_on()
    return first.tokens > second.tokens


def _without_truncation(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer for counting; it shares the vocabulary, so it costs no memory."""
    counter = Tokenizer(tokenizer.model)
    counter.normalizer, counter.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    counter.add_tokens(list(tokenizer.get_added_tokens_decoder().values()))
    return counter


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

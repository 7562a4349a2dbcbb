"""Text to token ids, with the tokenizer of a packed file: the same ids as transformers gives, and never padding.

Long texts are shortened before (`cutting`); what happens to the ids is the business of `engine`.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from bibert.errors import EngineError, ModelFileError, one_line
from bibert.packed.header import PACK_AGAIN
from bibert.runtime.cutting import Cutter
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
        self._tokenizer = _read_tokenizer(tokenizer)
        _check_fit(self._tokenizer, vocabulary, max_length)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length, strategy="longest_first")
        self._cutter = Cutter(self._tokenizer, max_length)
        self._pairs_fit = self._tokenizer.num_special_tokens_to_add(is_pair=True) < max_length
        self._parallel_in = os.getpid() if parallel else None  # a child of fork has lost the tokenizer's threads

    def encode(self, rows: Sequence[Row], first: int = 0) -> list[Encoded]:
        """Encode texts and pairs.

        Args:
            rows: each a text, or two.
            first: the number of the first row, for messages.

        Raises:
            EngineError: a row is not a text or a pair of texts; the message has its number.
        """
        cut = [self._cut(row, number) for number, row in enumerate(rows, first)]
        encodings = self._encode_all(cut)
        return [self._encoded(*both) for both in zip(encodings, rows, strict=True)]

    def _cut(self, row: object, number: int) -> Row:
        match row:
            case str():
                return self._cutter.cut(self._readable(row))
            case (str() as text, str() as pair):
                if not self._pairs_fit:
                    raise EngineError(
                        f"row {number}: the special tokens of a pair alone take all {self.max_length} tokens of the "
                        "longest input; give a single text"
                    )
                return self._cutter.cut_pair(self._readable(text), self._readable(pair))
        raise EngineError(f"row {number}: {_describe(row)}, must be a text (str) or a pair of texts")

    def _readable(self, text: str) -> str:
        text = text[: self.most_characters]
        return text if text.isascii() else _SURROGATE.sub("\ufffd", text)

    def _encode_all(self, rows: list[Row]) -> list[Encoding]:
        if len(rows) >= PARALLEL_FROM and self._parallel_in == os.getpid():
            return self._tokenizer.encode_batch(rows)
        return [self._tokenizer.encode(*(row if isinstance(row, tuple) else (row,))) for row in rows]

    def _encoded(self, encoding: Encoding, row: Row) -> Encoded:
        texts = (row,) if isinstance(row, str) else row
        return Encoded(
            ids=np.array(encoding.ids, dtype=np.int32),
            token_types=np.array(encoding.type_ids, dtype=np.int32),
            truncated=bool(encoding.overflowing) or any(len(text) > self.most_characters for text in texts),
        )


def _read_tokenizer(raw: bytes) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(raw)
    except ValueError as error:
        raise ModelFileError(f"tokenizer: cannot be read ({one_line(error)}); {PACK_AGAIN}") from error


def _check_fit(tokenizer: Tokenizer, vocabulary: int, max_length: int) -> None:
    tokens, special = tokenizer.get_vocab_size(), tokenizer.num_special_tokens_to_add(is_pair=False)
    unknown = getattr(tokenizer.model, "unk_token", None)
    if tokens > vocabulary:
        raise ModelFileError(f"tokenizer: has {tokens} tokens, the word embedding has {vocabulary} rows; {PACK_AGAIN}")
    if unknown is not None and tokenizer.token_to_id(unknown) is None:
        raise ModelFileError(f"tokenizer: {unknown!r}, for unknown words, is not among its tokens; {PACK_AGAIN}")
    if special >= max_length:
        raise ModelFileError(
            f"tokenizer: adds {special} special tokens, the longest input has {max_length}; {PACK_AGAIN}"
        )


def _describe(row: Any) -> str:
    match row:
        case (str(), other) | (other, str()):
            return f"a pair with {other!r:.40} ({type(other).__name__})"
    return f"{row!r:.40} ({type(row).__name__})"

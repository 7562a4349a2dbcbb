"""Word vectors (GloVe) and the nearest words by cosine.

Vectors come from GloVe's text form (.txt or .txt.gz), or from a `.npy` matrix with a file of words beside it.
What the neighbours are for is in `candidates`.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bibert.data.tables import read_table
from bibert.errors import DataError

FIRST_VECTORS = 100_000  # GloVe files start with the most frequent words; TinyBERT reads this many
QUERIES_PER_BLOCK = 64  # 64 rows of 100,000 similarities are 26 MB
SPARE = 8  # nearest words kept beyond those asked for, until they are ranked exactly


class WordVectors:
    """Words with their vectors, and a memory of the neighbours asked for before.

    Args:
        words: different words, most frequent first.
        vectors: one row for each word.
    """

    def __init__(self, words: Sequence[str], vectors: npt.NDArray[np.float32]) -> None:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._unit = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)  # a zero vector is near to nothing
        self._words = tuple(words)
        self._index = {word: row for row, word in enumerate(self._words)}
        self._known: dict[tuple[str, int], tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def neighbours(self, words: Iterable[str], count: int) -> dict[str, tuple[str, ...]]:
        """The `count` nearest other words of each word, nearest first; words without a vector are left out."""
        here = [word for word in dict.fromkeys(words) if word in self._index]
        new = iter([word for word in here if (word, count) not in self._known])
        while block := list(islice(new, QUERIES_PER_BLOCK)):
            rows = np.array([self._index[word] for word in block])
            for row, similarities in zip(rows, self._unit[rows] @ self._unit.T, strict=True):
                self._known[self._words[row], count] = self._nearest(row, similarities, count)
        return {word: self._known[word, count] for word in here}

    def _nearest(self, row: int, similarities: npt.NDArray[np.float32], count: int) -> tuple[str, ...]:
        similarities[row] = -np.inf
        kept = min(count + SPARE, len(self) - 1)
        best = np.argpartition(-similarities, kept)[:kept]
        # The last bits of a float32 product depend on the size of the block, so the order is settled in float64: the
        # same word has the same neighbours whatever was asked for together with it.
        exact = self._unit[best].astype(np.float64) @ self._unit[row].astype(np.float64)
        order = np.lexsort((best, -exact))[:count]
        return tuple(self._words[index] for index in best[order])


def load_word_vectors(path: Path, limit: int = FIRST_VECTORS) -> WordVectors:
    """The first `limit` vectors of a file, to ask for neighbours; arguments and errors are those of `read_vectors`."""
    words, vectors = read_vectors(path, limit)
    if len(words) < 2:
        raise DataError(f"{path}: has {len(words)} word vectors, at least 2 are needed; is it a GloVe file?")
    return WordVectors(words, vectors)


def read_vectors(path: Path, limit: int = FIRST_VECTORS) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Read the first `limit` vectors of a file: different words, and a row for each.

    Args:
        path: GloVe's text form, `.txt` or `.txt.gz` (a word and its numbers on each line), or a `.npy` matrix. The
            words of `name.npy` are in `name.txt`, one a line, or in the only .txt or .parquet file of its folder.
        limit: how many to read from the start.

    Raises:
        DataError: a file is missing, broken or does not fit the other one.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file of word vectors; give a GloVe .txt, .txt.gz or .npy file")
    words, vectors = _read_npy(path, limit) if path.suffix == ".npy" else _read_text(path, limit)
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise DataError(f"{path}: the vector of {words[row]!r} (number {row + 1}) is not finite; get the file again")
    first_row: dict[str, int] = {}
    for row, word in enumerate(words):
        first_row.setdefault(word, row)
    return list(first_row), vectors[list(first_row.values())]


def _read_text(path: Path, limit: int) -> tuple[list[str], npt.NDArray[np.float32]]:
    words: list[str] = []
    vectors: list[npt.NDArray[np.float32]] = []
    width = 0
    for number, line in enumerate(_lines(path), start=1):
        if number == 1 and len(line.split()) == 2:
            continue  # word2vec and fastText start with the two sizes
        width = width or line.count(" ")
        # From the right: a word of the largest GloVe files may hold spaces itself.
        word, *numbers = line.rsplit(" ", width)
        words.append(word)
        vectors.append(_numbers(numbers, width, f"{path}:{number}"))
        if len(words) == limit:
            break
    return words, np.array(vectors, dtype=np.float32).reshape(len(words), width)


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                if not line.isspace():
                    yield line.decode().rstrip()
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error}); get the file again") from None


def _numbers(fields: Sequence[str], width: int, where: str) -> npt.NDArray[np.float32]:
    if len(fields) != width or not width:
        raise DataError(f"{where}: {len(fields)} numbers after the word where the first line has {width}")
    try:
        return np.fromiter(map(float, fields), np.float32, width)
    except ValueError as error:
        raise DataError(f"{where}: expected a word and {width} numbers ({error}); is it a GloVe file?") from None


def _read_npy(path: Path, limit: int) -> tuple[list[str], npt.NDArray[np.float32]]:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: is not a readable .npy file ({error}); write it again with numpy.save") from None
    words_path = _words_beside(path)
    words = _read_words(words_path)
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise DataError(
            f"{path}: shape {matrix.shape} for the {len(words)} words of {words_path}; one row each is needed"
        )
    return words[:limit], np.array(matrix[:limit], dtype=np.float32)


def _words_beside(path: Path) -> Path:
    named = path.with_suffix(".txt")
    if named.is_file():
        return named
    others = sorted(other for other in path.parent.iterdir() if other.suffix in (".txt", ".parquet"))
    if len(others) != 1:
        raise DataError(
            f"{path}: no {named.name} with its words beside it, and {len(others)} other .txt or .parquet files; "
            f"put one word a line into {named.name}"
        )
    return others[0]


def _read_words(path: Path) -> list[str]:
    if path.suffix == ".txt":
        return list(_lines(path))
    columns = read_table(path).columns
    texts = [column for column in columns.values() if all(isinstance(cell, str) for cell in column)]
    if len(texts) != 1:
        raise DataError(
            f"{path}: has {len(texts)} columns of text among {', '.join(columns)}; one with the words is needed"
        )
    return [str(cell) for cell in texts[0]]

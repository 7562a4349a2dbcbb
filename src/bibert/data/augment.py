"""TinyBERT's data augmentation: new training texts by replacing words, and the file that holds them.

Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020, section "Data Augmentation", with the
numbers of its released code. Candidates for a word of one piece come from a masked LM (`training.masked_lm`), for all
other words from their nearest GloVe vectors.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import normalizers, pre_tokenizers

from bibert.data.columns import Columns, find_columns
from bibert.data.glue import get_task, load_glue_split
from bibert.data.lines import Decoding, open_input
from bibert.data.tables import read_table, texts_of, written_label
from bibert.errors import DataError
from bibert.files import write_whole

DEFAULT_VARIANTS = 20  # the number in the TinyBERT paper
BREAKS_A_ROW = str.maketrans("\t\r\n\0", "    ")
FIRST_VECTORS = 100_000  # GloVe files start with the most frequent words; TinyBERT reads this many
QUERIES_PER_BLOCK = 64  # 64 rows of 100,000 similarities are 26 MB
SPARE = 8  # nearest words kept beyond those asked for, until they are ranked exactly

# Words that are never replaced: they carry the grammar of a sentence, or negate its meaning. BERT splits contractions
# (`don't` is `don`, `'`, `t`), so their halves are here too.
STOP_WORDS = frozenset(resources.files("bibert.data").joinpath("stop_words.txt").read_text("utf-8").split())
PLAIN_WORD = re.compile("[a-z]+")


@dataclass(frozen=True)
class AugmentConfig:
    """How much is replaced; the defaults are TinyBERT's."""

    variants: int = DEFAULT_VARIANTS  # new texts to try for each text (N); those that repeat an earlier one are dropped
    candidates: int = 15  # words that may replace a word (M)
    probability: float = 0.4  # the chance that a word is replaced (p)
    seed: int = 0  # of all choices; those of a row depend only on the seed and the row's number

    def __post_init__(self) -> None:
        for name, least in (("variants", 1), ("candidates", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise DataError(f"augmentation: {name} is {getattr(self, name)}, must be at least {least}")
        if not 0.0 < self.probability <= 1.0:
            raise DataError(f"augmentation: probability is {self.probability}, must be above 0 and at most 1")


@dataclass(frozen=True)
class LabelledText:
    """One row: a text, the second text of a pair or None, and the label as the file writes it."""

    text: str
    pair: str | None
    label: str


def augment_rows(
    rows: Iterable[LabelledText], candidates: "Candidates", config: AugmentConfig, first_row: int = 0
) -> Iterator[list[LabelledText]]:
    """For each row, yield the row itself and its variants, all with the row's label.

    Each text of a pair is varied beside the original of the other. (TinyBERT's released code overwrites the row it
    works on, so there the second text varies beside the *last variant* of the first. We do not repeat that.)
    `first_row` is the number of the first row: the parts of a file give the same rows as the whole.
    """
    for number, row in enumerate(rows, start=first_row):
        rng = random.Random(f"{config.seed}/{number}")
        new = [row]
        new += [replace(row, text=text) for text in vary(row.text, candidates, config, rng)]
        if row.pair is not None:
            new += [replace(row, pair=pair) for pair in vary(row.pair, candidates, config, rng)]
        yield new


def vary(text: str, candidates: "Candidates", config: AugmentConfig, rng: random.Random) -> list[str]:
    """Return up to `config.variants` texts that differ from `text` and each other; words and marks are separated."""
    words = candidates.split(text)
    choices = candidates.find(words, config.candidates)
    tried: dict[str, None] = {}
    for _ in range(config.variants):
        new = list(words)
        for place, options in choices.items():
            candidate = rng.choice(options)
            if rng.random() < config.probability:
                new[place] = candidate
        tried[" ".join(new)] = None
    return [variant for variant in tried if variant not in (text, " ".join(words))]


class ProposesWords(Protocol):
    """A masked LM, such as `training.masked_lm.MaskedWordModel`."""

    is_uncased: bool  # whether the model reads lower-cased text

    def propose(self, words: Sequence[str], places: Sequence[int], count: int) -> dict[int, tuple[str, ...]]:
        """Return words for each place whose word is one piece."""


@dataclass(frozen=True)
class Candidates:
    """Finds words that may replace others."""

    masked_lm: ProposesWords | None = None  # for words of one piece; without it, GloVe is asked about every word
    vectors: "WordVectors | None" = None  # for the words that the masked LM leaves; without it, those stay

    def __post_init__(self) -> None:
        if self.masked_lm is None and self.vectors is None:
            raise DataError("no source of new words: give a masked LM (--mlm), GloVe vectors (--glove), or both")

    def split(self, text: str) -> list[str]:
        """Split a text into words and marks as BERT does, lower-cased unless the masked LM is cased."""
        uncased = self.masked_lm is None or self.masked_lm.is_uncased
        normal = normalizers.BertNormalizer(lowercase=uncased).normalize_str(text)
        return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normal)]

    def find(self, words: Sequence[str], count: int) -> dict[int, tuple[str, ...]]:
        """Return at most `count` candidates for each word of letters a to z that is no stop word, by its place."""
        lower = [word.lower() for word in words]
        places = [place for place, word in enumerate(lower) if PLAIN_WORD.fullmatch(word) and word not in STOP_WORDS]
        found = {} if self.masked_lm is None else self.masked_lm.propose(words, places, count)
        if self.vectors is not None:
            rest = {place: lower[place] for place in places if place not in found}
            near = self.vectors.neighbours(rest.values(), count)
            found |= {place: near[word] for place, word in rest.items() if word in near}
        return {place: found[place] for place in places if found.get(place)}


class WordVectors:
    """Different words, most frequent first, with a vector each, and a cache of their nearest words by cosine."""

    def __init__(self, words: Sequence[str], vectors: npt.NDArray[np.float32]) -> None:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._unit = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)  # a zero vector is near nothing
        self._words = tuple(words)
        self._index = {word: row for row, word in enumerate(self._words)}
        self._known: dict[tuple[str, int], tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def neighbours(self, words: Iterable[str], count: int) -> dict[str, tuple[str, ...]]:
        """Return the `count` nearest other words of each word, nearest first; words without a vector are left out."""
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
        # The last bits of a float32 product depend on the size of the block, so float64 settles the order: a word has
        # the same neighbours whatever was asked for together with it.
        exact = self._unit[best].astype(np.float64) @ self._unit[row].astype(np.float64)
        order = np.lexsort((best, -exact))[:count]
        return tuple(self._words[index] for index in best[order])


def load_word_vectors(path: Path, limit: int = FIRST_VECTORS) -> WordVectors:
    """Load the first `limit` vectors of a file; see `read_vectors`."""
    words, vectors = read_vectors(path, limit)
    if len(words) < 2:
        raise DataError(f"{path}: has {len(words)} word vectors, at least 2 are needed; is it a GloVe file?")
    return WordVectors(words, vectors)


def read_vectors(path: Path, limit: int = FIRST_VECTORS) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Read the first `limit` vectors of a file: different words, and a row for each.

    The file is GloVe's text, `.txt` or `.txt.gz` (a word and its numbers on each line), or a `.npy` matrix. The
    words of `name.npy` are in `name.txt`, one a line, or in the only .txt or .parquet file of its folder.
    """
    words, vectors = _read_npy(path, limit) if path.suffix == ".npy" else _read_text(path, limit)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise DataError(f"{path}: the vector of {words[row]!r} (number {row + 1}) is not finite; get the file again")
    first_row: dict[str, int] = {}
    for row, word in enumerate(words):
        first_row.setdefault(word, row)
    return list(first_row), vectors[list(first_row.values())]


def _read_text(path: Path, limit: int) -> tuple[list[str], npt.NDArray[np.float32]]:
    words: list[str] = []
    vectors: list[npt.NDArray[np.float32]] = []
    width = 0
    for number, line in _lines(path):
        if number == 1 and len(line.split()) == 2:
            continue  # word2vec and fastText start with the two sizes
        width = width or line.count(" ")
        # From the right: a word of the largest GloVe files may hold spaces itself.
        word, *numbers = line.rsplit(" ", width)
        if len(numbers) != width or not width:
            raise DataError(f"{path}:{number}: {len(numbers)} numbers after the word where the first line has {width}")
        try:
            vectors.append(np.fromiter(map(float, numbers), np.float32, width))
        except ValueError as error:
            raise DataError(f"{path}:{number}: not a word and {width} numbers ({error}); is it GloVe?") from None
        words.append(word)
        if len(words) == limit:
            break
    return words, np.array(vectors, dtype=np.float32).reshape(len(words), width)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    decoding = Decoding()
    with open_input(path) as source:
        for number, line in enumerate(source.lines(decoding), start=1):
            if isinstance(line, str) and not line.isspace():
                yield number, decoding.checked(line.rstrip(), f"{path}:{number}")


def _read_npy(path: Path, limit: int) -> tuple[list[str], npt.NDArray[np.float32]]:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: is not a readable .npy file ({error}); write it again with numpy.save") from None
    beside = path.with_suffix(".txt")
    if not beside.is_file():
        others = sorted(other for other in path.parent.iterdir() if other.suffix in (".txt", ".parquet"))
        if len(others) != 1:
            found = f"there is no {beside.name}, and {len(others)} other .txt or .parquet files"
            raise DataError(f"{path}: its words are missing: {found}; put one word a line into {beside.name}")
        beside = others[0]
    words = [line for _, line in _lines(beside)] if beside.suffix == ".txt" else _read_only_text_column(beside)
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise DataError(f"{path}: shape {matrix.shape} for the {len(words)} words of {beside}; one row each is needed")
    return words[:limit], np.array(matrix[:limit], dtype=np.float32)


def _read_only_text_column(path: Path) -> list[str]:
    columns = read_table(path).columns
    texts = [column for column in columns.values() if all(isinstance(cell, str) for cell in column)]
    if len(texts) != 1:
        raise DataError(f"{path}: has {len(texts)} columns of text among {', '.join(columns)}; one is needed")
    return [str(cell) for cell in texts[0]]


@dataclass(frozen=True)
class LabelledFile:
    """The rows of a file, and its layout."""

    rows: Sequence[LabelledText]
    columns: Columns
    order: Sequence[str]  # all columns of the file
    has_header: bool = True


def load_rows(path: Path, columns: Columns, task: str | None = None) -> LabelledFile:
    """Read a table, whose columns are found by name unless they are given, or a TSV file of a GLUE task."""
    if task is not None:
        row, split = get_task(task), load_glue_split(task, path)
        written = row.written or row.label_names
        labels = [written[int(label)] if written else str(label) for label in split.labels]
        rows = _labelled_texts(split.texts, split.pairs, labels)
        return LabelledFile(rows, row.columns, row.header or row.columns.names, has_header=not row.header)
    table = read_table(path)
    found = find_columns(table.columns, columns, table.header_place)
    labels = [written_label(cell) for cell in table.columns[found.label]]
    if "" in labels:
        raise DataError(f"{table.where(labels.index(''))}: no label in column {found.label!r}; fill it in")
    pairs = texts_of(table, found.pair) if found.pair else None
    return LabelledFile(_labelled_texts(texts_of(table, found.text), pairs, labels), found, found.names)


def _labelled_texts(texts: Sequence[str], pairs: Sequence[str] | None, labels: Sequence[str]) -> list[LabelledText]:
    seconds: Sequence[str | None] = pairs or [None] * len(texts)
    return [LabelledText(*cells) for cells in zip(texts, seconds, labels, strict=True)]


def save_rows(path: Path, like: LabelledFile, groups: Iterable[Sequence[LabelledText]]) -> int:
    """Write groups of rows to a TSV file with the columns of `like`, as they come; return the number of rows.

    The file appears whole or not at all. Quoting is off, as in GLUE's files: a tab or line break inside a text becomes
    a space.
    """
    written = 0
    with write_whole(path) as file:
        if like.has_header:
            file.write("\t".join(like.order) + "\n")
        for group in groups:
            for row in group:
                cells = {like.columns.pair: row.pair or "", like.columns.text: row.text, like.columns.label: row.label}
                file.write("\t".join(cells.get(name, "").translate(BREAKS_A_ROW) for name in like.order) + "\n")
            written += len(group)
    return written

"""TinyBERT's data augmentation: new training texts by replacing words, and the file that holds them.

Jiao et al., "TinyBERT: Distilling BERT for Natural Language Understanding", 2020, section "Data Augmentation", with the
numbers of its released code. Where the candidates for a word come from is in `candidates`.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from bibert.data.candidates import Candidates
from bibert.data.glue import get_task, load_glue_split
from bibert.data.readers import Columns, find_columns
from bibert.data.tables import read_table, texts_of, written_label
from bibert.errors import DataError
from bibert.files import write_whole

# Variants for each GLUE task, by its key. (TinyBERT's own table misspells STS-B, whose 30 come from a default.)
VARIANTS: Mapping[str, int] = MappingProxyType(
    {"cola": 30, "mrpc": 30, "rte": 30, "stsb": 30, "sst2": 20, "qnli": 20, "mnli": 10, "qqp": 10}
)
DEFAULT_VARIANTS = 20  # the number in the TinyBERT paper
BREAKS_A_ROW = str.maketrans("\t\r\n\0", "    ")


@dataclass(frozen=True)
class AugmentConfig:
    """How much is replaced; the defaults are TinyBERT's.

    Attributes:
        variants: how many new texts are tried for each text (N); those that repeat an earlier one are dropped.
        candidates: how many words may take the place of a word (M).
        probability: the chance that a word is replaced (p).
        seed: of all choices; a row's choices depend on the seed and the row's number only.
    """

    variants: int = DEFAULT_VARIANTS
    candidates: int = 15
    probability: float = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("variants", 1), ("candidates", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise DataError(f"augmentation: {name} is {getattr(self, name)}, must be at least {least}")
        if not 0.0 < self.probability <= 1.0:
            raise DataError(f"augmentation: probability is {self.probability}, must be above 0 and at most 1")


def variants_of(task: str | None) -> int:
    """How many variants TinyBERT makes for a GLUE task; without a task, the number of its paper."""
    return DEFAULT_VARIANTS if task is None else VARIANTS[get_task(task).key]


@dataclass(frozen=True)
class LabelledText:
    """One row: a text, the second text of a pair or None, and the label as the file writes it."""

    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class Layout:
    """The columns of a file of labelled text, in order, and those that are used."""

    columns: Columns
    order: tuple[str, ...]
    has_header: bool = True


@dataclass(frozen=True)
class LabelledFile:
    """The rows of a file, and how a file in the same form is laid out."""

    rows: Sequence[LabelledText]
    layout: Layout


def augment_rows(
    rows: Iterable[LabelledText], candidates: Candidates, config: AugmentConfig, first_row: int = 0
) -> Iterator[list[LabelledText]]:
    """For each row, yield the row itself and its variants, all with the row's label.

    Of a pair each text is varied while the other one stays as it was. (TinyBERT's released code writes the variants of
    the first text into the row it works on, so there the second text varies beside the *last variant* of the
    first one. We do not repeat that.)

    Args:
        rows: any stream of rows.
        candidates: where new words come from.
        config: how many and how often.
        first_row: the number of the first row, for a stream that is a later part of a file: the parts give the same
            rows as the whole.
    """
    for number, row in enumerate(rows, start=first_row):
        rng = random.Random(f"{config.seed}/{number}")
        new = [row]
        new += [replace(row, text=text) for text in vary(row.text, candidates, config, rng)]
        if row.pair is not None:
            new += [replace(row, pair=pair) for pair in vary(row.pair, candidates, config, rng)]
        yield new


def vary(text: str, candidates: Candidates, config: AugmentConfig, rng: random.Random) -> list[str]:
    """Up to `config.variants` texts that differ from `text` and from each other, with words and marks set apart."""
    words = candidates.split(text)
    choices = candidates.find(words, config.candidates)
    old = " ".join(words)
    tried = [_replace_words(words, choices, config.probability, rng) for _ in range(config.variants)]
    return [variant for variant in dict.fromkeys(tried) if variant not in (text, old)]


def _replace_words(
    words: Sequence[str], choices: Mapping[int, Sequence[str]], probability: float, rng: random.Random
) -> str:
    new = list(words)
    for place, options in choices.items():
        candidate = rng.choice(options)
        if rng.random() < probability:
            new[place] = candidate
    return " ".join(new)


def load_rows(path: Path, columns: Columns, task: str | None = None) -> LabelledFile:
    """Read labelled text from a table (CSV, TSV, JSONL, Parquet), or from a TSV file of a GLUE task.

    Args:
        path: the file.
        columns: the columns of a table; those not given are found by name. A GLUE file has its own.
        task: the GLUE task that the file belongs to.

    Raises:
        DataError: the file or a column is missing, or a row has no text or label.
    """
    return _load_table_rows(path, columns) if task is None else _load_glue_rows(path, task)


def _load_table_rows(path: Path, columns: Columns) -> LabelledFile:
    table = read_table(path)
    found = find_columns(table.columns, columns, table.top)
    labels = [written_label(cell) for cell in table.columns[found.label]]
    if "" in labels:
        raise DataError(f"{table.where(labels.index(''))}: no label in column {found.label!r}; fill it in")
    pairs = texts_of(table, found.pair) if found.pair else [None] * len(labels)
    rows = [LabelledText(*cells) for cells in zip(texts_of(table, found.text), pairs, labels, strict=True)]
    return LabelledFile(rows, _layout(found))


def _load_glue_rows(path: Path, name: str) -> LabelledFile:
    task = get_task(name)
    split = load_glue_split(name, path)
    written = task.written or task.label_names
    labels = [written[int(label)] if written else str(label) for label in split.labels]
    pairs = split.pairs or [None] * len(labels)
    rows = [LabelledText(*cells) for cells in zip(split.texts, pairs, labels, strict=True)]
    return LabelledFile(
        rows, Layout(task.columns, task.header, has_header=False) if task.header else _layout(task.columns)
    )


def _layout(columns: Columns) -> Layout:
    return Layout(columns, tuple(filter(None, (columns.text, columns.pair, columns.label))))


def save_rows(path: Path, layout: Layout, groups: Iterable[Sequence[LabelledText]]) -> int:
    """Write groups of rows to a TSV file as they come, and return how many rows were written.

    The file is there whole or not at all. Quoting is off, as in GLUE's files: a tab or line break inside a text becomes
    a space.
    """
    written = 0
    with write_whole(path) as file:
        if layout.has_header:
            file.write("\t".join(layout.order) + "\n")
        for group in groups:
            file.writelines(_line(row, layout) for row in group)
            written += len(group)
    return written


def _line(row: LabelledText, layout: Layout) -> str:
    columns = layout.columns
    cells = {columns.pair: row.pair or "", columns.text: row.text, columns.label: row.label}
    return "\t".join(cells.get(name, "").translate(BREAKS_A_ROW) for name in layout.order) + "\n"

"""Files of texts, scored while they stream by: every row comes out as it went in, with what a model says of it.

The order of the rows stays, memory does not grow with the file, and an output file appears whole or not at all. How
each form is read and written is in `text_tables` and `parquet`; what a model says comes from a `Scorer`.
"""

import gzip
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError, EngineError, did_you_mean
from bibert.files import write_whole
from bibert.scoring.lines import Input, open_input
from bibert.scoring.parquet import ParquetTable
from bibert.scoring.rows import Reading, Scorer, Table, Text, Value, parts_of
from bibert.scoring.text_tables import CsvTable, JsonLines, PlainTexts, PlainTextsAsJson, TsvTable

if TYPE_CHECKING:
    from bibert.runtime.classifier import TextClassifier

ROWS_PER_CHUNK = 512  # a classifier sorts as many by length; more rows gain nothing

FORMS: Mapping[str, Callable[[Input, Reading], Table]] = MappingProxyType(
    {
        "txt": PlainTexts,
        "txt as json": PlainTextsAsJson,
        "csv": CsvTable,
        "tsv": TsvTable,
        "jsonl": JsonLines,
        "parquet": ParquetTable,
    }
)
FORM_OF_SUFFIX: Mapping[str, str] = MappingProxyType(
    {".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
)


@dataclass
class Progress:
    """How far the scoring of a file has come.

    Attributes:
        rows: rows that were scored.
        skipped: rows that were left out.
        first_skipped: what was wrong with the first of them.
        share: of the file, from 0 to 1; None where nobody can know.
        pairs: whether rows have two texts.
    """

    rows: int = 0
    skipped: int = 0
    first_skipped: str = ""
    share: float | None = None
    pairs: bool = False


def scorer_of(classifier: "TextClassifier", *, proba: bool = False, prefix: str = "") -> Scorer:
    """What a classifier adds to a row: the label and its score; of a regression, the score.

    Args:
        classifier: the model.
        proba: also the probability of each label, in columns called `score_` and the label.
        prefix: stands before the name of each column.

    Raises:
        EngineError: probabilities are asked of a regression.
    """
    if len(classifier.labels) == 1:
        if proba:
            raise EngineError("the model is a regression, which has one score and no probabilities; leave proba off")
        return Scorer({f"{prefix}score": float}, lambda texts: [_decimals(classifier.logits(*_columns(texts))[:, 0])])
    names = [f"{prefix}score_{label}" for label in classifier.labels] if proba else []

    def score(texts: Sequence[Text]) -> list[Sequence[Value]]:
        probabilities = classifier.predict_proba(*_columns(texts))
        labels = [classifier.labels[place] for place in probabilities.argmax(axis=1)]
        every = [_decimals(column) for column in probabilities.T] if proba else []
        return [labels, _decimals(probabilities.max(axis=1)), *every]

    return Scorer({f"{prefix}label": str, f"{prefix}score": float, **dict.fromkeys(names, float)}, score)


def _columns(texts: Sequence[Text]) -> tuple[list[str], list[str] | None]:
    """Texts, and the second texts of pairs."""
    first, *second = (list(column) for column in zip(*map(parts_of, texts), strict=True))
    return first, second[0] if second else None


def _decimals(values: NDArray[Any]) -> list[float]:
    """The shortest decimals that are the same number in float32: more digits would say nothing."""
    return [float(str(value)) for value in values.astype(np.float32)]


def form_of(path: Path) -> str:
    """The form of a file by its name.

    Raises:
        DataError: the name does not tell, or is that of a folder.
    """
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file; give one of its files")
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix not in FORM_OF_SUFFIX or (suffix == ".parquet" and path.suffix.lower() == ".gz"):
        known = ", ".join(FORM_OF_SUFFIX)
        raise DataError(
            f"{path}: the name does not tell what is in the file; let it end in {known}, or say it with --format"
        )
    return FORM_OF_SUFFIX[suffix]


@contextmanager
def open_table(path: Path | None, form: str, reading: Reading) -> Iterator[Table]:
    """Open a file, or standard input where `path` is None, to be scored.

    Raises:
        DataError: the file cannot be read, is of another form, or no column of texts is found.
    """
    if form not in FORMS:
        raise DataError(f"there is no form {form!r}; {did_you_mean(form, FORMS)}")
    with open_input(path) as source:
        yield FORMS[form](source, reading)


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all, compressed if its name ends in .gz; standard output for None."""
    if path is None:
        yield sys.stdout.buffer
        return
    with write_whole(path, "wb") as file:
        if path.suffix.lower() != ".gz":
            yield file
            return
        # No name and no time inside, so that the same rows give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
            yield compressed  # type: ignore[misc]


def score_table(
    table: Table,
    file: BinaryIO,
    scorer: Scorer,
    watch: Callable[[Progress], None] = lambda _: None,
    rows_per_chunk: int = ROWS_PER_CHUNK,
) -> Progress:
    """Write every row of a table with what a model says of it.

    Args:
        table: the rows.
        file: where they go; flushed after each chunk.
        scorer: the model.
        watch: called after each chunk.
        rows_per_chunk: how many rows are read before the first is scored.

    Raises:
        DataError: a row is broken and such rows are not to be skipped.
    """
    progress = Progress()
    with table.writing(file, scorer.columns) as write:
        for chunk in table.chunks(rows_per_chunk):
            if chunk.texts:
                write(chunk, scorer.score(chunk.texts))
                file.flush()
                progress.pairs = isinstance(chunk.texts[0], tuple)
            if chunk.skipped and not progress.skipped:
                progress.first_skipped = str(chunk.skipped[0])
            progress.rows += len(chunk.texts)
            progress.skipped += len(chunk.skipped)
            progress.share = table.share
            watch(progress)
    return progress

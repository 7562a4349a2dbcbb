"""Labels for the rows of a file: every row comes out in its form and order, with the columns that a model adds.

Rows stream through in chunks, so memory does not grow with the file, and an output file appears whole or not at all.
`data.readers` reads the rows; a `TextClassifier` chooses the labels.
"""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bibert.data.lines import Decoding, open_input
from bibert.data.readers import FORMS, Columns, Parquet, Reader, Row, find_text_columns
from bibert.errors import DataError, EngineError, did_you_mean
from bibert.files import write_whole

if TYPE_CHECKING:
    from bibert.runtime.classifier import TextClassifier

ROWS_PER_CHUNK = 512  # a classifier sorts as many by length; more rows gain nothing

Text = str | tuple[str, str]  # a text, or a pair
Value = str | float
Write = Callable[[Sequence[Row], Sequence[Sequence[Value]]], None]  # rows, and their new columns in order


class Labeller:
    """A classifier that gives the new columns of rows: label and score; of a regression, the score alone.

    With `proba`, columns named `score_` and a label have its probability. `prefix` comes before the name of each
    column. `columns` has the names of the new columns, with their type: `str` or `float`.
    """

    def __init__(self, classifier: "TextClassifier", *, proba: bool = False, prefix: str = "") -> None:
        self._classifier = classifier
        self._proba = proba
        self._regression = len(classifier.labels) == 1
        if self._regression and proba:
            raise EngineError("the model is a regression, which has one score and no probabilities; leave proba off")
        self.columns: dict[str, type] = {} if self._regression else {f"{prefix}label": str}
        self.columns |= {f"{prefix}score": float}
        self.columns |= {f"{prefix}score_{label}": float for label in classifier.labels if proba}

    def __call__(self, texts: Sequence[Text]) -> list[Sequence[Value]]:
        """Return the values of each new column."""
        answers = self._classifier.answers(texts)
        best = answers.best()
        scores = [np.array([answer["score"] for answer in best]), *(answers.scores.T if self._proba else ())]
        # The shortest decimals that are the same number in float32; more digits carry no information.
        decimals = ([float(str(value)) for value in column.astype(np.float32)] for column in scores)
        return [*decimals] if self._regression else [[answer["label"] for answer in best], *decimals]


@dataclass(frozen=True)
class Source:
    """A file of texts and how to read it."""

    path: Path | None  # None is standard input
    form: str  # one of `FORMS`
    columns: Columns = field(default_factory=Columns)  # where the texts are
    decoding: Decoding = field(default_factory=Decoding)
    as_json: bool = False  # write plain lines as JSON lines


@dataclass
class Progress:
    """How far the labelling of a file has come."""

    rows: int = 0  # labelled
    skipped: int = 0  # broken
    first_skipped: str = ""  # what is wrong with the first of them
    share: float | None = None  # of the file, from 0 to 1; None where it is unknown
    pairs: bool = False  # whether rows are pairs


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """Open a file that appears whole or not at all, compressed if its name ends in .gz; None is standard output."""
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


def label_table(
    source: Source,
    file: BinaryIO,
    labeller: Labeller,
    watch: Callable[[Progress], None] = lambda _: None,
    rows_per_chunk: int = ROWS_PER_CHUNK,
) -> Progress:
    """Write every row of `source` with its labels to `file`, a chunk at a time, and call `watch` after each chunk."""
    if source.form not in FORMS:
        raise DataError(f"there is no form {source.form!r}; {did_you_mean(source.form, FORMS)}")
    progress = Progress()
    with open_input(source.path) as opened:
        reader = FORMS[source.form](opened, source.decoding)
        columns = _TextColumns(reader, source.columns, labeller.columns)
        form = "json" if source.as_json and source.form == "txt" else source.form
        writing = _writing_lines(reader, form, file, labeller.columns)
        if isinstance(reader, Parquet):
            writing = _writing_parquet(reader, file, labeller.columns)
        with writing as write:
            for chunk in reader.chunks(rows_per_chunk):
                rows = columns.with_texts(chunk, progress)
                if rows:
                    texts = [text for _, text in rows]
                    write([row for row, _ in rows], labeller(texts))
                    file.flush()
                    progress.pairs = isinstance(texts[0], tuple)
                progress.rows += len(rows)
                progress.share = reader.share
                watch(progress)
    return progress


class _TextColumns:
    """Finds the columns of the texts, and takes the text out of a row; without a header the first row decides."""

    def __init__(self, reader: Reader, wanted: Columns, new: Iterable[str]) -> None:
        self._reader = reader
        self._wanted = wanted
        self._new = set(new)
        self._names: list[str] = []
        if reader.names:
            self._look_at(reader.names, reader.top)
            reader.only = self._names

    def with_texts(self, chunk: Iterable[Row | DataError], progress: Progress) -> list[tuple[Row, Text]]:
        """Return the rows with their texts; count those that are skipped."""
        found: list[tuple[Row, Text]] = []
        for row in chunk:
            try:
                if isinstance(row, DataError):
                    raise row
                found.append((row, self._text(row)))
            except DataError as error:
                if self._reader.decoding.on_error != "skip":
                    raise
                progress.skipped += 1
                progress.first_skipped = progress.first_skipped or str(error)
        return found

    def _text(self, row: Row) -> Text:
        where = self._reader.where(row.number)
        if not self._reader.names:
            self._look_at(row.cells, where)
        texts = [_text_in(row.cells.get(name), name, where) for name in self._names]
        return texts[0] if len(texts) == 1 else (texts[0], texts[1])

    def _look_at(self, names: Collection[str], where: str) -> None:
        if taken := self._new.intersection(names):
            raise DataError(
                f"{where}: has a column {min(taken)!r} already; add a prefix to the new columns: --prefix predicted_"
            )
        self._names = self._names or find_text_columns(names, self._wanted, self._reader.top).given


def _text_in(cell: object, column: str, where: str) -> str:
    """The text in a cell; it may be empty, but not missing."""
    if cell is None:
        raise DataError(f"{where}: no text in column {column!r}; fill it in, or skip such rows (--on-error skip)")
    if not isinstance(cell, str):
        kind = type(cell).__name__
        raise DataError(f"{where}: column {column!r} holds a value of type {kind}, not a text; name another column")
    return cell


@contextmanager
def _writing_lines(reader: Reader, form: str, file: BinaryIO, columns: Mapping[str, type]) -> Iterator[Write]:
    """Write UTF-8 lines that end with a line feed, under a header where the form has one."""
    line = LINES[form]
    if form in ("csv", "tsv"):
        file.write(line(reader.names, {name: name for name in columns}).encode())

    def write(rows: Sequence[Row], values: Sequence[Sequence[Value]]) -> None:
        for row, cells in zip(rows, zip(*values, strict=True), strict=True):
            file.write(line(row.raw, dict(zip(columns, cells, strict=True))).encode())

    yield write


@contextmanager
def _writing_parquet(reader: Parquet, file: BinaryIO, columns: Mapping[str, type]) -> Iterator[Write]:
    """Write Parquet with the old columns untouched; the new ones are strings and float32 numbers."""
    import pyarrow.parquet

    types = {str: pyarrow.string(), float: pyarrow.float32()}
    schema = reader.schema
    for name, kind in columns.items():
        schema = schema.append(pyarrow.field(name, types[kind]))

    def write(rows: Sequence[Row], values: Sequence[Sequence[Value]]) -> None:
        batch = rows[0].raw[0]  # a chunk is a batch, from which rows may have been skipped
        if len(rows) < len(batch):
            batch = batch.take(pyarrow.array([row.raw[1] for row in rows], pyarrow.int64()))
        new = [pyarrow.array(cells, types[kind]) for cells, kind in zip(values, columns.values(), strict=True)]
        writer.write_batch(pyarrow.record_batch([*batch.columns, *new], schema=schema))

    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        yield write


def plain_line(text: Text, values: Mapping[str, Value]) -> str:
    """New columns, then the text, which may hold tabs. Columns beyond label and score carry their names."""
    cells = [_without_breaks(value) if isinstance(value, str) else f"{value:.4f}" for value in values.values()]
    cells[2:] = [f"{name}={cell}" for name, cell in list(zip(values, cells, strict=True))[2:]]
    texts = (text,) if isinstance(text, str) else text
    return "\t".join([*cells, *(part.replace("\n", " ") for part in texts)]) + "\n"


def json_line(text: Text, values: Mapping[str, Value]) -> str:
    """A JSON object of the text or the pair, and the new columns."""
    texts = {"text": text} if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}
    return _json({**texts, **values}) + "\n"


def _longer_json_line(raw: str, values: Mapping[str, Value]) -> str:
    """The object as it was written, with more keys before its closing brace: numbers keep their spelling."""
    before = raw[:-1].rstrip()
    comma = "" if before == "{" else ", "
    return f"{before}{comma}{_json(values)[1:]}\n"


def _json(values: Mapping[str, Value]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _csv_line(fields: Sequence[str], values: Mapping[str, Value]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([*fields, *values.values()])
    return line.getvalue()


def _tsv_line(fields: Sequence[str], values: Mapping[str, Value]) -> str:
    return "\t".join(_without_breaks(str(cell)) for cell in (*fields, *values.values())) + "\n"


def _without_breaks(text: str) -> str:
    return " ".join(text.split()) if "\t" in text or "\n" in text else text


LINES: Mapping[str, Callable[[Any, Mapping[str, Value]], str]] = MappingProxyType(
    {"txt": plain_line, "json": json_line, "jsonl": _longer_json_line, "csv": _csv_line, "tsv": _tsv_line}
)

"""The columns that a model adds to rows, and writers of labelled rows: plain lines, JSONL, CSV, TSV and Parquet.

Rows of the same format stay as they are; those of another one are converted. An output file appears whole or not at
all. `tables` reads rows from files and passes them on to a writer.
"""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bibert.data.readers import Csv, Delimited, JsonLines, Parquet, PlainLines, Reader, Row
from bibert.errors import DataError, EngineError, one_line, require_extra
from bibert.files import STANDARD_OUTPUT, naming, write_whole
from bibert.runtime.classifier import TextClassifier, check_min_score
from bibert.runtime.text import BY_NUMBER, Text, Where, is_blank

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode

Value = str | float | None
Line = Callable[[Row, Text, Mapping[str, Value]], str]  # of a row, its text or pair, and its new columns
Write = Callable[[Sequence[Row], Sequence[Text], Sequence[Sequence[Value]]], None]  # the last: new columns in order

WRITTEN = ("txt", "csv", "tsv", "jsonl", "parquet")
FIXED_COLUMNS = ("csv", "tsv", "parquet")  # formats whose rows all have the same columns


class Labeller:
    """A classifier that gives the new columns of rows: label and score; of a regression, the score alone.

    With `proba`, columns named `score_` and a label have its probability. `prefix` comes before the name of each
    column. `columns` has the names of the new columns, with their type: `str` or `float`. A label whose score is below
    `min_score` is empty. A blank text gets an empty label and no score, unless `label_blank` is set. `counts` says how
    many texts were `cut`, `blank` or `below` the least score.
    """

    def __init__(
        self,
        classifier: TextClassifier,
        *,
        proba: bool = False,
        prefix: str = "",
        min_score: float | None = None,
        label_blank: bool = False,
    ) -> None:
        check_min_score(min_score, classifier.labels)
        self.min_score, self.label_blank = min_score, label_blank
        self.counts = {"cut": 0, "blank": 0, "below": 0}
        self._classifier = classifier
        self._proba = proba
        self._regression = len(classifier.labels) == 1
        if self._regression and proba:
            raise EngineError("the model is a regression, which has one score and no probabilities; leave proba off")
        self.columns: dict[str, type] = {} if self._regression else {f"{prefix}label": str}
        self.columns |= {f"{prefix}score": float}
        self.columns |= {f"{prefix}score_{label}": float for label in classifier.labels if proba}

    def __call__(self, texts: Sequence[Text], where: Where = BY_NUMBER) -> list[Sequence[Value]]:
        """Return the values of each new column; `where` as for `TextClassifier.answers`."""
        cut = self._classifier.texts_cut
        answers = self._classifier.answers(texts, where)
        blank = [is_blank(text) for text in texts]
        empty = [one and not self.label_blank for one in blank]
        best = answers.best(self.min_score)
        labels = ["" if none else answer["label"] for answer, none in zip(best, empty, strict=True)]
        self.counts["cut"] += self._classifier.texts_cut - cut
        self.counts["blank"] += sum(blank)
        self.counts["below"] += sum(not label and not none for label, none in zip(labels, empty, strict=True))
        scores = [np.array([answer["score"] for answer in best]), *(answers.scores.T if self._proba else ())]
        # The shortest decimals that are the same number in float32; more digits carry no information.
        decimals: list[Sequence[Value]] = [
            [None if none else float(str(value)) for value, none in zip(column.astype(np.float32), empty, strict=True)]
            for column in scores
        ]
        return decimals if self._regression else [labels, *decimals]


@contextmanager
def open_output(path: Path | None, finish: Callable[[Path], None] | None = None) -> Iterator[BinaryIO]:
    """Open a file that appears whole or not at all, compressed if its name ends in .gz; None is standard output.

    `finish` is told where the whole file is just before it gets its name.
    """
    if path is None:
        with naming(STANDARD_OUTPUT):
            yield sys.stdout.buffer
        return
    with write_whole(path, "wb") as file:
        if path.suffix.lower() == ".gz":
            # No name and no time inside, so that the same rows give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
                yield compressed  # type: ignore[misc]
        else:
            yield file
        if finish:
            file.flush()
            finish(Path(file.name))


def row_writer(
    file: BinaryIO, written: str, reader: Reader | None, columns: Mapping[str, type]
) -> AbstractContextManager[Write]:
    """Write rows of `reader`, or of the command line, in the format `written`, one of `WRITTEN`."""
    if written == "parquet":
        return _parquet_writer(file, reader, columns)
    if written in ("csv", "tsv"):
        return _table_writer(file, written, reader, columns)
    line = plain_line if written == "txt" else _longer_json_line if isinstance(reader, JsonLines) else json_line
    return _line_writer(file, line, columns)


@contextmanager
def _line_writer(file: BinaryIO, line: Line, columns: Mapping[str, type]) -> Iterator[Write]:
    """Write UTF-8 lines that end with a line feed."""

    def write(rows: Sequence[Row], texts: Sequence[Text], values: Sequence[Sequence[Value]]) -> None:
        for row, text, cells in zip(rows, texts, zip(*values, strict=True), strict=True):
            file.write(line(row, text, dict(zip(columns, cells, strict=True))).encode())

    yield write


@contextmanager
def _table_writer(file: BinaryIO, written: str, reader: Reader | None, columns: Mapping[str, type]) -> Iterator[Write]:
    """Write CSV or TSV below a header; the columns of JSONL are those of its first row."""
    names = list(reader.names) if reader is not None else []
    delimiter = reader.delimiter if isinstance(reader, Csv) else ","

    def put(fields: Sequence[Value]) -> None:
        file.write((_csv_line(fields, delimiter) if written == "csv" else _tsv_line(fields)).encode())

    def write(rows: Sequence[Row], texts: Sequence[Text], values: Sequence[Sequence[Value]]) -> None:  # noqa: ARG001
        if not names:
            names.extend(rows[0].cells)
            put([*names, *columns])
        for row, cells in zip(rows, zip(*values, strict=True), strict=True):
            fields = row.raw if isinstance(reader, Delimited) else [_field(row.cells.get(name)) for name in names]
            put([*fields, *cells])

    if names:
        put([*names, *columns])
    yield write


@contextmanager
def _parquet_writer(file: BinaryIO, reader: Reader | None, columns: Mapping[str, type]) -> Iterator[Write]:
    """Write Parquet; the new columns are strings and float32 numbers.

    Rows of Parquet stay as they are. Columns of text are strings, those of JSONL and Excel have the types of the first
    rows.
    """
    require_extra("data", "writing Parquet")
    import pyarrow.parquet

    types = {str: pyarrow.string(), float: pyarrow.float32()}
    added = [pyarrow.field(name, types[kind]) for name, kind in columns.items()]
    old, writer = None, None
    if isinstance(reader, Parquet):
        old = reader.schema
    elif isinstance(reader, Delimited | PlainLines):
        old = pyarrow.schema([(name, pyarrow.string()) for name in reader.names if name])

    def columns_of(rows: Sequence[Row]) -> Any:
        nonlocal old
        if isinstance(reader, Parquet):
            batch = rows[0].raw[0]  # a chunk is a batch, from which rows may have been skipped
            places = pyarrow.array([row.raw[1] for row in rows], pyarrow.int64())
            return batch if len(rows) == len(batch) else batch.take(places)
        try:
            if old is None:
                first = pyarrow.RecordBatch.from_pylist([row.cells for row in rows]).schema
                unknown = [field.with_type(types[str]) if field.type == pyarrow.null() else field for field in first]
                old = pyarrow.schema(unknown)
            return pyarrow.RecordBatch.from_pylist([row.cells for row in rows], schema=old)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            where = "text 1" if reader is None else reader.where(rows[0].number)
            problem = f"these rows do not fit into columns with the types of the first ones ({one_line(error)})"
            raise DataError(f"{where}: {problem}; write the output as .jsonl") from None

    def writer_of(schema: Any) -> Any:
        return pyarrow.parquet.ParquetWriter(file, pyarrow.schema([*schema, *added], metadata=schema.metadata))

    def write(rows: Sequence[Row], texts: Sequence[Text], values: Sequence[Sequence[Value]]) -> None:  # noqa: ARG001
        nonlocal writer
        batch = columns_of(rows)
        writer = writer or writer_of(old)
        new = [pyarrow.array(cells, field.type) for cells, field in zip(values, added, strict=True)]
        writer.write_batch(pyarrow.record_batch([*batch.columns, *new], schema=writer.schema))

    try:
        yield write
    finally:  # after an error too: a forgotten writer would close itself later, and fail
        (writer or writer_of(old or pyarrow.schema([]))).close()


def plain_line(row: Row, text: Text, values: Mapping[str, Value]) -> str:  # noqa: ARG001
    """New columns, then the text, which may hold tabs. Columns beyond label and score carry their names."""
    cells = [f"{value:.4f}" if isinstance(value, float) else _without_breaks(value or "") for value in values.values()]
    cells[2:] = [f"{name}={cell}" for name, cell in list(zip(values, cells, strict=True))[2:]]
    texts = (text,) if isinstance(text, str) else text
    return "\t".join([*cells, *(part.replace("\n", " ") for part in texts)]) + "\n"


def json_line(row: Row, text: Text, values: Mapping[str, Value]) -> str:  # noqa: ARG001
    """A JSON object of all columns, the new ones last."""
    return _json({**row.cells, **values}) + "\n"


def _longer_json_line(row: Row, text: Text, values: Mapping[str, Value]) -> str:  # noqa: ARG001
    """The object as it was written, with more keys before its closing brace: numbers keep their spelling."""
    before = row.raw[:-1].rstrip()
    comma = "" if before == "{" else ", "
    return f"{before}{comma}{_json(values)[1:]}\n"


def _json(value: object) -> str:
    try:
        return _encode(value)
    except ValueError:  # Parquet has NaN and infinity, which JSON does not have
        return _encode(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None))


def _csv_line(fields: Sequence[Value], delimiter: str) -> str:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="\r\n").writerow(fields)  # quotes what holds one of the two
    return line.getvalue()[:-2] + "\n"


def _tsv_line(fields: Sequence[Value]) -> str:
    return "\t".join("" if cell is None else _without_breaks(str(cell)) for cell in fields) + "\n"


def _field(cell: object) -> str:
    """A value of JSONL, Parquet or Excel as a field of CSV: texts as they are, others as JSON writes them."""
    return "" if cell is None else cell if isinstance(cell, str) else _json(cell)


def _without_breaks(text: str) -> str:
    return " ".join(text.split()) if "\t" in text or "\n" in text else text

"""The columns that a model adds to rows, and writers of labelled rows: plain lines, JSONL, CSV, TSV and Parquet.

An output file appears whole or not at all. `tables` reads rows from files and passes them on to a writer.
"""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bibert.errors import EngineError
from bibert.files import write_whole
from bibert.runtime.classifier import TextClassifier, check_min_score
from bibert.runtime.text import BY_NUMBER, Text, Where

_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

Value = str | float
Line = Callable[[Any, Mapping[str, Value]], str]  # of a row as its file has it, and its new columns
Write = Callable[[Sequence[Any], Sequence[Sequence[Value]]], None]  # rows, and their new columns in order


class Labeller:
    """A classifier that gives the new columns of rows: label and score; of a regression, the score alone.

    With `proba`, columns named `score_` and a label have its probability. `prefix` comes before the name of each
    column. `columns` has the names of the new columns, with their type: `str` or `float`. A label whose score is below
    `min_score` is empty; `abstained` counts these.
    """

    def __init__(
        self, classifier: TextClassifier, *, proba: bool = False, prefix: str = "", min_score: float | None = None
    ) -> None:
        check_min_score(min_score, classifier.labels)
        self.abstained = 0
        self._classifier = classifier
        self._min_score = min_score
        self._proba = proba
        self._regression = len(classifier.labels) == 1
        if self._regression and proba:
            raise EngineError("the model is a regression, which has one score and no probabilities; leave proba off")
        self.columns: dict[str, type] = {} if self._regression else {f"{prefix}label": str}
        self.columns |= {f"{prefix}score": float}
        self.columns |= {f"{prefix}score_{label}": float for label in classifier.labels if proba}

    def __call__(self, texts: Sequence[Text], where: Where = BY_NUMBER) -> list[Sequence[Value]]:
        """Return the values of each new column; `where` as for `TextClassifier.answers`."""
        answers = self._classifier.answers(texts, where)
        best = answers.best(self._min_score)
        self.abstained += sum(not answer["label"] for answer in best)
        scores = [np.array([answer["score"] for answer in best]), *(answers.scores.T if self._proba else ())]
        # The shortest decimals that are the same number in float32; more digits carry no information.
        decimals = ([float(str(value)) for value in column.astype(np.float32)] for column in scores)
        return [*decimals] if self._regression else [[answer["label"] for answer in best], *decimals]


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


@contextmanager
def line_writer(file: BinaryIO, line: Line, columns: Mapping[str, type], header: Sequence[str] = ()) -> Iterator[Write]:
    """Write UTF-8 lines that end with a line feed, below a header line if `header` has the names of the old columns."""
    if header:
        file.write(line(header, {name: name for name in columns}).encode())

    def write(rows: Sequence[Any], values: Sequence[Sequence[Value]]) -> None:
        for row, cells in zip(rows, zip(*values, strict=True), strict=True):
            file.write(line(row, dict(zip(columns, cells, strict=True))).encode())

    yield write


@contextmanager
def parquet_writer(file: BinaryIO, schema: Any, columns: Mapping[str, type]) -> Iterator[Write]:
    """Write Parquet with the old columns untouched; the new ones are strings and float32 numbers."""
    import pyarrow.parquet

    types = {str: pyarrow.string(), float: pyarrow.float32()}
    for name, kind in columns.items():
        schema = schema.append(pyarrow.field(name, types[kind]))

    def write(rows: Sequence[Any], values: Sequence[Sequence[Value]]) -> None:
        batch = rows[0][0]  # a chunk is a batch, from which rows may have been skipped
        if len(rows) < len(batch):
            batch = batch.take(pyarrow.array([place for _, place in rows], pyarrow.int64()))
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


def _csv_line(fields: Sequence[str], values: Mapping[str, Value]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([*fields, *values.values()])
    return line.getvalue()


def _tsv_line(fields: Sequence[str], values: Mapping[str, Value]) -> str:
    return "\t".join(_without_breaks(str(cell)) for cell in (*fields, *values.values())) + "\n"


def _without_breaks(text: str) -> str:
    return " ".join(text.split()) if "\t" in text or "\n" in text else text


LINES: Mapping[str, Line] = {"txt": plain_line, "jsonl": _longer_json_line, "csv": _csv_line, "tsv": _tsv_line}

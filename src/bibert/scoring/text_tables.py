"""Tables that are lines of text: plain texts, CSV, TSV and JSONL, read row by row and written with more columns.

What is written is UTF-8, and a line ends with a line feed. Whether a row is well formed is decided by the same
functions that read training data (`data.readers`); bytes become lines in `lines`.
"""

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, ClassVar

from bibert.data.columns import Columns, find_text_columns
from bibert.data.readers import Table as NamedColumns
from bibert.data.readers import check_width, checked_header, csv_rows, json_object
from bibert.errors import DataError
from bibert.scoring.lines import Input
from bibert.scoring.rows import (
    Chunk,
    Reading,
    Text,
    Value,
    Write,
    as_text,
    check_new_columns,
    parts_of,
    text_of,
)

CHARACTERS_PER_CHUNK = 2**22  # rows of a chunk stay in memory until they are scored


@dataclass(frozen=True)
class Row:
    """One text; `raw` is what its table writes again, `size` counts all characters of the row."""

    text: Text
    raw: Any
    size: int


class TextTable(ABC):
    """What the forms below share: rows to chunks, chunks to lines."""

    def __init__(self, source: Input, reading: Reading) -> None:
        self.source = source
        self.reading = reading

    @property
    def share(self) -> float | None:
        """How much of the file has been read, from 0 to 1."""
        return self.source.share

    @abstractmethod
    def rows(self) -> Iterator[Row | DataError]:
        """Every row, or what is wrong with it if such rows are to be skipped."""

    @abstractmethod
    def head(self, columns: Mapping[str, type]) -> str:
        """What stands above the rows; refuses new columns that cannot be added."""

    @abstractmethod
    def line(self, row: Row, values: Mapping[str, Value]) -> str:
        """A row with its new columns."""

    def chunks(self, most_rows: int) -> Iterator[Chunk]:
        """The rows, fewer at a time where they are long."""
        rows: list[Row] = []
        skipped: list[DataError] = []
        size = 0
        for row in self.rows():
            if isinstance(row, DataError):
                skipped.append(row)
            else:
                rows.append(row)
                size += row.size
            if len(rows) + len(skipped) >= most_rows or size >= CHARACTERS_PER_CHUNK:
                yield Chunk([row.text for row in rows], rows, skipped)
                rows, skipped, size = [], [], 0
        if rows or skipped:
            yield Chunk([row.text for row in rows], rows, skipped)

    @contextmanager
    def writing(self, file: BinaryIO, columns: Mapping[str, type]) -> Iterator[Write]:
        """Write the head, then one line for each row."""
        file.write(self.head(columns).encode())

        def write(chunk: Chunk, values: Sequence[Sequence[Value]]) -> None:
            for row, cells in zip(chunk.rows, zip(*values, strict=True), strict=True):
                file.write(self.line(row, dict(zip(columns, cells, strict=True))).encode())

        yield write

    def _parsed(self, parse: Callable[[], Row]) -> Row | DataError:
        """A row; where rows may be skipped, what is wrong with it."""
        try:
            return parse()
        except DataError as error:
            if self.reading.decoding.on_error != "skip":
                raise
            return error


class PlainTexts(TextTable):
    """One text a line, empty ones too, so that line N of the output belongs to line N of the input."""

    def rows(self) -> Iterator[Row | DataError]:
        """Every line without its end."""
        decoding = self.reading.decoding
        for number, line in enumerate(self.source.lines(decoding), start=1):
            yield self._parsed(partial(self._row, line, f"{self.source.origin}:{number}"))

    def _row(self, line: str, where: str) -> Row:
        text = self.reading.decoding.checked(_without_end(line), where)
        return Row(text, text, len(text))

    def head(self, columns: Mapping[str, type]) -> str:  # noqa: ARG002
        """Nothing: a line of the output belongs to a line of the input."""
        return ""

    def line(self, row: Row, values: Mapping[str, Value]) -> str:
        """The new columns, then the text."""
        return plain_line(row.text, values)


class PlainTextsAsJson(PlainTexts):
    """The same, written as JSON lines."""

    def line(self, row: Row, values: Mapping[str, Value]) -> str:
        """One JSON object."""
        return json_line(row.text, values)


def plain_line(text: Text, values: Mapping[str, Value]) -> str:
    """New columns, then the text: it may hold tabs, so it stands last. Past label and score, columns have names."""
    cells = [_word(value) if isinstance(value, str) else f"{value:.4f}" for value in values.values()]
    cells[2:] = [f"{name}={cell}" for name, cell in list(zip(values, cells, strict=True))[2:]]
    return "\t".join([*cells, *(part.replace("\n", " ") for part in parts_of(text))]) + "\n"


def json_line(text: Text, values: Mapping[str, Value]) -> str:
    """A JSON object of the text, or the pair, and the new columns."""
    return _json({**dict(zip(("text", "text_pair"), parts_of(text), strict=False)), **values}) + "\n"


class DelimitedTable(TextTable):
    """Rows of fields under a header line."""

    delimiter: ClassVar[str]

    def __init__(self, source: Input, reading: Reading) -> None:
        super().__init__(source, reading)
        self._records = self._read()
        line, fields = next(self._records, (1, DataError(f"{source.origin}: is empty; a header line is needed")))
        if isinstance(fields, DataError):
            raise fields
        fields = [reading.decoding.checked(name, f"{source.origin}:{line}") for name in fields]
        self.header = checked_header((line, fields), self.delimiter, source.origin)
        names = _find(self.header, reading.columns, source.origin)
        self._places = [self.header.index(name) for name in names]

    @abstractmethod
    def _read(self) -> Iterator[tuple[int, list[str] | DataError]]:
        """The fields of every row and the line it starts on, or why they cannot be told apart."""

    @abstractmethod
    def _joined(self, fields: Sequence[str]) -> str:
        """A line of the file."""

    def rows(self) -> Iterator[Row | DataError]:
        """Every row with as many fields as the header."""
        for line, fields in self._records:
            yield self._parsed(partial(self._row, fields, f"{self.source.origin}:{line}"))

    def _row(self, fields: list[str] | DataError, where: str) -> Row:
        if isinstance(fields, DataError):
            raise fields
        check_width(fields, self.header, where)
        cells = [self.reading.decoding.checked(cell, where) for cell in fields]
        return Row(as_text([cells[place] for place in self._places]), cells, sum(map(len, cells)))

    def head(self, columns: Mapping[str, type]) -> str:
        """The header line."""
        check_new_columns(columns, self.header, f"{self.source.origin}:1")
        return self._joined([*self.header, *columns])

    def line(self, row: Row, values: Mapping[str, Value]) -> str:
        """The fields, then the new ones."""
        return self._joined([*row.raw, *map(str, values.values())])


class CsvTable(DelimitedTable):
    """Fields between commas; one that holds a comma, a quote or a line break is in quotes."""

    delimiter = ","

    def _read(self) -> Iterator[tuple[int, list[str] | DataError]]:
        return csv_rows(self.source.lines(self.reading.decoding, newline=""), self.source.origin)

    def _joined(self, fields: Sequence[str]) -> str:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(fields)
        return line.getvalue()


class TsvTable(DelimitedTable):
    """Fields between tabs; a quote is a letter like any other."""

    delimiter = "\t"

    def _read(self) -> Iterator[tuple[int, list[str] | DataError]]:
        for number, line in enumerate(self.source.lines(self.reading.decoding), start=1):
            if bare := _without_end(line):
                yield number, bare.split("\t")

    def _joined(self, fields: Sequence[str]) -> str:
        return "\t".join(map(_word, fields)) + "\n"


class JsonLines(TextTable):
    """One JSON object a line. The columns of the first row decide which one is the text."""

    def __init__(self, source: Input, reading: Reading) -> None:
        super().__init__(source, reading)
        self._names: list[str] = []
        self._new: tuple[str, ...] = ()

    def rows(self) -> Iterator[Row | DataError]:
        """Every line that is not blank."""
        for number, line in enumerate(self.source.lines(self.reading.decoding), start=1):
            if line.strip():
                yield self._parsed(partial(self._row, line, f"{self.source.origin}:{number}"))

    def _row(self, line: str, where: str) -> Row:
        raw = self.reading.decoding.checked(line.strip(), where)
        values = json_object(raw, where)
        check_new_columns(self._new, values, where)
        self._names = self._names or _find(values, self.reading.columns, self.source.origin)
        texts = [text_of(values.get(name), name, where) for name in self._names]
        return Row(as_text(texts), raw, len(raw))

    def head(self, columns: Mapping[str, type]) -> str:
        """Nothing; every row is checked for columns of the same name instead."""
        self._new = tuple(columns)
        return ""

    def line(self, row: Row, values: Mapping[str, Value]) -> str:
        """The object as it was written, with more keys before its closing brace: no number changes its spelling."""
        before = row.raw[:-1].rstrip()
        comma = "" if before == "{" else ", "
        return f"{before}{comma}{_json(values)[1:]}\n"


def _find(names: Iterable[str], wanted: Columns, origin: str) -> list[str]:
    """The names of the text column and, for pairs, of the second one."""
    found = find_text_columns(NamedColumns(origin, {name: () for name in names if name}, lines=()), wanted)
    return [name for name in (found.text, found.pair) if name]


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _word(text: str) -> str:
    """A name of a label for a line of fields without quotes."""
    return " ".join(text.split()) if "\t" in text or "\n" in text else text


def _json(values: Mapping[str, Value]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False)

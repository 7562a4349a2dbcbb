"""The rows of a file, one at a time: CSV, TSV, JSONL, Parquet, Excel or plain lines.

Every row knows its line, and a broken row is refused or skipped as its `Decoding` says. Training collects rows into
cells (`tables`); prediction labels them as they pass (`runtime.tables`). Bytes become lines in `lines`; `columns` finds
the columns that are asked for.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from zipfile import BadZipFile

from bibert.data.lines import LONGEST_LINE, Decoding, Input, Usual, files_in, is_plain, reading, shown
from bibert.errors import DataError, one_line, require_extra

CHARACTERS_PER_CHUNK = 2**22  # the rows of a chunk are in memory together
MOST_LINES_OF_A_ROW = 10_000  # in CSV; with more, a quote was never closed
# What openpyxl raises for files that are damaged, encrypted or of another kind.
NOT_EXCEL = (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, SyntaxError, BadZipFile, zlib.error)
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


class Row(NamedTuple):
    """One row of a file."""

    number: int  # of the line it starts on, or of the row in Parquet
    cells: Mapping[str, object]  # by the name of the column
    raw: Any  # the row as the file has it: a line, its fields, or a batch of Parquet and the place in it


class Reader:
    """The rows of a file; there is a subclass for each format."""

    has_lines: ClassVar[bool] = True
    names: tuple[str, ...] = ()  # of the columns; empty where only the rows have them (JSONL)

    def __init__(self, source: Input, decoding: Decoding) -> None:
        self.source, self.decoding = source, decoding

    @property
    def share(self) -> float | None:
        """The share of the file that has been read, from 0 to 1; None where it is unknown."""
        return self.source.share

    @property
    def header_place(self) -> str:
        """The place of the header, for messages."""
        return self.where(1) if self.has_lines else self.source.origin

    def where(self, number: int) -> str:
        """The place of a row, for messages: file:line."""
        return f"{self.source.origin}:{number}" if self.has_lines else f"{self.source.origin}: row {number}"

    def chunks(self, most_rows: int, only: Sequence[str] = ()) -> Iterator[list[Row | DataError]]:
        """Yield up to `most_rows` rows together, a skipped one as its error; of Parquet the columns in `only` alone."""
        raise NotImplementedError


class LineReader(Reader):
    """The rows of a file of lines: `_records` splits the lines into records, `_row` checks and reads one."""

    def __init__(self, source: Input, decoding: Decoding) -> None:
        super().__init__(source, decoding)
        self._unread = self._records()

    def chunks(self, most_rows: int, only: Sequence[str] = ()) -> Iterator[list[Row | DataError]]:  # noqa: ARG002
        """Read records until a chunk is full, or until no more of them have arrived yet."""
        chunk: list[Row | DataError] = []
        start = self.source.characters
        for number, record in self._unread:
            try:
                if isinstance(record, DataError):
                    raise record
                if (row := self._row(number, record)) is not None:
                    chunk.append(row)
            except DataError as error:
                if self.decoding.on_error != "skip":
                    raise
                chunk.append(error)
            full = len(chunk) >= most_rows or self.source.characters - start >= CHARACTERS_PER_CHUNK
            if full or (chunk and self.source.pauses):
                yield chunk
                chunk, start = [], self.source.characters
        if chunk:
            yield chunk

    def _records(self) -> Iterator[tuple[int, Any]]:
        return enumerate(self.source.lines(self.decoding), start=1)

    def _row(self, number: int, record: Any) -> Row | None:
        raise NotImplementedError


class PlainLines(LineReader):
    """One text a line, empty ones too, so that row N is line N."""

    names = ("text",)

    def _row(self, number: int, record: str) -> Row:
        text = self.decoding.checked(_without_end(record), self.where(number))
        return Row(number, {"text": text}, text)


class JsonLines(LineReader):
    """One JSON object a line; blank lines are ignored."""

    def _row(self, number: int, record: str) -> Row | None:
        where = self.where(number)
        raw = self.decoding.checked(record.strip(), where)
        if not raw:
            return None
        try:
            cells = json.loads(raw, object_pairs_hook=_distinct_keys)
        except (ValueError, RecursionError) as error:
            # The decoder counts lines within the line; the column is enough.
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(f"{where}: broken JSON ({reason}); write one JSON object a line") from None
        if not isinstance(cells, dict):
            raise DataError(f"{where}: holds a value of type {type(cells).__name__}; write one JSON object a line")
        return Row(number, cells, raw)


def _distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a key appears twice")
    return row


class Delimited(LineReader):
    """Fields under a header line.

    `header` names the columns of a file without a header line. `ragged` accepts rows with missing fields at the end.
    """

    delimiter: str  # of the fields; a CSV file may name another one

    def __init__(self, source: Input, decoding: Decoding, header: tuple[str, ...] = (), ragged: bool = False) -> None:
        super().__init__(source, decoding)
        named = "" if isinstance(decoding.delimiter, Usual) else decoding.delimiter
        self.delimiter = named or self.delimiter
        self._ragged = ragged
        self.names = header or self._read_header()

    def _read_header(self) -> tuple[str, ...]:
        empty = DataError(f"{self.source.origin}: is empty; write a header line and rows")
        line, fields = next(self._unread, (1, empty))
        if isinstance(fields, DataError):
            raise fields
        names = tuple(self.decoding.checked(name.strip(), self.where(line)) for name in fields)
        other = next((other for other in DELIMITERS if len(names) == 1 and other in names[0]), None)
        if other:
            problem = f"the header is one column, {shown(names)}, which seems to be separated by {DELIMITERS[other]}"
            remedy = "name the delimiter, or save it as .csv with commas or .tsv with tabs"
            found = DELIMITERS.get(self.delimiter, repr(self.delimiter))
            raise DataError(f"{self.where(line)}: {problem}, not {found}; {remedy}")
        _refuse_twice(filter(None, names), self.where(line))
        return names

    def _row(self, number: int, record: list[str]) -> Row:
        if len(record) != len(self.names) and not self._ragged:
            sizes = f"{len(record)} fields where the header has {len(self.names)} ({shown(self.names)})"
            remedy = "fix the row: a field holds a delimiter or line break, or its end is missing"
            raise DataError(f"{self.where(number)}: {sizes}; {remedy}")
        fields = record
        if not is_plain("".join(record)):  # checked together, which is quick
            fields = [self.decoding.checked(field, self.where(number)) for field in record]
        cells = dict(zip(self.names, fields, strict=False))
        cells.pop("", None)  # a column without a name (pandas writes the row number so) cannot be asked for
        return Row(number, cells, fields)


class Csv(Delimited):
    """Fields that may be quoted, separated by commas or by what the header has more of: tabs, semicolons, bars."""

    delimiter = ""

    def _records(self) -> Iterator[tuple[int, list[str] | DataError]]:
        lines = _RowLines(self.source.lines(self.decoding, newline=""))
        if not self.delimiter:
            bare = re.sub('"[^"]*"', "", lines.peek())
            usual = self.decoding.delimiter
            self.delimiter = usual if usual and usual in bare else max(DELIMITERS, key=bare.count)
        rows = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            start = lines.start
            fields: list[str] | DataError | None
            limit = csv.field_size_limit(LONGEST_LINE)  # one for the whole process, so restored after every row
            try:
                fields = next(rows, None)
            except csv.Error as error:
                remedy = "quote a field that holds quotes and double the quotes inside it"
                broken = DataError(f"{self.where(start)}: broken row ({error}); {remedy}")
                fields = error.args[0] if isinstance(error.args[0], DataError) else broken
            finally:
                csv.field_size_limit(limit)
            if fields is None:
                return
            lines.end_row(broken=isinstance(fields, DataError))
            if fields != []:
                yield start, fields


class _RowLines(Iterator[str]):
    """The lines of a CSV file; after a broken row, reading goes on with the line below the one where it starts."""

    def __init__(self, lines: Iterator[str | DataError]) -> None:
        self.start = 1  # the line where the row starts: a quoted field may hold line breaks
        self._lines = lines
        self._row: list[str | DataError] = []  # the lines of the row so far
        self._again: deque[str | DataError] = deque()  # lines to read once more

    def __next__(self) -> str:
        if len(self._row) == MOST_LINES_OF_A_ROW:
            raise csv.Error(f"a quote is still open after {MOST_LINES_OF_A_ROW:,} lines")
        line = self._again.popleft() if self._again else next(self._lines)
        self._row.append(line)
        if isinstance(line, DataError):
            raise csv.Error(line)
        return line

    def peek(self) -> str:
        """The first line; empty if there is none, or none that can be read."""
        self._again.extend(islice(self._lines, 1))
        return next((line for line in self._again if isinstance(line, str)), "")

    def end_row(self, *, broken: bool) -> None:
        """Begin a new row."""
        self.start += 1 if broken else len(self._row)
        if broken:
            self._again.extendleft(reversed(self._row[1:]))
        self._row = []


class Tsv(Delimited):
    """Fields separated by tabs; a quote is a letter like any other."""

    delimiter = "\t"

    def _records(self) -> Iterator[tuple[int, list[str] | DataError]]:
        for number, line in enumerate(self.source.lines(self.decoding), start=1):
            if isinstance(line, DataError):
                yield number, line
            elif bare := _without_end(line):
                yield number, bare.split(self.delimiter)


class Excel(Reader):
    """The first sheet of an Excel file, with the names of the columns in its first row; needs the extra `excel`."""

    def __init__(self, source: Input, decoding: Decoding) -> None:
        require_extra("excel", "reading Excel")
        import openpyxl

        super().__init__(source, decoding)
        self._reading = partial(_readable, source.origin, "Excel", NOT_EXCEL, "save it again as .xlsx or .csv")
        with self._reading():
            book = openpyxl.load_workbook(io.BytesIO(source.stream.read()), read_only=True, data_only=True)
            self._rows = enumerate(book.worksheets[0].iter_rows(values_only=True), start=1)
            _, header = next(self._rows, (1, ()))
        self.names = tuple("" if name is None else str(name).strip() for name in header)
        _refuse_twice(filter(None, self.names), source.origin)

    def chunks(self, most_rows: int, only: Sequence[str] = ()) -> Iterator[list[Row | DataError]]:  # noqa: ARG002
        """Yield rows; those without any value are left out, and dates become text."""
        with self._reading():
            while some := list(islice(self._rows, most_rows)):
                filled = ((number, row) for number, row in some if any(cell is not None for cell in row))
                yield [Row(number, self._cells(row), None) for number, row in filled]

    def _cells(self, row: Sequence[Any]) -> dict[str, object]:
        cells = (cell if isinstance(cell, str | int | float | None) else str(cell) for cell in row)
        return {name: cell for name, cell in zip(self.names, cells, strict=False) if name}


class Parquet(Reader):
    """A Parquet file, read a group of rows at a time; needs the extra `data`."""

    has_lines = False

    def __init__(self, source: Input, decoding: Decoding) -> None:
        require_extra("data", "reading Parquet")
        import pyarrow.parquet

        super().__init__(source, decoding)
        self._rows_read = 0
        problems = (pyarrow.ArrowException, OSError, ValueError, OverflowError)
        self._reading = partial(_readable, source.origin, "Parquet", problems, "write it again")
        stream: Any = source.stream
        if isinstance(stream, gzip.GzipFile):  # Parquet is not read from start to end
            with reading(source.origin):
                stream = io.BytesIO(stream.read())
        with self._reading():
            self._file = pyarrow.parquet.ParquetFile(stream)
            self.schema = self._file.schema_arrow
        self.names = tuple(self.schema.names)
        _refuse_twice(self.names, source.origin)

    @property
    def share(self) -> float | None:
        """The share of the rows that have been read."""
        rows: int = self._file.metadata.num_rows
        return self._rows_read / max(1, rows)

    def chunks(self, most_rows: int, only: Sequence[str] = ()) -> Iterator[list[Row | DataError]]:
        """Yield batches of rows."""
        with self._reading():
            for batch in self._file.iter_batches(batch_size=most_rows):
                first, rows = self._rows_read + 1, batch.select(only or self.names).to_pylist()
                self._rows_read += len(batch)
                yield [Row(first + place, cells, (batch, place)) for place, cells in enumerate(rows)]


@contextmanager
def _readable(origin: str, kind: str, problems: tuple[type[Exception], ...], remedy: str) -> Iterator[None]:
    """Turn what the library of a format raises into `DataError`."""
    try:
        yield
    except problems as error:
        raise DataError(f"{origin}: is not a readable {kind} file ({one_line(error)}); {remedy}") from None


def _refuse_twice(names: Iterable[str], where: str) -> None:
    counts = Counter(names)  # one pass: a file may have a hundred thousand columns
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{where}: column {twice!r} appears more than once; rename one")


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


FORMATS = {"txt": PlainLines, "csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "parquet": Parquet, "xlsx": Excel}
FORMAT_OF_SUFFIX: Mapping[str, str] = {**{f".{name}": name for name in FORMATS}, ".ndjson": "jsonl"}


def format_of(path: Path, remedy: str = "") -> str:
    """The format of a file by its suffix; `remedy` is added to the message about an unknown suffix."""
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file; {files_in(path)}")
    if suffix_of(path) not in FORMAT_OF_SUFFIX:
        known = ", ".join(FORMAT_OF_SUFFIX)
        remedy = f"give it a name ending in {known}, or that and .gz{remedy}"
        raise DataError(f"{path}: the suffix shows no known format; {remedy}")
    return FORMAT_OF_SUFFIX[suffix_of(path)]


def suffix_of(path: Path) -> str:
    """The suffix in lower case; of `reviews.CSV.gz`, .csv."""
    return Path(path.name.lower().removesuffix(".gz")).suffix

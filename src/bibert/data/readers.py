"""The rows of a file, one at a time: CSV, TSV, JSONL, Parquet or plain lines, with their columns found by name.

Every row knows its line, and a broken row is refused or skipped as its `Decoding` says. Training collects rows into
columns (`tables`); prediction labels them as they pass (`runtime.tables`). Bytes become lines in `lines`.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bibert.data.lines import LONGEST_LINE, Decoding, Input, files_in, is_plain, reading, shown
from bibert.errors import DataError, did_you_mean, one_line, require_extra

CHARACTERS_PER_CHUNK = 2**22  # the rows of a chunk are in memory together
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


@dataclass(frozen=True)
class Columns:
    """The columns to read; one without a name is found by the names people use. `text` without `pair`: single texts."""

    text: str = ""
    pair: str = ""
    label: str = ""

    @property
    def names(self) -> list[str]:
        """The names that are not empty."""
        return [name for name in (self.text, self.pair, self.label) if name]


# The names that people use for columns, tried in order. A table with both names of a pair holds pairs, unless it also
# has one of the clear names of a text.
NAMES = json.loads(resources.files("bibert.data").joinpath("column_names.json").read_text(encoding="utf-8"))


def find_columns(names: Iterable[str], wanted: Columns, header_place: str) -> Columns:
    """Find the text, pair and label columns among `names`; `header_place` is the place of the header, for messages."""
    names = [name for name in names if name]
    label = _find_named(wanted.label, names, header_place) or _first_known(NAMES["labels"], names)
    if not label:
        raise _unknown_column("label", NAMES["labels"], names, header_place)
    return _distinct(replace(find_text_columns(names, wanted, header_place), label=label), header_place)


def find_text_columns(names: Iterable[str], wanted: Columns, header_place: str) -> Columns:
    """Like `find_columns` for rows that need no label; `label` stays empty."""
    names = [name for name in names if name]
    text, pair = _find_named(wanted.text, names, header_place), _find_named(wanted.pair, names, header_place)
    if not text:
        lower = {name.lower() for name in names}
        first, second = next((both for both in NAMES["pairs"] if lower.issuperset(both)), ("", ""))
        others = (first, second, wanted.label.lower())
        clear = _first_known([name for name in NAMES["clear_texts"] if name not in others], names)
        text, second = _first_known([first, *NAMES["texts"]], names), _first_known([second], names)
        if second and clear and not pair:
            remedy = f"name the text column {clear!r}, or the text column {text!r} and the pair column {second!r}"
            raise DataError(f"{header_place}: {clear!r} may be the text, or {text!r} and {second!r} a pair; {remedy}")
        pair = pair or second
    if not text:
        raise _unknown_column("text", NAMES["texts"], names, header_place)
    return _distinct(Columns(text, pair), header_place)


def _find_named(name: str, names: Sequence[str], header_place: str) -> str:
    found = name if name in names else _first_known([name.lower()], names)
    if name and not found:
        raise DataError(f"{header_place}: no column {name!r} among {shown(names)}; {did_you_mean(name, names)}")
    return found


def _first_known(known: Iterable[str], names: Sequence[str]) -> str:
    """The first of the known names that a column has, whatever its case."""
    return next((name for lower in known for name in names if name.lower() == lower), "")


def _unknown_column(part: str, known: Sequence[str], names: Sequence[str], header_place: str) -> DataError:
    remedy = f"name the {part} column, or add a header line with a known name ({', '.join(known[:5])}, ...)"
    return DataError(f"{header_place}: no {part} column among {shown(names)}; {remedy}")


def _distinct(found: Columns, header_place: str) -> Columns:
    if len(set(found.names)) != len(found.names):
        raise DataError(f"{header_place}: one column for two uses ({', '.join(found.names)}); name different ones")
    return found


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
        raise ValueError("a key is there twice")
    return row


class Delimited(LineReader):
    """Fields under a header line.

    `header` names the columns of a file without a header line. `ragged` accepts rows with missing fields at the end.
    """

    delimiter: ClassVar[str]

    def __init__(self, source: Input, decoding: Decoding, header: tuple[str, ...] = (), ragged: bool = False) -> None:
        super().__init__(source, decoding)
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
            remedy = "save it as .csv with commas or .tsv with tabs"
            raise DataError(f"{self.where(line)}: {problem}, not {DELIMITERS[self.delimiter]}; {remedy}")
        twice = next((name for name in names if name and names.count(name) > 1), None)
        if twice:
            raise DataError(f"{self.where(line)}: column {twice!r} is in the header more than once; rename one")
        return names

    def _row(self, number: int, record: list[str] | DataError) -> Row:
        if isinstance(record, DataError):
            raise record
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
    """Fields separated by commas; a field may be quoted."""

    delimiter = ","

    def _records(self) -> Iterator[tuple[int, list[str] | DataError]]:
        rows = csv.reader(self.source.lines(self.decoding, newline=""), strict=True)
        line = 1  # where the row starts: a quoted field may hold line breaks
        while True:
            fields: list[str] | DataError | None
            limit = csv.field_size_limit(LONGEST_LINE)  # one for the whole process, so restored after every row
            try:
                fields = next(rows, None)
            except csv.Error as error:
                remedy = "quote a field that holds quotes and double the quotes inside it"
                fields = DataError(f"{self.where(line)}: broken row ({error}); {remedy}")
            finally:
                csv.field_size_limit(limit)
            if fields is None:
                return
            if fields != []:
                yield line, fields
            line = rows.line_num + 1


class Tsv(Delimited):
    """Fields separated by tabs; a quote is a letter like any other."""

    delimiter = "\t"

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(self.source.lines(self.decoding), start=1):
            if bare := _without_end(line):
                yield number, bare.split("\t")


class Parquet(Reader):
    """A Parquet file, read a group of rows at a time; needs the extra `data`."""

    has_lines = False

    def __init__(self, source: Input, decoding: Decoding) -> None:
        require_extra("data", "reading Parquet")
        import pyarrow.parquet

        super().__init__(source, decoding)
        self._rows_read = 0
        self._problems = (pyarrow.ArrowException, OSError)
        stream: Any = source.stream
        if isinstance(stream, gzip.GzipFile):  # Parquet is not read from start to end
            with reading(source.origin):
                stream = io.BytesIO(stream.read())
        with self._reading_parquet():
            self._file = pyarrow.parquet.ParquetFile(stream)
            self.schema = self._file.schema_arrow
        self.names = tuple(self.schema.names)
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{source.origin}: column {twice!r} is there more than once; rename one")

    @property
    def share(self) -> float | None:
        """The share of the rows that have been read."""
        rows: int = self._file.metadata.num_rows
        return self._rows_read / max(1, rows)

    def chunks(self, most_rows: int, only: Sequence[str] = ()) -> Iterator[list[Row | DataError]]:
        """Yield batches of rows."""
        with self._reading_parquet():
            for batch in self._file.iter_batches(batch_size=most_rows):
                first, rows = self._rows_read + 1, batch.select(only or self.names).to_pylist()
                self._rows_read += len(batch)
                yield [Row(first + place, cells, (batch, place)) for place, cells in enumerate(rows)]

    @contextmanager
    def _reading_parquet(self) -> Iterator[None]:
        try:
            yield
        except self._problems as error:
            problem = f"is not a readable Parquet file ({one_line(error)})"
            raise DataError(f"{self.source.origin}: {problem}; write it again") from None


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


FORMATS = {"txt": PlainLines, "csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "parquet": Parquet}
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
    """The suffix in small letters; of `reviews.CSV.gz`, .csv."""
    return Path(path.name.lower().removesuffix(".gz")).suffix

"""Files of rows: CSV, TSV, JSONL and Parquet, plain or .gz, and `datasets` objects, as columns.

Only the form of a file is judged here, and every row keeps its line for later messages. Which column is the text
and what a label means is in `columns`.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bibert.errors import DataError, one_line, require_extra


@dataclass(frozen=True)
class Table:
    """Named columns of equal length."""

    origin: str  # the file or object, for messages
    columns: Mapping[str, Sequence[object]]
    lines: Sequence[int] | None = None  # the line of each row; None where there are no lines (Parquet, datasets)
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of columns that declare their classes

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    @property
    def top(self) -> str:
        """The place of the header, for messages."""
        return self.origin if self.lines is None else f"{self.origin}:1"

    def where(self, row: int) -> str:
        """The place of a row, for messages: file:line."""
        return f"{self.origin}: row {row + 1}" if self.lines is None else f"{self.origin}:{self.lines[row]}"


class DatasetLike(Protocol):
    """The part of `datasets.Dataset` that is read here."""

    column_names: list[str]
    features: Mapping[str, Any]

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...

    def with_format(self) -> "DatasetLike":
        """The same rows as plain Python values."""
        ...


def shown(names: Iterable[str]) -> str:
    """Some names for a message, in quotes; what is not a name but a whole text is cut short."""
    short = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names]
    return ", ".join(short[:10]) + (", ..." if len(short) > 10 else "")


Row = tuple[int, list[str]]  # the line a row starts on, and its fields

GZIP = b"\x1f\x8b"
# A name says the form of a file; these first bytes say that the name is wrong.
NOT_UTF8_TEXT = {
    GZIP: "gzip-compressed; let its name end in .gz",
    b"PAR1": "Parquet; let its name end in .parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet; export it as CSV",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}
MOST_CHARACTERS = 2**24  # of one line or field: more is no text, but a quote that was never closed
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


def read_table(path: Path) -> Table:
    """Read a file by the form its name ends in.

    Raises:
        DataError: the file is missing, of an unknown form, damaged or empty.
    """
    data = _read_bytes(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(f"{path}: the name does not tell what is in the file; let it end in {known}, or that and .gz")
    return _with_rows(FORMATS[suffix](data, path))


def read_tsv(path: Path, header: tuple[str, ...] = (), *, ragged: bool = False) -> Table:
    """Read a TSV file with quoting off: a quote is a letter like any other.

    Args:
        path: the file, plain or .gz.
        header: the names of the columns of a file that has no header line.
        ragged: fill a row that has too few fields with None instead of refusing it.
    """
    return _with_rows(_parse_tsv(_read_bytes(path), path, header, ragged=ragged))


def table_of_dataset(dataset: DatasetLike, origin: str) -> Table:
    """The columns of a `datasets.Dataset`; class ids become class names, −1 (no label) becomes None."""
    if not hasattr(dataset, "__len__"):
        raise DataError(f"{origin}: is a stream of unknown length; load it without streaming=True")
    if not len(dataset):
        raise DataError(f"{origin}: has no row; check the filter or the split it came from")
    plain = dataset.with_format()
    columns: dict[str, Sequence[object]] = {name: list(plain[name]) for name in plain.column_names}
    class_names = {
        name: tuple(feature.names) for name, feature in dataset.features.items() if hasattr(feature, "names")
    }
    for name, names in class_names.items():
        columns[name] = [names[id_] if isinstance(id_, int) and id_ >= 0 else None for id_ in columns[name]]
    return Table(origin, columns, class_names=class_names)


def _with_rows(table: Table) -> Table:
    if not table.columns:
        raise DataError(f"{table.top}: no column has a name; name them, for example text and label")
    if not len(table):
        raise DataError(f"{table.top}: no row under the columns {shown(table.columns)}; add labelled rows")
    return table


def _read_bytes(path: Path) -> bytes:
    with reading(path):
        data = path.read_bytes()
        if path.suffix.lower() != ".gz":
            return data
        check_gzip(data, path)
        return gzip.decompress(data)


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn what goes wrong while bytes are read from `path`, compressed ones too, into a `DataError`."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {_files_in(Path(path).parent)}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a file; {_files_in(Path(path))}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{path}: the compressed data is cut short or damaged; copy or compress it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None


def check_gzip(start: bytes, path: Path) -> None:
    """Refuse a file named .gz whose first bytes are not those of gzip."""
    if not start.startswith(GZIP):
        raise DataError(f"{path}: is not gzip-compressed; take .gz off its name")


def _files_in(folder: Path) -> str:
    """A remedy for a wrong path: what the folder holds."""
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir())
    return f"the folder {folder} has {shown(names) or 'no file'}"


def _decode(data: bytes, path: Path) -> str:
    check_utf8_text(data, path)
    if (nul := data.find(b"\0")) >= 0:
        raise DataError(
            f"{path}:{_line_of(data, nul)}: holds a NUL byte; the file is binary or damaged, write it again"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{_line_of(data, error.start)}: byte 0x{data[error.start]:02x} is not UTF-8; "
            "save the file as UTF-8 (latin-1 is common: iconv -f latin1 -t utf8)"
        ) from None
    if not text.strip():
        raise DataError(f"{path}: is empty; a header line and labelled rows are needed")
    return text


def check_utf8_text(start: bytes, path: Path | str) -> None:
    """Refuse a file whose first bytes are those of something else."""
    for magic, remedy in NOT_UTF8_TEXT.items():
        if start.startswith(magic):
            raise DataError(f"{path}:1: is {remedy}")


def _line_of(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _parse_csv(data: bytes, path: Path) -> Table:
    rows = _whole_rows(_decode(data, path), path)
    header = checked_header(next(rows), ",", path)
    return _table_of_rows(_full_rows(rows, header, path, ragged=False), header, path)


def _parse_tsv(data: bytes, path: Path, header: tuple[str, ...] = (), *, ragged: bool = False) -> Table:
    # Only \n ends a row (\r\n loses its \r): str.splitlines would also cut at U+2028 and the like.
    lines = enumerate(_decode(data, path).split("\n"), start=1)
    rows = ((number, line.removesuffix("\r").split("\t")) for number, line in lines if line.strip("\r"))
    header = header or checked_header(next(rows), "\t", path)
    return _table_of_rows(_full_rows(rows, header, path, ragged=ragged), header, path)


def _whole_rows(text: str, path: Path) -> Iterator[Row]:
    for line, fields in csv_rows(io.StringIO(text, newline=""), path):
        if isinstance(fields, DataError):
            raise fields
        yield line, fields


def csv_rows(lines: Iterable[str], origin: Path | str) -> Iterator[tuple[int, list[str] | DataError]]:
    """The line that every CSV row starts on and its fields, or what is wrong with it; blank lines are left out."""
    reader = csv.reader(lines, strict=True)
    line = 1  # where the row starts: a quoted field may hold line breaks
    while True:
        try:
            with _long_fields():
                fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = "put a field that holds quotes in quotes and double those inside it"
            yield line, DataError(f"{origin}:{line}: broken row ({error}); {remedy}")
        else:
            if fields:
                yield line, fields
        line = reader.line_num + 1


@contextmanager
def _long_fields() -> Iterator[None]:
    """Raise the limit of the csv module, which is one for the whole process, while a row is read."""
    limit = csv.field_size_limit(MOST_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def checked_header(first: Row, delimiter: str, path: Path | str) -> tuple[str, ...]:
    """The names in a header line, without the spaces around them; empty for a column that has none.

    Raises:
        DataError: another delimiter seems to be used, or a name is there twice.
    """
    line, names = first[0], [name.strip() for name in first[1]]
    found = [other for other in DELIMITERS if len(names) == 1 and other in names[0]]
    if found:
        raise DataError(
            f"{path}:{line}: the header is one column, {shown(names)}: fields seem to be separated by "
            f"{DELIMITERS[found[0]]}, not {DELIMITERS[delimiter]}; .csv has commas, .tsv has tabs, so save it again"
        )
    twice = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if twice:
        raise DataError(f"{path}:{line}: column {shown(twice[:1])} is in the header more than once; rename")
    return tuple(names)


def _full_rows(rows: Iterable[Row], header: tuple[str, ...], path: Path, *, ragged: bool) -> Iterator[Row]:
    for line, fields in rows:
        if not ragged:
            check_width(fields, header, f"{path}:{line}")
        yield line, fields


def check_width(fields: Sequence[str], header: tuple[str, ...], where: str) -> None:
    """Refuse a row that has more or fewer fields than the header."""
    if len(fields) != len(header):
        raise DataError(
            f"{where}: {len(fields)} fields where the header has {len(header)} ({shown(header)}); "
            "mend the row: a delimiter or line break stands inside a field, or its end is missing"
        )


def _table_of_rows(rows: Iterable[Row], header: tuple[str, ...], path: Path) -> Table:
    lines: list[int] = []
    cells: list[list[str | None]] = [[] for _ in header]
    for line, fields in rows:
        lines.append(line)
        for position, column in enumerate(cells):
            column.append(fields[position] if position < len(fields) else None)
    # A column without a name (the row number that pandas writes) cannot be asked for.
    return Table(str(path), {name: column for name, column in zip(header, cells, strict=True) if name}, lines)


def _parse_jsonl(data: bytes, path: Path) -> Table:
    lines = [(number, line) for number, line in enumerate(_decode(data, path).split("\n"), start=1) if line.strip()]
    rows = [json_object(line, f"{path}:{number}") for number, line in lines]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Table(str(path), columns, [number for number, _ in lines])


def json_object(line: str, where: str) -> dict[str, object]:
    """The row in a line of JSONL.

    Raises:
        DataError: it is not JSON, not an object, or has a key twice.
    """

    def without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
        row = dict(pairs)
        if len(row) != len(pairs):
            raise ValueError("a key is there twice")
        return row

    try:
        row = json.loads(line, object_pairs_hook=without_twins)
    except (ValueError, RecursionError) as error:
        # The decoder counts lines within the line; the column is enough.
        reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"{where}: broken JSON ({reason}); each line must be one JSON object") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: holds a value of type {type(row).__name__}; each line must be one JSON object")
    return row


def _parse_parquet(data: bytes, path: Path) -> Table:
    require_extra("data", "reading Parquet")
    import pyarrow
    import pyarrow.parquet

    try:
        arrow = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
        names = list(arrow.column_names)
        columns = {name: arrow.column(name).to_pylist() for name in dict.fromkeys(names)}
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: is not a readable Parquet file ({one_line(error)}); write it again") from None
    return Table(str(path), columns)


FORMATS: Mapping[str, Callable[[bytes, Path], Table]] = {
    ".csv": _parse_csv,
    ".tsv": _parse_tsv,
    ".jsonl": _parse_jsonl,
    ".ndjson": _parse_jsonl,
    ".parquet": _parse_parquet,
}

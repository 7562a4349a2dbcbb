"""Labels for the rows of a file: every row keeps its format and order and gains the columns that a model adds.

Rows stream through in chunks, so memory does not grow with the file. `data.readers` reads them, `writers` writes them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from bibert.data.lines import Decoding, open_input
from bibert.data.readers import FORMATS, Columns, Delimited, Parquet, Reader, Row, find_text_columns
from bibert.errors import DataError, did_you_mean
from bibert.runtime.classifier import WINDOW
from bibert.runtime.text import Text
from bibert.runtime.writers import LINES, Labeller, json_line, line_writer, parquet_writer


@dataclass(frozen=True)
class Source:
    """A file of texts and how to read it."""

    path: Path | None  # None is standard input
    file_format: str  # one of `FORMATS`
    columns: Columns = field(default_factory=Columns)  # where the texts are
    decoding: Decoding = field(default_factory=Decoding)

    def __post_init__(self) -> None:
        if self.file_format not in FORMATS:
            raise DataError(f"there is no format {self.file_format!r}; {did_you_mean(self.file_format, FORMATS)}")


@dataclass
class Progress:
    """How far the labelling of a file has come."""

    rows: int = 0  # labelled
    skipped: int = 0  # broken
    first_skipped: str = ""  # what is wrong with the first of them
    share: float | None = None  # of the file, from 0 to 1; None where it is unknown
    pairs: bool = False  # whether rows are pairs


def label_table(
    source: Source,
    file: BinaryIO,
    labeller: Labeller,
    *,
    as_json: bool = False,
    rows_per_chunk: int = WINDOW,  # a classifier sorts as many by length; more rows gain nothing
    watch: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Write every row of `source` with its labels to `file`, a chunk at a time, and call `watch` after each chunk.

    With `as_json` plain lines are written as JSON objects.
    """
    progress = Progress()
    with open_input(source.path) as opened:
        reader = FORMATS[source.file_format](opened, source.decoding)
        table = TextRows(reader, source.columns, labeller.columns)
        if isinstance(reader, Parquet):
            writer = parquet_writer(file, reader.schema, labeller.columns)
        else:
            line = json_line if as_json and source.file_format == "txt" else LINES[source.file_format]
            header = reader.names if isinstance(reader, Delimited) else ()
            writer = line_writer(file, line, labeller.columns, header)
        with writer as write:
            for rows, texts in table.chunks(rows_per_chunk, progress):
                if rows:
                    places = [reader.where(row.number) for row in rows]
                    write([row.raw for row in rows], labeller(texts, places.__getitem__))
                    file.flush()
                watch(progress)
    return progress


class TextRows:
    """Reads rows with their texts; the names of columns are in the header, or in the first row (JSONL)."""

    def __init__(self, reader: Reader, wanted: Columns, new: Iterable[str]) -> None:
        self._reader, self._wanted, self._new = reader, wanted, set(new)
        self._names: list[str] = []
        if reader.names:
            self._find(reader.names, reader.header_place)

    def chunks(self, most_rows: int, progress: Progress) -> Iterator[tuple[list[Row], list[Text]]]:
        """Yield rows and their texts; count them, and those that are skipped, in `progress`."""
        for chunk in self._reader.chunks(most_rows, self._names):
            rows: list[Row] = []
            texts: list[Text] = []
            for row in chunk:
                try:
                    if isinstance(row, DataError):
                        raise row
                    texts.append(self._text(row))
                    rows.append(row)
                except DataError as error:
                    if self._reader.decoding.on_error != "skip":
                        raise
                    progress.skipped += 1
                    progress.first_skipped = progress.first_skipped or str(error)
            progress.rows += len(rows)
            progress.share = self._reader.share
            progress.pairs = len(self._names) == 2
            yield rows, texts

    def _find(self, names: Collection[str], where: str) -> None:
        if taken := self._new.intersection(names):
            raise DataError(f"{where}: has a column {min(taken)!r} already; give the new columns a prefix")
        self._names = self._names or find_text_columns(names, self._wanted, self._reader.header_place).names

    def _text(self, row: Row) -> Text:
        """The text or the pair in a row; a text may be empty, but not missing."""
        where, texts = self._reader.where(row.number), []
        if not self._reader.names:
            self._find(row.cells, where)
        for name in self._names:
            cell = row.cells.get(name)
            if cell is None:
                raise DataError(f"{where}: no text in column {name!r}; fill it in, or skip such rows")
            if not isinstance(cell, str):
                kind = type(cell).__name__
                raise DataError(f"{where}: column {name!r} holds a value of type {kind}, not a text; name another one")
            texts.append(cell)
        return texts[0] if len(texts) == 1 else (texts[0], texts[1])

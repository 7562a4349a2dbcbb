"""Labels for the rows of a file: every row keeps its order and gains the columns that a model adds.

Rows stream through in chunks, so memory does not grow with the file. `data.readers` reads them, `writers` writes them,
`journal` keeps the labels of a long job.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from bibert.data.columns import Columns, find_text_columns
from bibert.data.lines import Decoding, open_input
from bibert.data.readers import FORMATS, Reader, Row
from bibert.errors import BibertError, DataError, EngineError, NumericError, did_you_mean
from bibert.runtime.classifier import WINDOW
from bibert.runtime.text import SURROGATE, Text
from bibert.runtime.writers import FIXED_COLUMNS, Labeller, Value, row_writer

if TYPE_CHECKING:
    from bibert.runtime.journal import Journal


@dataclass(frozen=True)
class Source:
    """A file of texts and how to read it."""

    path: Path | None  # None is standard input
    file_format: str  # one of `FORMATS`
    columns: Columns = field(default_factory=Columns)  # where the texts are
    decoding: Decoding = field(default_factory=Decoding)
    rows_per_chunk: int = WINDOW  # a classifier sorts as many by length; more rows gain nothing

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

    def skip(self, problem: str) -> None:
        """Count a broken row."""
        self.skipped += 1
        self.first_skipped = self.first_skipped or problem


class Block(NamedTuple):
    """The labels of some rows that were read together."""

    rows: int
    values: Sequence[Sequence[Value]]  # of the new columns, for the rows that are not broken
    broken: Sequence[tuple[int, str]]  # the places of rows that the model cannot read, and why
    counts: dict[str, int]  # `Labeller.counts` after these rows


def label_table(
    source: Source,
    file: BinaryIO,
    labeller: Labeller,
    *,
    written: str = "",
    watch: Callable[[Progress], None] = lambda _: None,
    journal: "Journal | None" = None,
) -> Progress:
    """Write every row of `source` with its labels to `file`, a chunk at a time, and call `watch` after each chunk.

    `written` is the format of the new file; by default that of the source. Rows that `journal` has are not labelled
    again.
    """
    progress, written = Progress(), written or source.file_format
    with open_input(source.path) as opened:
        reader = FORMATS[source.file_format](opened, source.decoding)
        table = TextRows(reader, source.columns, labeller.columns, fixed=written in FIXED_COLUMNS)
        needed = table.names if source.file_format == written else ()  # of Parquet; rows that stay as they are
        with row_writer(file, written, reader, labeller.columns) as write:
            for rows, texts in table.chunks(source.rows_per_chunk, progress, needed):
                block = journal.next_block(len(rows)) if journal else None
                if block is None:
                    block = _label(rows, texts, reader, labeller)
                    if journal:
                        journal.add(block)
                labeller.counts = block.counts
                for _, problem in block.broken:
                    if source.decoding.on_error != "skip":  # found by an earlier process, which skipped
                        raise EngineError(problem)
                    progress.skip(problem)
                if block.broken:
                    kept = set(range(len(rows))).difference(place for place, _ in block.broken)
                    rows, texts = [rows[place] for place in sorted(kept)], [texts[place] for place in sorted(kept)]
                progress.rows += len(rows)
                if rows:
                    write(rows, texts, block.values)
                    file.flush()
                watch(progress)
    return progress


def _label(rows: Sequence[Row], texts: Sequence[Text], reader: Reader, labeller: Labeller) -> Block:
    """Ask the model; if it refuses a text and broken rows are skipped, text by text."""
    places = [reader.where(row.number) for row in rows]
    try:
        return Block(len(rows), labeller(texts, places.__getitem__), [], dict(labeller.counts))
    except (EngineError, NumericError):
        if reader.decoding.on_error != "skip":
            raise
    answers, broken = [], []
    for place, text in enumerate(texts):
        try:
            answers.append([column[0] for column in labeller([text], places[place:].__getitem__)])
        except BibertError as error:
            broken.append((place, str(error)))
    values = list(zip(*answers, strict=True)) or [()] * len(labeller.columns)
    return Block(len(rows), values, broken, dict(labeller.counts))


class TextRows:
    """Reads rows with their texts; the names of columns are in the header, or in the first row (JSONL).

    With `fixed`, the rows of JSONL must have no column that the first one has not.
    """

    def __init__(self, reader: Reader, wanted: Columns, new: Iterable[str], *, fixed: bool = False) -> None:
        self._reader, self._wanted, self._new = reader, wanted, set(new)
        self._fixed = fixed and not reader.names
        self._known: frozenset[str] | None = None  # the columns of the first row
        self.names: list[str] = []  # of the columns with texts
        if reader.names:
            self._find(reader.names, reader.header_place)

    def chunks(
        self, most_rows: int, progress: Progress, only: Sequence[str] = ()
    ) -> Iterator[tuple[list[Row], list[Text]]]:
        """Yield rows and their texts; count those that are skipped in `progress`. `only` as for `Reader.chunks`."""
        for chunk in self._reader.chunks(most_rows, only):
            rows: list[Row] = []
            texts: list[Text] = []
            for row in chunk:
                try:
                    if isinstance(row, DataError):
                        raise row
                    row = _whole(row)
                    texts.append(self._text(row))
                    rows.append(row)
                except DataError as error:
                    if self._reader.decoding.on_error != "skip":
                        raise
                    progress.skip(str(error))
            progress.share = self._reader.share
            progress.pairs = len(self.names) == 2
            yield rows, texts

    def _find(self, names: Collection[str], where: str) -> None:
        if taken := self._new.intersection(names):
            remedy = "give the new columns a prefix (--prefix predicted_)"
            raise DataError(f"{where}: has a column {min(taken)!r} already; {remedy}")
        self.names = self.names or find_text_columns(names, self._wanted, self._reader.header_place).names

    def _text(self, row: Row) -> Text:
        """The text or the pair in a row; a text may be empty or null, but its column must not be missing."""
        where, texts = self._reader.where(row.number), []
        if not self._reader.names:
            self._find(row.cells, where)
        for name in self.names:
            if name not in row.cells and not self._reader.names:  # those of Excel may end early
                raise DataError(f"{where}: no text in column {name!r}; fill it in, or skip such rows")
            if (cell := row.cells.get(name)) is None:
                cell = ""
            if not isinstance(cell, str):
                kind = type(cell).__name__
                raise DataError(f"{where}: column {name!r} holds a value of type {kind}, not a text; name another one")
            texts.append(cell)
        if self._fixed:
            self._known = self._known or frozenset(row.cells)
            if new := row.cells.keys() - self._known:
                problem = f"has a column {min(new)!r} that the first row does not have"
                raise DataError(f"{where}: {problem}; write the output as .jsonl")
        return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _whole(row: Row) -> Row:
    """The row with U+FFFD for half a character, which JSON can escape and no other format can hold; `raw` stays."""
    if not isinstance(row.raw, str) or "\\ud" not in row.raw.lower():
        return row
    return row._replace(cells=json.loads(SURROGATE.sub("\ufffd", json.dumps(row.cells, ensure_ascii=False))))

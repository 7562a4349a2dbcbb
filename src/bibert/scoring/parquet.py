"""Parquet tables, read and written a group of rows at a time with their types untouched. Needs the extra `data`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from bibert.data.columns import find_text_columns
from bibert.data.readers import Table as NamedColumns
from bibert.errors import DataError, one_line, require_extra
from bibert.scoring.lines import Input
from bibert.scoring.rows import Chunk, Reading, Text, Value, Write, as_text, check_new_columns, text_of


class ParquetTable:
    """A Parquet file; `Reading.decoding` decides only whether rows without a text are skipped."""

    def __init__(self, source: Input, reading: Reading) -> None:
        require_extra("data", "reading Parquet")
        import pyarrow
        import pyarrow.parquet

        self._arrow = pyarrow
        self._origin = source.origin
        self._skip = reading.decoding.on_error == "skip"
        self._read_rows = 0
        with self._arrow_errors():
            self._file = pyarrow.parquet.ParquetFile(source.stream)
            self._schema = self._file.schema_arrow
        self._check_names()
        found = find_text_columns(NamedColumns(self._origin, dict.fromkeys(self._schema.names, ())), reading.columns)
        self._names = [name for name in (found.text, found.pair) if name]

    @property
    def share(self) -> float | None:
        """How many of the rows have been read, from 0 to 1."""
        rows: int = self._file.metadata.num_rows
        return self._read_rows / max(1, rows)

    def chunks(self, most_rows: int) -> Iterator[Chunk]:
        """The rows, at most so many at a time; one group of rows is in memory."""
        with self._arrow_errors():
            for batch in self._file.iter_batches(batch_size=most_rows):
                chunk = self._chunk(batch)
                self._read_rows += len(batch)
                yield chunk

    @contextmanager
    def writing(self, file: BinaryIO, columns: Mapping[str, type]) -> Iterator[Write]:
        """Write a Parquet file with the same columns and the new ones: strings, and float32 numbers."""
        check_new_columns(columns, self._schema.names, self._origin)
        types = {str: self._arrow.string(), float: self._arrow.float32()}
        schema = self._schema
        for name, kind in columns.items():
            schema = schema.append(self._arrow.field(name, types[kind]))

        def write(chunk: Chunk, values: Sequence[Sequence[Value]]) -> None:
            new = [self._arrow.array(cells, types[kind]) for cells, kind in zip(values, columns.values(), strict=True)]
            writer.write_batch(self._arrow.record_batch([*chunk.rows.columns, *new], schema=schema))

        with self._arrow.parquet.ParquetWriter(file, schema) as writer:
            yield write

    def _chunk(self, batch: Any) -> Chunk:
        columns = [batch.column(self._schema.get_field_index(name)).to_pylist() for name in self._names]
        texts: list[Text] = []
        kept: list[int] = []
        skipped: list[DataError] = []
        for row, cells in enumerate(zip(*columns, strict=True)):
            where = f"{self._origin}: row {self._read_rows + row + 1}"
            try:
                texts.append(as_text([text_of(*cell, where) for cell in zip(cells, self._names, strict=True)]))
                kept.append(row)
            except DataError as error:
                if not self._skip:
                    raise
                skipped.append(error)
        return Chunk(texts, batch.take(self._arrow.array(kept, self._arrow.int64())) if skipped else batch, skipped)

    def _check_names(self) -> None:
        names = self._schema.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{self._origin}: column {twice!r} is there more than once; rename")

    @contextmanager
    def _arrow_errors(self) -> Iterator[None]:
        try:
            yield
        except (self._arrow.ArrowException, OSError) as error:
            raise DataError(
                f"{self._origin}: is not a readable Parquet file ({one_line(error)}); write it again"
            ) from None

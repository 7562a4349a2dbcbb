"""What passes between a table and a model: rows in chunks, the columns a model adds, and what a table must offer.

The forms of a table are in `text_tables` and `parquet`; opening, scoring and writing a file in `tables`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from bibert.data.columns import Columns
from bibert.errors import DataError
from bibert.scoring.lines import Decoding

Text = str | tuple[str, str]  # a text, or a text and its pair
Value = str | float


@dataclass(frozen=True)
class Scorer:
    """A model, as a table sees it.

    Attributes:
        columns: the names of the columns it adds, and whether they hold names (`str`) or numbers (`float`).
        score: texts to the values of each of these columns.
    """

    columns: Mapping[str, type]
    score: Callable[[Sequence[Text]], Sequence[Sequence[Value]]]


@dataclass(frozen=True)
class Chunk:
    """Rows that are scored together.

    Attributes:
        texts: one for each row.
        rows: what the table needs to write the rows again.
        skipped: what was wrong with rows that were left out.
    """

    texts: list[Text]
    rows: Any
    skipped: list[DataError] = field(default_factory=list)


Write = Callable[[Chunk, Sequence[Sequence[Value]]], None]  # a chunk, and the new columns in their order


class Table(Protocol):
    """A file that can be read in chunks, and written again with more columns."""

    @property
    def share(self) -> float | None:
        """How much has been read, from 0 to 1; None where nobody can know."""
        ...

    def chunks(self, most_rows: int) -> Iterator[Chunk]:
        """The rows, at most so many at a time."""
        ...

    def writing(self, file: BinaryIO, columns: Mapping[str, type]) -> AbstractContextManager[Write]:
        """Write what stands above the rows, give a function for the rows, write what stands below them."""
        ...


@dataclass(frozen=True)
class Reading:
    """How a table is read: which columns hold the texts, and what becomes of rows that are broken."""

    columns: Columns = field(default_factory=Columns)
    decoding: Decoding = field(default_factory=Decoding)


def as_text(parts: Sequence[str]) -> Text:
    """One text, or two as a pair."""
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def parts_of(text: Text) -> tuple[str, ...]:
    """The inverse of `as_text`."""
    return (text,) if isinstance(text, str) else text


def text_of(value: object, column: str, where: str) -> str:
    """The text in a cell; a text may be empty, but it must be there.

    Raises:
        DataError: the cell holds nothing, or something else.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise DataError(f"{where}: no text in column {column!r}; fill it in, or skip such rows (--on-error skip)")
    raise DataError(
        f"{where}: column {column!r} holds a value of type {type(value).__name__}, not a text; name another column"
    )


def check_new_columns(new: Iterable[str], old: Iterable[str], where: str) -> None:
    """Refuse to write two columns of one name."""
    taken = set(old).intersection(new)
    if taken:
        raise DataError(
            f"{where}: has a column {min(taken)!r} already; give the new columns a prefix, such as --prefix predicted_"
        )

"""Options for unlabelled texts to look at a model with."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bibert.cli.options import option
from bibert.errors import DataError, one_line

if TYPE_CHECKING:
    from bibert.runtime.text import Row


@dataclass(frozen=True)
class TextOptions:
    """Texts from the command line and from a file."""

    text: Annotated[list[str] | None, option("A text to read; may be repeated.")] = None
    texts: Annotated[Path | None, option("A file with a text in each line; a pair has a tab between its two.")] = None

    def load(self) -> "list[Row]":
        """All of them; none if none were given."""
        lines = [*(self.text or ()), *(() if self.texts is None else _lines(self.texts))]
        return [_pair_or_text(line) for line in lines]


def _pair_or_text(line: str) -> "Row":
    first, tab, second = line.partition("\t")
    return (first.strip(), second.strip()) if tab else line


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({one_line(error)}); give a UTF-8 file") from error
    found = [line for line in lines if line]
    if not found:
        raise DataError(f"{path}: has no text; put one in each line")
    return found

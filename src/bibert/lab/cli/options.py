"""What several commands of the laboratory share: texts, models to look into, runs with a probe, and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bibert.cli.console import say
from bibert.cli.options import option, require_torch
from bibert.data import MAX_LENGTH
from bibert.errors import DataError, one_line, require_extra
from bibert.lab.look import Subject, by_title, load_subject
from bibert.lab.plots.style import check_path, save_figure
from bibert.lab.record import History
from bibert.runtime.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _check_figure(path: Path | None) -> Path | None:
    """Reject a figure that cannot be written before anything is computed for it."""
    if path is not None:
        require_extra("plot", f"drawing {path}")
        check_path(path)
    return path


FigureFile = Annotated[
    Path | None, option("Also draw a figure: .svg, .pdf or .png.", "--output", "-o", callback=_check_figure)
]


def save_drawn(path: Path | None, draw: "Callable[..., Figure]", *tables: Any) -> None:
    """Draw and write a figure, if a file was given."""
    if path is not None:
        say(f"{save_figure(draw(*tables), path)}: written")


@dataclass(frozen=True)
class TextOptions:
    """Texts, and pairs with a tab between their two, from the command line and from a file."""

    text: Annotated[list[str] | None, option("A text to read; may be repeated.")] = None
    texts: Annotated[Path | None, option("A file with a text in each line; a pair has a tab between its two.")] = None

    def load(self) -> list[Text]:
        """All texts; an empty list if none were given."""
        lines = [*(self.text or ()), *(() if self.texts is None else _lines(self.texts))]
        pairs = [(line, *line.partition("\t")) for line in lines]
        return [(first.strip(), second.strip()) if tab else line for line, first, tab, second in pairs]


def _lines(path: Path) -> list[str]:
    try:
        found = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({one_line(error)}); give a UTF-8 file") from error
    if not found:
        raise DataError(f"{path}: has no text; put one in each line")
    return found


@dataclass(frozen=True)
class HeadOptions:
    """One head of a run; all heads if neither option is given."""

    layer: Annotated[int | None, option("Of runs: show one head, in this layer.", min=0)] = None
    head: Annotated[int | None, option("Of runs: show one head, with this number.", min=0)] = None

    @property
    def given(self) -> bool:
        """Whether one head was chosen."""
        if (self.layer is None) != (self.head is None):
            raise DataError("--layer and --head go together; give both for one head, or neither for all")
        return self.layer is not None

    def of(self, histories: dict[str, History]) -> dict[str, History]:
        """The chosen head of each run, named in its title; everything if none is chosen."""
        if not self.given or self.layer is None or self.head is None:
            return histories
        suffix = f", layer {self.layer}, head {self.head}"
        return {f"{title}{suffix}": one.of_head(self.layer, self.head) for title, one in histories.items()}


def load_subjects(paths: Sequence[str | Path], max_length: int = MAX_LENGTH) -> dict[str, Subject]:
    """Packed files, names on the Hub and model folders, by title; folders truncate texts at `max_length` tokens."""
    if any(Path(path).is_dir() for path in paths):
        require_torch("a look into a model folder")
    return by_title([load_subject(path, max_length) for path in paths])

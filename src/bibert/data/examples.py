"""What labelled text is: the two values that every reader returns and every trainer takes.

Readers are in `tables` (a user's own files) and `glue`; turning text into token ids is in `encoding`.
"""

from dataclasses import dataclass
from pathlib import Path

MAX_LENGTH = 128  # tokens of a text, where nothing else is said


@dataclass(frozen=True)
class Split:
    """One file's worth of labelled texts, as columns of equal length."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None  # the second text of each row; None for single texts
    labels: tuple[float, ...]  # class ids (0, 1, …) for classes, scores for regression
    origin: str  # the file or object it came from, for messages

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def texts_or_pairs(self) -> list[str | tuple[str, str]]:
        """The rows one by one: a text, or two."""
        return list(self.texts) if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    @property
    def joined_texts(self) -> list[str]:
        """The same for what knows single texts only: both texts of a pair as one."""
        return [row if isinstance(row, str) else " ".join(row) for row in self.texts_or_pairs]


@dataclass(frozen=True)
class TextData:
    """Everything a training needs to know about the data."""

    name: str
    train: Split
    dev: dict[str, Split]  # "dev" alone, or "dev" and "dev_mismatched" for MNLI; the first one selects
    label_names: tuple[str, ...]  # empty for regression
    metrics: tuple[str, ...]  # rows of metrics.METRICS; the first one selects the best model
    source: Path | str  # the folder, file or Hub name
    columns: tuple[str, ...] = ()  # the columns of a user's file that were read

"""What labelled text is: the two values that every reader returns and every trainer takes.

Readers are in `tables` (a user's own files) and `glue`; turning text into token ids is in `encoding`.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Split:
    """One file's worth of labelled texts, as columns of equal length."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None  # the second text of each row; None for single texts
    labels: tuple[float, ...]  # class ids (0, 1, …) for classes, scores for regression
    origin: str  # the file or object it came from, for messages

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TextData:
    """Everything a training needs to know about the data."""

    name: str
    train: Split
    dev: dict[str, Split]  # "dev" alone, or "dev" and "dev_mismatched" for MNLI; the first one selects
    label_names: tuple[str, ...]  # empty for regression
    metrics: tuple[str, ...]  # rows of training.evaluate.METRICS; the first one selects the best model
    source: Path | str  # the folder, file or Hub name
    columns: tuple[str, ...] = ()  # the columns of a user's file that were read

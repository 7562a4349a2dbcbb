"""Labelled text: the values that every loader returns and every trainer takes, and a short report of them.

Loaders are in `tables` (a user's own files) and `glue`; `encoding` turns text into token ids.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bibert.data.columns import Columns

MOST_CLASSES_SHOWN = 8


@dataclass(frozen=True)
class Split:
    """The labelled texts of one file, as columns of equal length."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None  # the second text of each row; None for single texts
    labels: tuple[float, ...]  # class ids (0, 1, …) for classes, scores for regression
    origin: str  # the file or object it came from, for messages

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def texts_or_pairs(self) -> list[str | tuple[str, str]]:
        """The rows one by one: a text, or a pair."""
        return list(self.texts) if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    @property
    def joined_texts(self) -> list[str]:
        """The rows as single texts: both texts of a pair with a space between them."""
        return [row if isinstance(row, str) else " ".join(row) for row in self.texts_or_pairs]


@dataclass(frozen=True)
class TextData:
    """Everything training needs to know about the data."""

    name: str
    train: Split
    dev: dict[str, Split]  # "dev" alone, or "dev" and "dev_mismatched" for MNLI; the first one selects
    label_names: tuple[str, ...]  # empty for regression
    metrics: tuple[str, ...]  # rows of metrics.METRICS; the first one selects the best model
    source: Path | str  # the folder, file or Hub name
    columns: Columns = field(default_factory=Columns)  # of a user's file that were read
    unlabelled: Split | None = None  # texts that only a teacher labels, none of them in a dev split


def describe(data: TextData) -> list[str]:
    """Report sizes, balance, lengths and repeated rows, to read before hours of training; one line for each split."""
    kind = "single texts" if data.train.pairs is None else "text pairs"
    columns = f", columns {', '.join(data.columns.names)}" if data.columns.names else ""
    in_train = set(data.train.texts_or_pairs)
    report = [f"{data.name}: {kind} from {data.source}{columns}", _describe_split("train", data.train, data)]
    for name, split in data.dev.items():
        leaked = sum(row in in_train for row in split.texts_or_pairs)
        report.append(_describe_split(name, split, data) + (f"; {leaked:,} also in train" if leaked else ""))
    if data.unlabelled is not None:
        report.append(f"texts without labels: {len(data.unlabelled):,} rows; {_describe_lengths(data.unlabelled)}")
    return report


def _describe_split(name: str, split: Split, data: TextData) -> str:
    lengths = _describe_lengths(split)
    repeated = len(split) - len(set(split.texts_or_pairs))  # the same texts, whatever the label
    labels = _describe_labels(split.labels, data.label_names)
    return f"{name}: {len(split):,} rows; {labels}; {lengths}" + (f"; {repeated:,} repeated" if repeated else "")


def _describe_lengths(split: Split) -> str:
    # A tokenizer gives somewhat more tokens than there are words.
    words = [len(text.split()) for text in split.joined_texts]
    return f"words mean {np.mean(words):.1f}, 95 % {int(np.percentile(words, 95))}, max {max(words)}"


def _describe_labels(labels: tuple[float, ...], names: tuple[str, ...]) -> str:
    if not names:
        return f"scores {min(labels):g} to {max(labels):g}, mean {np.mean(labels):.3g}"
    found = Counter(labels)
    counts = [found[id_] for id_ in range(len(names))]
    if len(names) > MOST_CLASSES_SHOWN:
        return f"{len(names)} classes of {min(counts):,} to {max(counts):,} rows"
    return ", ".join(f"{name} {count:,} ({count / len(labels):.1%})" for name, count in zip(names, counts, strict=True))

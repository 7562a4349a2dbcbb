"""A short report of labelled text, to read before hours of training: sizes, balance, lengths, repeated rows.

It only counts; what is plain wrong was refused when the data was read.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from bibert.data.examples import Split, TextData

MOST_CLASSES_SHOWN = 8


@dataclass(frozen=True)
class Scores:
    """The range and mean of regression labels."""

    low: float
    mean: float
    high: float

    def __str__(self) -> str:
        return f"scores {self.low:g} to {self.high:g}, mean {self.mean:.3g}"


@dataclass(frozen=True)
class Words:
    """Whitespace-separated words of a row, both texts of a pair together; a tokenizer gives somewhat more tokens."""

    mean: float
    percentile_95: int
    longest: int

    def __str__(self) -> str:
        return f"words mean {self.mean:.1f}, 95 % {self.percentile_95}, max {self.longest}"


@dataclass(frozen=True)
class SplitReport:
    """One split, counted.

    Attributes:
        name: train, dev, dev_mismatched.
        rows: how many.
        classes: rows of each class, by name; empty for scores.
        scores: None for classes.
        words: lengths.
        duplicates: rows whose texts stand in an earlier row of the same split.
        also_in_train: rows of a dev split whose texts are in train too; 0 for train itself.
    """

    name: str
    rows: int
    classes: dict[str, int]
    scores: Scores | None
    words: Words
    duplicates: int
    also_in_train: int

    def line(self) -> str:
        """The split in one line."""
        labels = str(self.scores) if self.scores else self._balance()
        line = f"{self.name}: {self.rows:,} rows; {labels}; {self.words}"
        repeated = f"; {self.duplicates:,} repeated" if self.duplicates else ""
        leaked = f"; {self.also_in_train:,} also in train" if self.also_in_train else ""
        return line + repeated + leaked

    def _balance(self) -> str:
        if len(self.classes) > MOST_CLASSES_SHOWN:
            counts = self.classes.values()
            return f"{len(counts)} classes of {min(counts):,} to {max(counts):,} rows"
        return ", ".join(f"{name} {count:,} ({count / self.rows:.1%})" for name, count in self.classes.items())


@dataclass(frozen=True)
class DataReport:
    """All splits of the data, counted; train first."""

    name: str
    source: str
    pairs: bool
    columns: tuple[str, ...]
    splits: tuple[SplitReport, ...]

    def lines(self) -> list[str]:
        """The report, ready to print."""
        kind = "text pairs" if self.pairs else "single texts"
        columns = f", columns {', '.join(self.columns)}" if self.columns else ""
        return [f"{self.name}: {kind} from {self.source}{columns}", *(split.line() for split in self.splits)]


def describe(data: TextData) -> DataReport:
    """Count what is in the data."""
    in_train = set(_keys(data.train))
    train = _describe_split("train", data.train, data.label_names, also_in_train=0)
    dev = [
        _describe_split(name, split, data.label_names, also_in_train=sum(key in in_train for key in _keys(split)))
        for name, split in data.dev.items()
    ]
    return DataReport(data.name, str(data.source), data.train.pairs is not None, data.columns, (train, *dev))


def _describe_split(name: str, split: Split, label_names: tuple[str, ...], also_in_train: int) -> SplitReport:
    counts = Counter(split.labels)
    return SplitReport(
        name=name,
        rows=len(split),
        classes={label_name: counts[id_] for id_, label_name in enumerate(label_names)},
        scores=None if label_names else _scores(split.labels),
        words=_words(split),
        duplicates=len(split) - len(set(_keys(split))),
        also_in_train=also_in_train,
    )


def _keys(split: Split) -> list[tuple[str, str]]:
    """What makes two rows the same: their texts, whatever the label."""
    pairs = split.pairs if split.pairs is not None else ("",) * len(split)
    return list(zip(split.texts, pairs, strict=True))


def _scores(labels: tuple[float, ...]) -> Scores:
    return Scores(low=min(labels), mean=float(np.mean(labels)), high=max(labels))


def _words(split: Split) -> Words:
    counts = [len(text.split()) + len(pair.split()) for text, pair in _keys(split)]
    return Words(mean=float(np.mean(counts)), percentile_95=int(np.percentile(counts, 95)), longest=int(np.max(counts)))

"""A user's own labelled text, from files or `datasets` objects, as `TextData`.

Reading files is in `readers`, finding columns and understanding labels in `columns`; here train and dev come
together, and a dev split is made where none is given.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bibert.data.columns import Columns, class_ids, classes_of, find_columns, scores_of, texts_of
from bibert.data.examples import Split, TextData
from bibert.data.readers import DatasetLike, Table, read_table, shown, table_of_dataset
from bibert.errors import DataError

Source = str | Path | DatasetLike | Mapping[str, DatasetLike]

BY_NAME = Columns()
DEV_NAMES = ("validation", "dev", "valid", "val", "eval")  # what a DatasetDict may call it; a test split is not for us
CLASS_METRICS = ("accuracy", "macro_f1")  # no class of a user's is known to be the one that is looked for
SCORE_METRICS = ("spearman", "pearson")


def load_table(
    train: Source,
    dev: Source | None = None,
    columns: Columns = BY_NAME,
    regression: bool | None = None,
    dev_share: float = 0.1,
    seed: int = 0,
) -> TextData:
    """Read labelled text: CSV, TSV, JSONL, Parquet (plain or .gz), or a `datasets.Dataset` or `DatasetDict`.

    Args:
        train: the training rows. Of a `DatasetDict`, the split `train`, and its validation split as dev.
        dev: the rows to select the best model on; without it, a share of the training rows is set aside.
        columns: which columns to read; those not given are found by name.
        regression: whether labels are scores; None to infer it from the labels.
        dev_share: the share of each class to set aside where there is no dev.
        seed: of that choice.

    Raises:
        DataError: something is missing or malformed; the message says where and how to mend it.

    Example:
        >>> data = load_table("reviews.csv", columns=Columns(text="body", label="stars"))  # doctest: +SKIP
    """
    train_table, dev_table = _tables(train, dev)
    found = find_columns(train_table, columns)
    label_names = classes_of(train_table, found.label, regression=regression)
    whole = _split_of(train_table, found, label_names)
    if not label_names:
        _check_scores(whole)
    if dev_table is not None:
        parts = whole, _split_of(dev_table, find_columns(dev_table, found), label_names)
    else:
        parts = split_off_dev(whole, dev_share, seed, stratify=bool(label_names))
    return TextData(
        name=Path(train_table.origin).name,
        train=parts[0],
        dev={"dev": parts[1]},
        label_names=label_names,
        metrics=metrics_for(label_names),
        source=train_table.origin,
        columns=tuple(name for name in (found.text, found.pair, found.label) if name),
    )


def load_split(source: Source, columns: Columns, label_names: tuple[str, ...]) -> Split:
    """Read rows to score a trained model on: `label_names` are the model's, empty for scores.

    Raises:
        DataError: something is missing or malformed, or a row has a label that the model does not know.
    """
    table = _table(source, "dataset")
    return _split_of(table, find_columns(table, columns), label_names)


def split_off_dev(split: Split, dev_share: float, seed: int, *, stratify: bool) -> tuple[Split, Split]:
    """Part a split in train and dev rows, in their old order; the same seed gives the same parts.

    Args:
        split: the rows to part.
        dev_share: the share of dev rows, between 0 and 1.
        seed: of the choice.
        stratify: take the share of each label, and at least one row of a label that has two or more.
    """
    if not 0.0 < dev_share < 1.0:
        raise DataError(f"dev_share is {dev_share}, must lie between 0 and 1; 0.1 sets aside a tenth")
    generator = np.random.default_rng(seed)
    groups: dict[float, list[int]] = defaultdict(list)
    for row, label in enumerate(split.labels):
        groups[label if stratify else 0].append(row)
    dev: set[int] = set()
    for label in sorted(groups):
        rows = generator.permutation(groups[label]).tolist()
        dev.update(rows[: min(max(1, round(len(rows) * dev_share)), len(rows) - 1)])
    if not dev:
        raise DataError(f"{split.origin}: {len(split)} rows are too few to set some aside; add rows or give a dev file")
    train = [row for row in range(len(split)) if row not in dev]
    return _take(split, train, "train part"), _take(split, sorted(dev), "dev part")


def _take(split: Split, rows: Iterable[int], part: str) -> Split:
    rows = list(rows)
    return replace(
        split,
        texts=tuple(split.texts[row] for row in rows),
        pairs=None if split.pairs is None else tuple(split.pairs[row] for row in rows),
        labels=tuple(split.labels[row] for row in rows),
        origin=f"{split.origin} ({part})",
    )


def _tables(train: Source, dev: Source | None) -> tuple[Table, Table | None]:
    """The train and dev tables; a `DatasetDict` may hold both."""
    if not isinstance(train, Mapping):
        return _table(train, "dataset"), None if dev is None else _table(dev, "dev dataset")
    if "train" not in train:
        raise DataError(f"dataset: no split 'train' (found {shown(train)}); pass the split itself")
    inner = next((name for name in DEV_NAMES if name in train), None)
    if dev is None and inner is not None:
        return _table(train["train"], "dataset['train']"), _table(train[inner], f"dataset[{inner!r}]")
    return _table(train["train"], "dataset['train']"), None if dev is None else _table(dev, "dev dataset")


def _table(source: Source, origin: str) -> Table:
    if isinstance(source, str | Path):
        return read_table(Path(source))
    if isinstance(source, Mapping):
        raise DataError(f"{origin}: holds the splits {shown(source)}; pass one of them")
    if not hasattr(source, "column_names"):
        raise DataError(f"{origin}: is a {type(source).__name__}; pass a path or a datasets.Dataset")
    return table_of_dataset(source, origin)


def _split_of(table: Table, columns: Columns, label_names: tuple[str, ...]) -> Split:
    return Split(
        texts=texts_of(table, columns.text),
        pairs=texts_of(table, columns.pair) if columns.pair else None,
        labels=class_ids(table, columns.label, label_names) if label_names else scores_of(table, columns.label),
        origin=table.origin,
    )


def _check_scores(split: Split) -> None:
    if len(set(split.labels)) == 1:
        raise DataError(f"{split.origin}: all {len(split)} scores are {split.labels[0]:g}; there is nothing to learn")


def metrics_for(label_names: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics of a user's own data, the one that selects first."""
    return CLASS_METRICS if label_names else SCORE_METRICS

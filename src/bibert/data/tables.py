"""A user's own labelled text, from files or `datasets` objects, as `TextData`.

Here rows are collected into columns, labels become class ids or scores, and a dev split is made where none is given.
Reading files and finding columns is in `readers`.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bibert.data.columns import Columns, find_columns, find_text_columns
from bibert.data.examples import Split, TextData
from bibert.data.lines import Decoding, open_input, shown
from bibert.data.readers import FORMATS, Reader, Tsv, format_of
from bibert.errors import DataError
from bibert.packed.header import NOT_IN_LABELS

if TYPE_CHECKING:
    from datasets import Dataset

BY_NAME = Columns()
DEV_NAMES = ("validation", "dev", "valid", "val", "eval")  # in a DatasetDict; a test split never selects a model
CLASS_METRICS = ("accuracy", "macro_f1")  # in a user's data no class is known to be the positive one
SCORE_METRICS = ("spearman", "pearson")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
HALF_SURROGATE = re.compile("[\ud800-\udfff]")
NOT_FINITE = frozenset({"nan", "inf", "infinity"})
MIN_ROWS_PER_CLASS = 2
ROWS_PER_CHUNK = 256  # few enough to stay in the cache of the CPU

TableSource: TypeAlias = "str | Path | Table | Dataset | Mapping[str, Dataset]"


@dataclass(frozen=True)
class Table:
    """Named columns of equal length."""

    origin: str  # the file or object, for messages
    columns: Mapping[str, Sequence[object]]
    lines: Sequence[int] | None = None  # the line of each row; None where there are no lines (Parquet, datasets)
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of columns that declare their classes

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    @property
    def header_place(self) -> str:
        """The place of the header, for messages."""
        return self.origin if self.lines is None else f"{self.origin}:1"

    def where(self, row: int) -> str:
        """The place of a row, for messages: file:line."""
        return f"{self.origin}: row {row + 1}" if self.lines is None else f"{self.origin}:{self.lines[row]}"

    def take(self, rows: Sequence[int]) -> "Table":
        """Return the table with only these rows."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return replace(self, columns=columns, lines=self.lines and [self.lines[row] for row in rows])


def read_table(path: Path, delimiter: str = "") -> Table:
    """Read a file in the format of its suffix; `delimiter` as for `Decoding`."""
    with open_input(path) as source:
        return _collect(FORMATS[format_of(path)](source, Decoding(delimiter=delimiter)))


def read_tsv(path: Path, header: tuple[str, ...] = (), *, ragged: bool = False) -> Table:
    """Read a TSV file whatever its suffix; for `header` and `ragged` see `Delimited`."""
    with open_input(path) as source:
        return _collect(Tsv(source, Decoding(), header, ragged))


def _collect(reader: Reader) -> Table:
    columns: dict[str, list[object]] = {name: [] for name in reader.names if name}
    numbers: list[int] = []
    for chunk in reader.chunks(ROWS_PER_CHUNK):
        for row in chunk:
            if isinstance(row, DataError):
                raise row
            if not columns.keys() >= row.cells.keys():  # in JSONL a column may start late
                columns |= {name: [None] * len(numbers) for name in row.cells if name not in columns}
            for name, column in columns.items():
                column.append(row.cells.get(name))
            numbers.append(row.number)
    if not columns and not numbers:
        raise DataError(f"{reader.source.origin}: is empty; write labelled rows")
    if not columns:
        raise DataError(f"{reader.header_place}: no column has a name; name them, for example text and label")
    if not numbers:
        raise DataError(f"{reader.header_place}: no row under the columns {shown(columns)}; add labelled rows")
    return Table(reader.source.origin, columns, numbers if reader.has_lines else None)


def table_of_dataset(dataset: "Dataset", origin: str) -> Table:
    """Return the columns of a `datasets.Dataset`; class ids become class names, −1 (no label) becomes None."""
    if not hasattr(dataset, "__len__"):
        raise DataError(f"{origin}: is a stream of unknown length; load it without streaming=True")
    if not len(dataset):
        raise DataError(f"{origin}: has no row; check the filter or the split it came from")
    plain = dataset.with_format()
    columns: dict[str, Sequence[object]] = {name: list(plain[name]) for name in plain.column_names}
    class_names = {name: tuple(kind.names) for name, kind in dataset.features.items() if hasattr(kind, "names")}
    for name, names in class_names.items():
        columns[name] = [names[id_] if isinstance(id_, int) and id_ >= 0 else None for id_ in columns[name]]
    return Table(origin, columns, class_names=class_names)


def table_of_rows(texts: Iterable[object], labels: Iterable[object], classes: Sequence[str] = ()) -> Table:
    """Return texts, or pairs of texts, and their labels as a table.

    `classes` are the labels in the order of their ids; by default they are found and sorted.
    """
    rows, cells = np.asarray(list(texts), dtype=object), np.asarray(list(labels)).tolist()
    if len(rows) != len(cells):
        raise DataError(f"{len(rows)} texts and {len(cells)} labels; give a label for each text")
    if rows.ndim != 1 and rows.shape[1:] != (2,):
        raise DataError(f"texts have the shape {rows.shape}, must be (rows,), or (rows, 2) for pairs")
    columns = {"text": rows.tolist()} if rows.ndim == 1 else {"text1": [*rows[:, 0]], "text2": [*rows[:, 1]]}
    return Table("texts", {**columns, "label": cells}, class_names={"label": tuple(classes)} if classes else {})


def load_table(
    train: TableSource,
    dev: "TableSource | None" = None,
    columns: Columns = BY_NAME,
    regression: bool | None = None,
    dev_share: float = 0.1,
    seed: int = 0,
) -> TextData:
    """Read labelled text: CSV, TSV, JSONL, Parquet (plain or .gz), Excel, or a `datasets.Dataset` or `DatasetDict`.

    Of a `DatasetDict`, `train` reads the split of that name, and its validation split as dev. `dev` has the rows that
    select the best model; without it `dev_share` of each class is set aside, chosen by `seed`. Columns without a name
    are found by name. `regression` says whether labels are scores; None infers it. Raises `DataError` with the place
    and the remedy if something is missing or malformed.

    Examples:
        >>> data = load_table("reviews.csv", columns=Columns(text="body", label="stars"))  # doctest: +SKIP
    """
    train_table, dev_table = _tables(train, dev, columns.delimiter)
    found = find_columns(train_table.columns, columns, train_table.header_place)
    label_names = classes_of(train_table, found.label, regression=regression)
    whole = split_of(train_table, found, label_names)
    if not label_names and len(set(whole.labels)) == 1:
        raise DataError(f"{whole.origin}: all {len(whole)} scores are {whole.labels[0]:g}; there is nothing to learn")
    if dev_table is not None:
        dev_columns = find_columns(dev_table.columns, found, dev_table.header_place)
        train_rows, dev_rows = whole, split_of(dev_table, dev_columns, label_names)
    else:
        train_rows, dev_rows = split_off_dev(whole, dev_share, seed, stratify=bool(label_names))
    name, metrics = Path(train_table.origin).name, metrics_for(label_names)
    return TextData(name, train_rows, {"dev": dev_rows}, label_names, metrics, train_table.origin, found)


def load_split(source: TableSource, columns: Columns, label_names: tuple[str, ...]) -> Split:
    """Read rows to evaluate a trained model on: `label_names` are the model's, empty for scores."""
    table = _table(source, "dataset", columns.delimiter)
    return split_of(table, find_columns(table.columns, columns, table.header_place), label_names)


def load_texts(source: TableSource, columns: Columns) -> Split:
    """Read rows whose labels, if they have any, do not matter; those of the split are 0."""
    table = _table(source, "dataset", columns.delimiter)
    return split_of(table, find_text_columns(table.columns, columns, table.header_place), ())


def load_unlabelled(paths: Sequence[Path], columns: Columns = BY_NAME, *, pairs: bool = False) -> Split:
    """Read texts, or pairs of texts, from several files, plain text with one text a line too; each is kept once.

    Blank rows are left out. Labels, if there are any, are not read.
    """
    rows: dict[tuple[str, ...], None] = {}
    for path in paths:
        table = read_table(path, columns.delimiter)
        wanted = BY_NAME if format_of(path) == "txt" else columns  # lines have no other columns
        found = find_text_columns(table.columns, wanted, table.header_place)
        names = (found.text, found.pair) if pairs else (found.text,)
        if not all(names):
            raise DataError(f"{table.header_place}: the task has pairs, this file one text a row; name two columns")
        cells = [(row, cell) for name in names for row, cell in enumerate(table.columns[name])]
        blank = {row for row, cell in cells if cell is None or not str(cell).strip()}
        written = table.take([row for row in range(len(table)) if row not in blank])
        rows |= dict.fromkeys(zip(*(texts_of(written, name) for name in names), strict=True))
    parts = list(zip(*rows, strict=True)) or [(), ()]
    return Split(parts[0], parts[1] if pairs else None, (0,) * len(rows), ", ".join(path.name for path in paths))


def with_unlabelled(
    data: TextData, paths: Sequence[Path], columns: Columns = BY_NAME, tested: Sequence[Split] = ()
) -> tuple[TextData, int]:
    """Add unlabelled texts to the data, without those of its dev and of `tested`, and count these."""
    texts = load_unlabelled(paths, columns, pairs=data.train.pairs is not None)
    measured = (*data.dev.values(), *tested)
    held_out = {row for split in measured for row in map(_as_compared, split.texts_or_pairs)}
    kept = [row for row, text in enumerate(texts.texts_or_pairs) if _as_compared(text) not in held_out]
    if not kept:
        raise DataError(f"{texts.origin}: has no text, or only dev and test rows; add texts")
    unlabelled = replace(_take(texts, kept, "texts"), origin=texts.origin)
    return replace(data, unlabelled=unlabelled), len(texts) - len(kept)


def _as_compared(row: str | tuple[str, str]) -> str:
    """A text without what copies often differ in: case, spaces and punctuation, also inside of words (does n't)."""
    texts = (row,) if isinstance(row, str) else row
    return "\t".join(re.sub(r"[\W_]+", "", text).casefold() or text for text in texts)


def metrics_for(label_names: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics of a user's own data; the first one selects the best model."""
    return CLASS_METRICS if label_names else SCORE_METRICS


def split_off_dev(split: Split, dev_share: float, seed: int, *, stratify: bool) -> tuple[Split, Split]:
    """Divide a split into train and dev rows, in their old order; the same seed gives the same parts.

    With `stratify` the share is taken of each label, and at least one row of a label that has two or more.
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


def _take(split: Split, rows: Sequence[int], part: str) -> Split:
    texts, labels = tuple(split.texts[row] for row in rows), tuple(split.labels[row] for row in rows)
    pairs = None if split.pairs is None else tuple(split.pairs[row] for row in rows)
    return Split(texts, pairs, labels, f"{split.origin} ({part})")


def _tables(train: TableSource, dev: "TableSource | None", delimiter: str) -> tuple[Table, Table | None]:
    """Return the train and dev tables; a `DatasetDict` may hold both."""
    origin, dev_origin = "dataset", "dev dataset"
    if isinstance(train, Mapping):
        if "train" not in train:
            raise DataError(f"dataset: no split 'train' (found {shown(train)}); pass the split itself")
        inner = next((name for name in DEV_NAMES if name in train), None)
        if dev is None and inner is not None:
            dev, dev_origin = train[inner], f"dataset[{inner!r}]"
        train, origin = train["train"], "dataset['train']"
    return _table(train, origin, delimiter), None if dev is None else _table(dev, dev_origin, delimiter)


def _table(source: TableSource, origin: str, delimiter: str) -> Table:
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        return read_table(Path(source), delimiter)
    if isinstance(source, Mapping):
        raise DataError(f"{origin}: holds the splits {shown(source)}; pass one of them")
    if not hasattr(source, "column_names"):
        raise DataError(f"{origin}: is a {type(source).__name__}; pass a path or a datasets.Dataset")
    return table_of_dataset(source, origin)


def split_of(table: Table, columns: Columns, classes: tuple[str, ...]) -> Split:
    """Return texts and labels, 0 if there is no label column; `classes` are labels by class id, empty for scores."""
    texts = texts_of(table, columns.text)
    pairs = texts_of(table, columns.pair) if columns.pair else None
    if not columns.label:
        return Split(texts, pairs, (0,) * len(texts), table.origin)
    labels = _written_labels(table, columns.label)
    ids = {name: id_ for id_, name in enumerate(classes)}
    for row, label in enumerate(labels):
        if classes and label not in ids:
            remedy = f"write it as one of the {len(classes)} classes, {shown(classes)}, or train on rows that have it"
            raise DataError(f"{table.where(row)}: unknown label {shown([label])}; {remedy}")
        if not classes and not (NUMBER.fullmatch(label) and math.isfinite(float(label))):
            problem = f"score {shown([label])} in column {columns.label!r} is not a finite number"
            raise DataError(f"{table.where(row)}: {problem}; write it like 3.5, or leave regression off for classes")
    return Split(texts, pairs, tuple(ids[label] if classes else float(label) for label in labels), table.origin)


def texts_of(table: Table, column: str) -> tuple[str, ...]:
    """Return the texts of a column; none may be missing, blank, not a string, or not valid Unicode."""
    for row, cell in enumerate(table.columns[column]):
        problem = ""
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            problem = f"empty text in column {column!r}; fill it in or remove the row"
        elif not isinstance(cell, str):
            kind = type(cell).__name__
            problem = f"column {column!r} holds a value of type {kind}, not a text; name another one or write strings"
        elif not cell.isascii() and HALF_SURROGATE.search(cell):
            problem = f"column {column!r} holds half a surrogate pair; write the text again"
        if problem:
            raise DataError(f"{table.where(row)}: {problem}")
    return tuple(map(str, table.columns[column]))


def written_label(cell: object) -> str:
    """A label as it is compared and shown: trimmed, whole numbers without `.0`; empty if there is none."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    text = str(cell).lower() if isinstance(cell, bool) else str(cell).strip()
    whole = NUMBER.fullmatch(text) and "." in text and float(text).is_integer()
    return text.split(".")[0] if whole and "e" not in text.lower() else text


def _written_labels(table: Table, column: str) -> list[str]:
    labels = [written_label(cell) for cell in table.columns[column]]
    for row, (cell, label) in enumerate(zip(table.columns[column], labels, strict=True)):
        problem = ""
        if not label or label.lower().lstrip("+-") in NOT_FINITE:
            problem = f"no usable label in column {column!r} (found {cell!r}); label the row or remove it"
        elif not isinstance(cell, str | int | float):
            kind = type(cell).__name__
            problem = f"the label in column {column!r} is of type {kind}; write one name or number a row"
        elif NOT_IN_LABELS.search(label):
            problem = f"the label {label!r} in column {column!r} has control characters; write a name"
        if problem:
            raise DataError(f"{table.where(row)}: {problem}")
    return labels


def classes_of(table: Table, column: str, *, regression: bool | None = None) -> tuple[str, ...]:
    """Return the names of the classes in a column, in order; empty for scores.

    `regression` says whether labels are scores; None infers it: a number with a fraction makes all labels scores.
    """
    labels = _written_labels(table, column)
    declared = tuple(map(written_label, table.class_names.get(column, ())))
    fractions = (NUMBER.fullmatch(label) is not None and not float(label).is_integer() for label in labels)
    fraction = None if declared else next((row for row, found in enumerate(fractions) if found), None)
    if regression or (regression is None and fraction is not None):
        return ()
    if fraction is not None:
        remedy = "classes are names or whole numbers; for scores ask for regression"
        raise DataError(f"{table.where(fraction)}: label {labels[fraction]} is not a class: {remedy}")
    present = set(labels)
    if len(present) == 1:
        problem = f"all {len(labels)} rows have the label {shown(present)}"
        raise DataError(f"{table.origin}: {problem}; two classes are needed")
    if len(present) > 2 and len(present) * MIN_ROWS_PER_CLASS > len(labels):
        problem = f"{len(present)} different labels in {len(labels)} rows, fewer than {MIN_ROWS_PER_CLASS} rows a class"
        raise DataError(f"{table.origin}: {problem}; is it the right column? For scores ask for regression")
    numeric = all(NUMBER.fullmatch(name) for name in present)
    return declared or tuple(sorted(present, key=lambda name: (float(name) if numeric else 0.0, name)))

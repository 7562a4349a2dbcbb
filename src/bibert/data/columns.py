"""What the columns of a table mean: which holds the text, which the label, and what a label is.

Reading files is in `readers`; putting train and dev together is in `tables`.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bibert.data.readers import Table, shown
from bibert.errors import DataError


@dataclass(frozen=True)
class Columns:
    """The columns to read; an empty name means: find it by the names people use.

    A given `text` without `pair` means single texts.
    """

    text: str = ""
    pair: str = ""
    label: str = ""


# Tried in order; a table that has both names of a pair holds pairs, unless it has one of the clear names too.
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("question", "passage"),
    ("question", "context"),
    ("query", "passage"),
    ("query", "document"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
)
TEXT_NAMES = (
    "text", "sentence", "review", "content", "comment", "tweet", "message", "document", "body", "utterance", "input",
    "question", "query", "headline", "title",
)  # fmt: skip
CLEAR_NAMES = ("text", "sentence", "review")
LABEL_NAMES = (
    "label", "labels", "gold_label", "class", "target", "score", "category", "sentiment", "rating", "stars", "intent",
    "topic", "is_duplicate", "similarity", "y",
)  # fmt: skip

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
NOT_FINITE = frozenset({"nan", "inf", "infinity"})
MIN_ROWS_PER_CLASS = 2


def find_columns(table: Table, wanted: Columns) -> Columns:
    """Name the text, pair and label columns of a table.

    Raises:
        DataError: a column that was asked for is not there, or none has a known name.
    """
    label = _given(table, wanted.label) or _first_known(_by_lower_name(table), LABEL_NAMES)
    if not label:
        raise _unknown_column(table, "label", LABEL_NAMES)
    return _distinct(replace(find_text_columns(table, wanted), label=label), table)


def find_text_columns(table: Table, wanted: Columns) -> Columns:
    """Name the text and pair columns of a table that needs no labels; `label` stays empty.

    Raises:
        DataError: a column that was asked for is not there, or none has a known name.
    """
    by_lower = _by_lower_name(table)
    text, pair = _given(table, wanted.text), _given(table, wanted.pair)
    if not text:
        first, second = next(((a, b) for a, b in PAIR_NAMES if a in by_lower and b in by_lower), ("", ""))
        taken = (first, second, wanted.label.lower())
        clear = _first_known(by_lower, [name for name in CLEAR_NAMES if name not in taken])
        if first and clear and not pair:
            raise DataError(
                f"{table.top}: {clear!r} may be the text, or {by_lower[first]!r} and {by_lower[second]!r} a pair; say "
                f"which: --text-column {clear}, or --text-column {by_lower[first]} --pair-column {by_lower[second]}"
            )
        text = by_lower.get(first, "") or _first_known(by_lower, TEXT_NAMES)
        pair = pair or by_lower.get(second, "")
    if not text:
        raise _unknown_column(table, "text", TEXT_NAMES)
    return _distinct(Columns(text, pair), table)


def _by_lower_name(table: Table) -> dict[str, str]:
    return {name.lower(): name for name in reversed(list(table.columns))}


def _given(table: Table, name: str) -> str:
    if not name or name in table.columns:
        return name
    same = [column for column in table.columns if column.lower() == name.lower()]
    if not same:
        close = difflib.get_close_matches(name, table.columns, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "name one that is there"
        raise DataError(f"{table.top}: no column {name!r} among {shown(table.columns)}; {remedy}")
    return same[0]


def _first_known(by_lower: dict[str, str], names: Sequence[str]) -> str:
    return next((by_lower[name] for name in names if name in by_lower), "")


def _unknown_column(table: Table, part: str, names: Sequence[str]) -> DataError:
    return DataError(
        f"{table.top}: no {part} column among {shown(table.columns)}; say which one it is (--{part}-column), "
        f"or add a header line with a known name ({', '.join(names[:5])}, ...)"
    )


def _distinct(found: Columns, table: Table) -> Columns:
    names = [name for name in (found.text, found.pair, found.label) if name]
    if len(set(names)) != len(names):
        raise DataError(f"{table.top}: one column for two uses ({', '.join(names)}); name different ones")
    return found


def texts_of(table: Table, column: str) -> tuple[str, ...]:
    """The texts of a column.

    Raises:
        DataError: a text is missing, blank, not a string, or not valid Unicode.
    """
    for row, cell in enumerate(table.columns[column]):
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            raise DataError(f"{table.where(row)}: empty text in column {column!r}; fill it in or remove the row")
        if not isinstance(cell, str):
            raise DataError(
                f"{table.where(row)}: column {column!r} holds a value of type {type(cell).__name__}, not a text; "
                "name another column or write strings"
            )
        if not _is_unicode(cell):
            raise DataError(f"{table.where(row)}: column {column!r} holds half a surrogate pair; write the text again")
    return tuple(map(str, table.columns[column]))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def written_label(cell: object) -> str:
    """A label as it is compared and shown: trimmed, whole numbers without `.0`; empty if there is none."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    text = str(cell).lower() if isinstance(cell, bool) else str(cell).strip()
    whole = NUMBER.fullmatch(text) and "." in text and float(text).is_integer()
    return text.split(".")[0] if whole and "e" not in text.lower() else text


def classes_of(table: Table, column: str, *, regression: bool | None = None) -> tuple[str, ...]:
    """The names of the classes in a column, in order; empty for scores.

    Args:
        table: the training rows.
        column: the label column.
        regression: whether labels are scores; None to infer it: a number with a fraction makes all labels scores.
    """
    labels = _written_labels(table, column)
    declared = tuple(map(written_label, table.class_names.get(column, ())))
    fraction = next((row for row, label in enumerate(labels) if _has_fraction(label)), None)
    if regression or (regression is None and fraction is not None and not declared):
        return ()
    if fraction is not None and not declared:
        raise DataError(
            f"{table.where(fraction)}: label {labels[fraction]} is not a class: classes are names or whole numbers; "
            "for scores ask for regression"
        )
    _check_classes(table, labels)
    return declared or _sorted_classes(labels)


def _has_fraction(label: str) -> bool:
    return NUMBER.fullmatch(label) is not None and not float(label).is_integer()


def _written_labels(table: Table, column: str) -> list[str]:
    labels = [written_label(cell) for cell in table.columns[column]]
    for row, (cell, label) in enumerate(zip(table.columns[column], labels, strict=True)):
        if not label or label.lower().lstrip("+-") in NOT_FINITE:
            raise DataError(
                f"{table.where(row)}: no usable label in column {column!r} (found {cell!r}); label the row or remove it"
            )
        if not isinstance(cell, str | int | float):
            kind = type(cell).__name__
            raise DataError(
                f"{table.where(row)}: the label in column {column!r} is of type {kind}; write one name or number a row"
            )
    return labels


def _sorted_classes(labels: list[str]) -> tuple[str, ...]:
    names = set(labels)
    if all(NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    return tuple(sorted(names))


def _check_classes(table: Table, labels: list[str]) -> None:
    present = len(set(labels))
    if present == 1:
        raise DataError(
            f"{table.origin}: all {len(labels)} rows have the label {shown(labels[:1])}; two classes are needed"
        )
    if present > 2 and present * MIN_ROWS_PER_CLASS > len(labels):
        raise DataError(
            f"{table.origin}: {present} different labels in {len(labels)} rows, fewer than {MIN_ROWS_PER_CLASS} rows "
            "a class; is it the right column? For scores ask for regression"
        )


def class_ids(table: Table, column: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """The class ids of a column: positions in `names`."""
    ids = {name: id_ for id_, name in enumerate(names)}
    labels = _written_labels(table, column)
    for row, label in enumerate(labels):
        if label not in ids:
            raise DataError(
                f"{table.where(row)}: unknown label {shown([label])}; write it as one of the {len(names)} classes, "
                f"{shown(names)}, or train on rows that have it"
            )
    return tuple(ids[label] for label in labels)


def scores_of(table: Table, column: str) -> tuple[float, ...]:
    """The scores of a column, all finite."""
    labels = _written_labels(table, column)
    for row, label in enumerate(labels):
        if not NUMBER.fullmatch(label) or not math.isfinite(float(label)):
            raise DataError(
                f"{table.where(row)}: score {shown([label])} in column {column!r} is not a finite number; "
                "write it like 3.5, or leave regression off for classes"
            )
    return tuple(map(float, labels))

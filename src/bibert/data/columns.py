"""The columns of a table that hold the text, its pair and the label: as they were named, or by the names people use."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources

from bibert.data.lines import shown
from bibert.errors import DataError, did_you_mean


@dataclass(frozen=True)
class Columns:
    """The columns to read; one without a name is found by the names people use. `text` without `pair`: single texts."""

    text: str = ""
    pair: str = ""
    label: str = ""

    @property
    def names(self) -> list[str]:
        """The names that are not empty."""
        return [name for name in (self.text, self.pair, self.label) if name]


# The names that people use for columns, tried in order. A table with both names of a pair holds pairs, unless it also
# has one of the clear names of a text.
NAMES = json.loads(resources.files("bibert.data").joinpath("column_names.json").read_text(encoding="utf-8"))


def find_columns(names: Iterable[str], wanted: Columns, header_place: str) -> Columns:
    """Find the text, pair and label columns among `names`; `header_place` is the place of the header, for messages."""
    names = [name for name in names if name]
    label = _find_named(wanted.label, names, header_place) or _first_known(NAMES["labels"], names)
    if not label:
        raise _unknown_column("label", NAMES["labels"], names, header_place)
    return _distinct(replace(find_text_columns(names, wanted, header_place), label=label), header_place)


def find_text_columns(names: Iterable[str], wanted: Columns, header_place: str) -> Columns:
    """Like `find_columns` for rows that need no label; `label` stays empty."""
    names = [name for name in names if name]
    text, pair = _find_named(wanted.text, names, header_place), _find_named(wanted.pair, names, header_place)
    if not text:
        lower = {name.lower() for name in names}
        first, second = next((both for both in NAMES["pairs"] if lower.issuperset(both)), ("", ""))
        others = (first, second, wanted.label.lower())
        clear = _first_known([name for name in NAMES["clear_texts"] if name not in others], names)
        text, second = _first_known([first, *NAMES["texts"]], names), _first_known([second], names)
        if second and clear and not pair:
            remedy = f"name the text column {clear!r}, or the text column {text!r} and the pair column {second!r}"
            raise DataError(f"{header_place}: {clear!r} may be the text, or {text!r} and {second!r} a pair; {remedy}")
        pair = pair or second
    if not text:
        raise _unknown_column("text", NAMES["texts"], names, header_place)
    return _distinct(Columns(text, pair), header_place)


def _find_named(name: str, names: Sequence[str], header_place: str) -> str:
    found = name if name in names else _first_known([name.lower()], names)
    if name and not found:
        raise DataError(f"{header_place}: no column {name!r} among {shown(names)}; {did_you_mean(name, names)}")
    return found


def _first_known(known: Iterable[str], names: Sequence[str]) -> str:
    """The first of the known names that a column has, whatever its case."""
    return next((name for lower in known for name in names if name.lower() == lower), "")


def _unknown_column(part: str, known: Sequence[str], names: Sequence[str], header_place: str) -> DataError:
    remedy = f"name the {part} column, or add a header line with a known name ({', '.join(known[:5])}, ...)"
    return DataError(f"{header_place}: no {part} column among {shown(names)}; {remedy}")


def _distinct(found: Columns, header_place: str) -> Columns:
    if len(set(found.names)) != len(found.names):
        raise DataError(f"{header_place}: one column for two uses ({', '.join(found.names)}); name different ones")
    return found

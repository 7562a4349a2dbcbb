"""The columns of a table that hold the text, its pair and the label: as they were named, or by the names people use."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from bibert.data.lines import Usual, shown
from bibert.errors import DataError, did_you_mean


@dataclass(frozen=True)
class Columns:
    """The columns to read; one without a name is found by the names people use. `text` without `pair`: single texts."""

    text: str = ""
    pair: str = ""
    label: str = ""
    delimiter: str = ""  # between the fields of CSV; empty for the one in the header
    usual: "Columns | None" = None  # of the data that a model learned from: for files that have them

    @property
    def names(self) -> list[str]:
        """The names that are not empty."""
        return [name for name in (self.text, self.pair, self.label) if name]

    def noted(self) -> dict[str, str]:
        """What `beside` reads again, as JSON values."""
        return {part: getattr(self, part) for part in PARTS if getattr(self, part)}

    def beside(self, about: Mapping[str, Any]) -> "Columns":
        """The same with the columns in the notes of a model, which are its provenance or those in a packed file."""
        data = about.get("data")
        noted = data.get("columns") if isinstance(data, Mapping) else None
        if not isinstance(noted, Mapping):
            return self
        text, pair, label, delimiter = (str(noted.get(part, "")) for part in PARTS)
        usual = Columns(text, pair, label, delimiter)
        return replace(self, usual=usual, delimiter=self.delimiter or Usual(usual.delimiter))


PARTS = ("text", "pair", "label", "delimiter")
# The names that people use for columns, tried in order. A table with both names of a pair holds pairs, unless it also
# has one of the clear names of a text.
NAMES = json.loads(resources.files("bibert.data").joinpath("column_names.json").read_text(encoding="utf-8"))


def find_columns(names: Iterable[str], wanted: Columns, header_place: str) -> Columns:
    """Find the text, pair and label columns among `names`; `header_place` is the place of the header, for messages."""
    names = [name for name in names if name]
    wanted = _spelled(wanted, names, header_place)
    found = _texts_among(names, wanted, header_place)
    found = replace(found, label=wanted.label or _first_known(NAMES["labels"], names))
    return _complete(found, ("text", "label"), names, header_place)


def find_text_columns(names: Iterable[str], wanted: Columns, header_place: str) -> Columns:
    """Like `find_columns` for rows that need no label; `label` stays empty."""
    names = [name for name in names if name]
    others = replace(wanted, label="", usual=wanted.usual and replace(wanted.usual, label=""))
    found = _texts_among(names, replace(_spelled(others, names, header_place), label=wanted.label), header_place)
    return _complete(found, ("text",), names, header_place)


def _spelled(wanted: Columns, names: Sequence[str], header_place: str) -> Columns:
    """The wanted columns as the file spells them; where none is wanted, those of a model's data if it has them."""
    usual = wanted.usual or Columns()
    known = set(names)
    if not (wanted.text or wanted.pair) and known.issuperset(filter(None, (usual.text, usual.pair))):
        wanted = replace(wanted, text=usual.text, pair=usual.pair)
    if not wanted.label and usual.label in known:
        wanted = replace(wanted, label=usual.label)
    found = {part: getattr(wanted, part) for part in ("text", "pair", "label")}
    found = {part: name if name in known else _first_known([name.lower()], names) for part, name in found.items()}
    if missing := [getattr(wanted, part) for part, name in found.items() if getattr(wanted, part) and not name]:
        columns, remedy = map(repr, missing), "; ".join(did_you_mean(name, names) for name in missing)
        raise DataError(f"{header_place}: no column {' and no column '.join(columns)} among {shown(names)}; {remedy}")
    return replace(wanted, **found)


def _texts_among(names: Sequence[str], wanted: Columns, header_place: str) -> Columns:
    """The text and its pair, by name or by the names people use; empty if there is none."""
    text, pair = wanted.text, wanted.pair
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
    return Columns(text, pair, delimiter=wanted.delimiter)


def _first_known(known: Iterable[str], names: Sequence[str]) -> str:
    """The first of the known names that a column has, whatever its case."""
    return next((name for lower in known for name in names if name.lower() == lower), "")


def _complete(found: Columns, needed: Sequence[str], names: Sequence[str], header_place: str) -> Columns:
    """Refuse a table in which a needed column was not found, or one column has two uses."""
    if missing := [part for part in needed if not getattr(found, part)]:
        known = "; ".join(f"for the {part} {', '.join(NAMES[f'{part}s'][:5])}, ..." for part in missing)
        parts = " and no ".join(f"{part} column" for part in missing)
        remedy = f"name the column, or add a header line with a known name ({known})"
        raise DataError(f"{header_place}: no {parts} among {shown(names)}; {remedy}")
    if len(set(found.names)) != len(found.names):
        raise DataError(f"{header_place}: one column for two uses ({', '.join(found.names)}); name different ones")
    return found

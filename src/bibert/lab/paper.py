"""The figures that the paper prints, from paper.toml: every table of results, row by row, keyed by our names.

Schemes are named as in `nn.schemes`, tasks as in `data.glue` (MNLI has a column for each of its two dev sets).
Numbers are those of the paper, mistakes included; `NOTES` lists the oddities. A printed size, FLOPs figure or average
is a `Decimal`, because 28.0 says more than 28.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

GLUE = ("mnli_matched", "mnli_mismatched", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
PRINTED = ("average", "size", "flops", "extra_flops", "entropy")


@dataclass(frozen=True)
class PaperRow:
    """One line of a table, with figures as printed; scores by task are in percent, None for a blank."""

    scheme: str
    architecture: str  # a key of `ARCHITECTURES`
    augmented: bool  # trained on augmented data
    scores: Mapping[str, float | None]
    average: Decimal | None = None
    size: Decimal | None = None  # MB
    flops: Decimal | None = None  # G
    extra_flops: Decimal | None = None  # the appendix's ΔFLOPs in G, on top of the baseline
    entropy: Decimal | None = None  # of the attention weights in bits, in the sweep of quantiles


@dataclass(frozen=True)
class PaperTable:
    """A table of results under the name that `NOTES` and the documents use for it."""

    name: str
    rows: tuple[PaperRow, ...]

    def row(self, scheme: str, architecture: str = "bert-base", *, augmented: bool = False) -> PaperRow | None:
        """The row of a scheme on an architecture, if there is one."""
        wanted = (scheme, architecture, augmented)
        return next((row for row in self.rows if (row.scheme, row.architecture, row.augmented) == wanted), None)

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes of its rows, without the full-precision teacher."""
        return tuple(dict.fromkeys(row.scheme for row in self.rows if row.scheme != "full_precision"))


class Note(NamedTuple):
    """An oddity of a printed figure: its table or "text", its scheme ('' for all), and an explanation."""

    table: str
    scheme: str
    text: str


def _table(name: str, rows: str) -> PaperTable:
    header, *lines = rows.strip().splitlines()
    return PaperTable(name, tuple(_row(dict(zip(header.split(), line.split(), strict=True))) for line in lines))


def _row(cells: Mapping[str, str]) -> PaperRow:
    scores = {task: None if cells[task] == "-" else float(cells[task]) for task in GLUE if task in cells}
    return PaperRow(
        scheme=cells["scheme"],
        architecture=cells.get("architecture", "bert-base"),
        augmented=cells.get("data") == "augmented",
        scores=MappingProxyType(scores),
        **{column: Decimal(cells[column]) for column in PRINTED if cells.get(column, "-") != "-"},
    )


def zeros_percent(row: PaperRow) -> float:
    """The percentage of zero attention weights in a row of the sweep of quantiles."""
    return float(row.scheme.partition("(")[2].removesuffix(")"))


_PAPER: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))
TABLES: Mapping[str, PaperTable] = {key: _table(**table) for key, table in _PAPER["tables"].items()}
TABLE_1 = TABLES["1"]
TABLE_2 = TABLES["2"]
TABLE_3 = TABLES["3"]
STRENGTHENED = TABLES["strengthened"]
QUANTILES = TABLES["quantiles"]
VARIANTS = TABLES["variants"]
BOTTLENECKS = TABLES["bottlenecks"]
DIRECTION_ERROR: tuple[float, ...] = tuple(_PAPER["direction_error"])
DIRECTION_ERROR_SAMPLES: int = _PAPER["direction_error_samples"]
DIRECTION_MARGINS: tuple[float, float] = tuple(_PAPER["direction_margins"])
STATEMENTS: Mapping[str, Mapping[str, str]] = _PAPER["statements"]  # title and note of each table of `theory`
NOTES = tuple(
    Note(TABLES[table].name if table in TABLES else table, scheme, text) for table, scheme, text in _PAPER["notes"]
)
# Why our rules give another figure than the paper prints, by column, architecture and scheme.
REASONS: Mapping[tuple[str, str, str], str] = {
    (reason["column"], reason["architecture"], scheme): reason["text"]
    for reason in _PAPER["reasons"]
    for scheme in reason["schemes"]
}

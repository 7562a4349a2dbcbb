"""Our sizes and FLOPs beside the paper's: which printed figures the rules reproduce, and why the others differ.

The rules are in `cost`, the printed figures in `paper`; here is only the verdict and, where it is not `=`, the reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from bibert.lab.architecture import Architecture, name_of
from bibert.lab.cost import TOKENS, Flops, Size, flops, size, threshold_flops
from bibert.lab.paper import STRENGTHENED, TABLE_2, Row, Table
from bibert.nn.schemes import SCHEMES, Scheme

GIGA = 10**9


class Verdict(StrEnum):
    """How well a rule meets a printed figure."""

    EQUAL = "="  # rounds to it
    CLOSE = "~"  # within one unit of its last digit
    DIFFERENT = "!="


@dataclass(frozen=True)
class Comparison:
    """One printed figure: the column it stands in, what the rule gives, and why they differ if they do."""

    column: str
    ours: float
    printed: Decimal
    verdict: Verdict
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "printed": float(self.printed),
            "ours": self.ours,
            "verdict": self.verdict.name.lower(),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Cost:
    """What a scheme costs by the rules, and the printed figures there are for it, by column."""

    size: Size
    flops: Flops
    printed: Mapping[str, Comparison]


class Column(NamedTuple):
    """A column of costs: where it is printed, by which rule we count it, and what stands beside the printed figure."""

    table: Table
    rule: Callable[[Size], str]
    ours: Callable[[Size, Flops], float]


# Sizes are those of Table 2, and so are FLOPs: Table 3 repeats them.
COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        "size": Column(TABLE_2, lambda size: size.rule, lambda size, flops: size.mib),  # noqa: ARG005
        "flops": Column(TABLE_2, lambda size: flops.__name__, lambda size, flops: flops.total / GIGA),  # noqa: ARG005
        "extra_flops": Column(
            STRENGTHENED,
            lambda size: threshold_flops.__name__,  # noqa: ARG005
            lambda size, flops: flops.threshold / GIGA,  # noqa: ARG005
        ),
    }
)


@dataclass(frozen=True)
class Figure:
    """One number of a shape: by which rule, what it gives, for which schemes, and what is printed if anything is."""

    column: str
    rule: str
    ours: float
    schemes: tuple[str, ...]
    printed: Comparison | None


FIT_DENSE = "counts TinyBERT's fit_dense layer, which no student uses; with it {mib} MiB, cut off, not rounded"
THRESHOLD = "weights of 32 bits times values of 1 at one FLOP per multiply-add (0.0755 G); why rows differ is not said"
RUN_TIME_SCALES = "products are 0.35 G; run-time scales take our count past 0.45; what the paper counts is not said"
NOT_SAID = "the products by the paper's rule are 6.04 G; what makes up the rest is not said"
# Keyed by the printed figure, or by the scheme where one row has a reason of its own.
REASONS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("size", "257"): FIT_DENSE.format(mib="257.67"),
        ("size", "55.6"): FIT_DENSE.format(mib="55.66"),
        ("size", "16.5"): (
            "bits are 15.85 MiB (embedding and pooler twice), float parts 1.98; what 16.5 leaves out is not said"
        ),
        ("size", "13.4"): (
            "derivable only by leaving something out: bits are 12.99 MiB, 14.97 with the float parts the text keeps; "
            "13.4 would fit tables at 8 bits and no other float (13.37)"
        ),
        ("size", "binarybert_50"): "listed like the baseline; as a BinaryBERT it holds the embedding twice",
        ("size", "6.8"): (
            "not derivable: bits alone are 7.93 MiB; 6.8 is 13.4 x 6/12, as if the embedding shrank with the depth"
        ),
        ("size", "4.4"): (
            "not derivable: a file with all scales is 2.53 MiB (bits 1.69); 4.4 is about 13.4 x 4/12, as if only the "
            "depth had changed"
        ),
        ("flops", "22.5"): "TinyBERT's count; the products are 22.35 G",
        ("flops", "11.3"): "TinyBERT's count; the products are 11.17 G",
        ("flops", "1.2"): "TinyBERT's count; the products are 1.25 G",
        ("flops", "6.5"): NOT_SAID,
        ("flops", "6.4"): NOT_SAID,
        ("flops", "binarybert_1-1-4"): "BinaryBERT's count; the products are 1.51 G",
        ("flops", "binarybert_1-1-1"): RUN_TIME_SCALES,
        ("flops", "binarybert_50"): RUN_TIME_SCALES,
        ("extra_flops", "0.074"): THRESHOLD,
        ("extra_flops", "0.076"): THRESHOLD,
    }
)


def cost_of(architecture: Architecture, scheme: Scheme, tokens: int = TOKENS) -> Cost:
    """Size and FLOPs of a scheme, with every printed figure the paper has for this scheme and shape.

    FLOPs are compared only at the paper's 128 tokens.
    """
    ours_size, ours_flops = size(architecture, scheme), flops(architecture, scheme, tokens)
    printed = {}
    for name, column in COLUMNS.items():
        figure = _printed(column.table.row(scheme.name, name_of(architecture) or ""), name)
        if figure is not None and (name == "size" or tokens == TOKENS):
            printed[name] = compare(name, scheme.name, column.ours(ours_size, ours_flops), figure)
    return Cost(ours_size, ours_flops, MappingProxyType(printed))


def figures(architecture: Architecture) -> list[Figure]:
    """Every number of every scheme on a shape, column by column; schemes with the same number stand together.

    FLOPs are those of the paper's 128 tokens, or of the longest input of a shape that takes fewer.
    """
    tokens = min(TOKENS, architecture.positions)
    schemes: dict[tuple[str, str, float, Comparison | None], list[str]] = {}
    for scheme in SCHEMES.values():
        cost = cost_of(architecture, scheme, tokens)
        for name, column in COLUMNS.items():
            ours, printed = column.ours(cost.size, cost.flops), cost.printed.get(name)
            if ours or printed:
                schemes.setdefault((name, column.rule(cost.size), ours, printed), []).append(scheme.name)
    found = [Figure(name, rule, ours, tuple(who), printed) for (name, rule, ours, printed), who in schemes.items()]
    return sorted(found, key=lambda figure: list(COLUMNS).index(figure.column))


def _printed(row: Row | None, column: str) -> Decimal | None:
    figure: Decimal | None = getattr(row, column, None)
    return figure


def compare(column: str, scheme: str, ours: float, printed: Decimal) -> Comparison:
    """Judge one printed figure by its own last digit."""
    verdict = judge(ours, printed)
    reason = REASONS.get((column, scheme), REASONS.get((column, str(printed)), ""))
    return Comparison(column, ours, printed, verdict, "" if verdict is Verdict.EQUAL else reason)


def judge(ours: float, printed: Decimal) -> Verdict:
    """Equal if ours rounds to what is printed, close if it is within one unit of the last printed digit."""
    unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    exact = Decimal(ours)
    if exact.quantize(unit) == printed:
        return Verdict.EQUAL
    return Verdict.CLOSE if abs(exact - printed) <= unit else Verdict.DIFFERENT

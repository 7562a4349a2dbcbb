"""Our sizes and FLOPs beside the paper's: which printed figures the rules reproduce, and why the others differ.

The rules are in `cost`, the printed figures in `paper`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from bibert.lab.architecture import ARCHITECTURES, count_parameters, name_of
from bibert.lab.cost import MIB, TOKENS, Flops, Size, count_scales, flops, size
from bibert.lab.paper import REASONS, STRENGTHENED, TABLE_2, PaperTable
from bibert.nn.schemes import SCHEMES, Scheme
from bibert.packed.schema import PackedConfig

GIGA = 10**9
# The columns of costs and where the paper prints them; Table 3 repeats those of Table 2.
PRINTED_IN: Mapping[str, PaperTable] = {"size": TABLE_2, "flops": TABLE_2, "extra_flops": STRENGTHENED}


class Verdict(StrEnum):
    """How close a rule comes to a printed figure."""

    EQUAL = "="  # rounds to it
    CLOSE = "~"  # within one unit of its last digit
    DIFFERENT = "!="


@dataclass(frozen=True)
class Figure:
    """A number in MiB or G by one of our rules, and the paper's, if it prints one."""

    column: str  # of `PRINTED_IN`
    rule: str  # of `cost.RULES`
    ours: float
    printed: Decimal | None = None
    reason: str = ""  # why the two differ

    @property
    def verdict(self) -> Verdict | None:
        """How close ours comes; None if nothing is printed."""
        return None if self.printed is None else judge(self.ours, self.printed)

    def to_dict(self) -> dict[str, Any] | None:
        """Plain values of a printed figure, for JSON."""
        if self.printed is None or self.verdict is None:
            return None
        verdict = self.verdict.name.lower()
        return {"printed": float(self.printed), "ours": self.ours, "verdict": verdict, "reason": self.reason}


def judge(ours: float, printed: Decimal) -> Verdict:
    """Equal if ours rounds to the printed figure, close if it is within one unit of the last printed digit."""
    unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    exact = Decimal(ours)
    if exact.quantize(unit) == printed:
        return Verdict.EQUAL
    return Verdict.CLOSE if abs(exact - printed) <= unit else Verdict.DIFFERENT


@dataclass(frozen=True)
class Cost:
    """Size and FLOPs of a scheme on a shape by the rules, and the figure of each column of `PRINTED_IN`."""

    scheme: Scheme
    size: Size
    flops: Flops
    figures: Mapping[str, Figure]

    @property
    def reasons(self) -> list[str]:
        """Why printed figures of the scheme cannot be reproduced."""
        return [figure.reason for figure in self.figures.values() if figure.reason]


def cost_of(shape: PackedConfig, scheme: Scheme, tokens: int = TOKENS) -> Cost:
    """Size and FLOPs of a scheme, with every figure that the paper prints for this scheme and shape.

    FLOPs are compared only at the paper's 128 tokens.
    """
    bytes_, work, architecture = size(shape, scheme), flops(shape, scheme, tokens), name_of(shape) or ""
    ours_by_column = {
        "size": (bytes_.rule, bytes_.mib),
        "flops": ("flops", work.total / GIGA),
        "extra_flops": ("threshold_flops", work.threshold / GIGA),
    }
    figures = {}
    for column, (rule, ours) in ours_by_column.items():
        row = PRINTED_IN[column].row(scheme.name, architecture) if column == "size" or tokens == TOKENS else None
        printed = getattr(row, column, None)
        differs = printed is not None and judge(ours, printed) is not Verdict.EQUAL
        reason = REASONS.get((column, architecture, scheme.name), "") if differs else ""
        figures[column] = Figure(column, rule, ours, printed, reason)
    return Cost(scheme, bytes_, work, figures)


def schemes_by_figure(shape: PackedConfig, printed: bool = False) -> dict[Figure, list[str]]:
    """The figures of all schemes on a shape, or those that the paper prints, each with the schemes that share it.

    FLOPs are those of 128 tokens, or of the longest input of a shape that takes fewer.
    """
    costs = [cost_of(shape, scheme, min(TOKENS, shape.positions)) for scheme in SCHEMES.values()]
    found: dict[Figure, list[str]] = {}
    for column in PRINTED_IN:
        for cost in costs:
            figure = cost.figures[column]
            if figure.printed is not None or (figure.ours and not printed):
                found.setdefault(figure, []).append(cost.scheme.name)
    return found


def readings_of_13_4() -> dict[str, float]:
    """Ways to arrive at the printed 13.4 MB, in MiB; each leaves out something that the paper keeps in float.

    All start from the bits of word embedding, linears and pooler: bytes = (word + linears + pooler) / 8.
    """
    shape, scheme = ARCHITECTURES["bert-base"], SCHEMES["bibert"]
    counts = count_parameters(shape)
    bits = (counts["word"] + counts["linears"] + counts["pooler"]) / 8
    tables = counts["position"] + counts["token_type"]
    return {
        "bits alone": bits / MIB,
        "bits, position and type tables at 8 bits": (bits + tables) / MIB,
        "bits and row scales": (bits + 4 * count_scales(shape, scheme)) / MIB,
        "bits, tables at 1 bit, biases in float32": (bits + tables / 8 + 4 * counts["biases"]) / MIB,
    }

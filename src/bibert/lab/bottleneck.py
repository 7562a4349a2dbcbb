"""What binarizing one structure costs, and what one loss term is worth: Section 3.1, from accuracies on a dev set.

The schemes are `baseline(kept=...)` and `baseline(without=...)`, run like any other; printed figures are in `paper`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bibert.lab.paper import BOTTLENECKS

BASELINE = "baseline"
KEPT, WITHOUT = "kept", "without"
CHANGED = re.compile(rf"{BASELINE}\((?P<change>{KEPT}|{WITHOUT})=(?P<what>[^,()]+)\)")
# Texts in the dev sets of GLUE that are scored by accuracy.
DEV_TEXTS: Mapping[str, int] = MappingProxyType(
    {"sst2": 872, "mrpc": 408, "qqp": 40430, "mnli": 9815, "qnli": 5463, "rte": 277}
)


@dataclass(frozen=True)
class Difference:
    """An accuracy in percent, its points above the baseline, and the standard error of these points."""

    accuracy: float
    points: float
    error: float


@dataclass(frozen=True)
class Effect:
    """One change of the baseline: what is kept or left out, ours and the paper's if there is a figure."""

    scheme: str
    change: str
    what: str
    ours: Difference | None
    paper: Difference | None


def effects(task: str, ours: Mapping[str, float]) -> list[Effect]:
    """Every change of the baseline that the paper or we have an accuracy for, in the paper's order.

    Args:
        task: a key of `DEV_TEXTS`.
        ours: accuracies in percent by scheme, the baseline's among them.
    """
    papers = {row.scheme: row.scores[task] for row in BOTTLENECKS.rows if row.scores.get(task) is not None}
    found = []
    for scheme in dict.fromkeys([*(row.scheme for row in BOTTLENECKS.rows), *sorted(ours)]):
        match = CHANGED.fullmatch(scheme)
        if match and (scheme in ours or scheme in papers):
            both = (difference(task, scores, scheme) for scores in (ours, papers))
            found.append(Effect(scheme, match["change"], match["what"], *both))
    return found


def difference(task: str, accuracies: Mapping[str, float | None], scheme: str) -> Difference | None:
    """The accuracy of a scheme against the baseline's; None where either is missing."""
    accuracy, baseline = accuracies.get(scheme), accuracies.get(BASELINE)
    if accuracy is None or baseline is None:
        return None
    return Difference(accuracy, accuracy - baseline, standard_error(accuracy, baseline, DEV_TEXTS[task]))


def standard_error(one: float, other: float, texts: int) -> float:
    """Of the difference of two accuracies on so many texts, as if the two models erred independently.

    100·√((p(1 − p) + q(1 − q)) / n): the binomial errors of both. Two students of one teacher err alike, so the true
    error is smaller; what a run changes by chance alone is not in it.
    """
    variances = (share * (1 - share) for share in (one / 100, other / 100))
    return 100 * math.sqrt(sum(variances) / texts)

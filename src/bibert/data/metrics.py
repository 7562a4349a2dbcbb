"""The metrics of GLUE and of a user's own data, by name, from answers and gold labels.

They need only NumPy, so a packed file can be evaluated in the light install; tests compare them with scikit-learn and
scipy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Counts = NDArray[np.int64]
BINS = 15  # of scores from 0 to 1, for the expected calibration error


def accuracy(answers: Array, gold: Array) -> float:
    """The share of correct answers."""
    return float(np.mean(answers == gold))


def f1(answers: Array, gold: Array) -> float:
    """F1 of class 1, the positive class of GLUE's tasks; 0 where it is neither answered nor gold."""
    correct, answered, true = _counts(answers, gold)
    return float(2 * correct[1] / max(answered[1] + true[1], 1)) if len(correct) > 1 else 0.0


def macro_f1(answers: Array, gold: Array) -> float:
    """The mean F1 of the classes that are answered or gold: a rare class counts as much as a frequent one."""
    correct, answered, true = _counts(answers, gold)
    present = answered + true > 0
    return float(np.mean(2 * correct[present] / (answered + true)[present]))


def matthews(answers: Array, gold: Array) -> float:
    """Matthews' correlation for two or more classes; 0 where one side is constant."""
    correct, answered, true = _counts(answers, gold)
    rows = len(gold)
    covariance = rows * int(correct.sum()) - int(answered @ true)
    spread = math.sqrt(rows**2 - int(answered @ answered)) * math.sqrt(rows**2 - int(true @ true))
    return covariance / spread if spread else 0.0


def pearson(answers: Array, gold: Array) -> float:
    """The correlation of two scores; 0 where one side is constant and it is undefined."""
    if np.ptp(answers) == 0 or np.ptp(gold) == 0:
        return 0.0
    return float(np.corrcoef(answers.astype(np.float64), gold)[0, 1])


def spearman(answers: Array, gold: Array) -> float:
    """The correlation of the ranks."""
    return pearson(_ranks(answers), _ranks(gold))


def cosine(answers: Array, gold: Array) -> float:
    """The mean cosine of rows of vectors."""
    sizes = np.linalg.norm(answers, axis=-1) * np.linalg.norm(gold, axis=-1)
    return float(np.mean((answers * gold).sum(axis=-1) / np.maximum(sizes, np.finfo(np.float32).tiny)))


# Each takes answers (class ids, scores or vectors) and gold ones.
METRICS: Mapping[str, Callable[[Array, Array], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "cosine": cosine,
}


def score(logits: NDArray[np.float32], labels: Array | Sequence[float], names: Sequence[str]) -> dict[str, float]:
    """The named metrics of a model's logits: (rows, labels), or (rows, 1) for regression."""
    return score_answers(logits[:, 0] if logits.shape[-1] == 1 else logits.argmax(axis=-1), labels, names)


def score_answers(
    answers: Array | Sequence[float], labels: Array | Sequence[float], names: Sequence[str]
) -> dict[str, float]:
    """The named metrics of answers: class ids, or scores."""
    return {name: METRICS[name](np.asarray(answers), np.asarray(labels)) for name in names}


def confusion(logits: NDArray[np.float32], labels: Array | Sequence[float]) -> list[list[int]]:
    """How often each label was answered for each gold one: rows are gold labels, columns are answers."""
    classes = logits.shape[-1]
    cells = np.asarray(labels).astype(np.int64) * classes + logits.argmax(axis=-1)
    table: list[list[int]] = np.bincount(cells, minlength=classes**2).reshape(classes, classes).tolist()
    return table


def by_class(confused: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and support (gold rows) of each class of a confusion table; 0 where they are undefined."""
    table = np.asarray(confused)
    counts = zip(names, table.diagonal().tolist(), table.sum(axis=0).tolist(), table.sum(axis=1).tolist(), strict=True)
    return {
        name: {
            "precision": correct / max(answered, 1),
            "recall": correct / max(gold, 1),
            "f1": 2 * correct / max(answered + gold, 1),
            "support": gold,
        }
        for name, correct, answered, gold in counts
    }


class Bin(NamedTuple):
    """Rows whose best scores are alike."""

    least: float  # where the bin begins
    rows: int
    score: float  # the mean of the best scores
    accuracy: float


def reliability(scores: Array, labels: Array | Sequence[float]) -> list[Bin]:
    """The rows of probabilities (rows, labels) in `BINS` bins of equal width by their best score; none is empty."""
    best, right = scores.max(axis=-1), scores.argmax(axis=-1) == np.asarray(labels)
    place = np.minimum((BINS * best).astype(np.int64), BINS - 1)
    return [
        Bin(int(number) / BINS, int(own.sum()), float(best[own].mean()), float(right[own].mean()))
        for number in np.unique(place)
        for own in [place == number]
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """The expected calibration error: the mean distance of score and accuracy over all rows, bin by bin."""
    return sum(one.rows * abs(one.score - one.accuracy) for one in bins) / sum(one.rows for one in bins)


def _counts(answers: Array, gold: Array) -> tuple[Counts, Counts, Counts]:
    """Count for each class how often it was answered correctly, answered, and gold."""
    answers, gold = answers.astype(np.int64), gold.astype(np.int64)
    classes = int(max(answers.max(), gold.max())) + 1
    correct, answered, true = (np.bincount(s, minlength=classes) for s in (gold[answers == gold], answers, gold))
    return correct, answered, true


def _ranks(values: Array) -> Array:
    """Ranks in order of size, from 1; equal values share the mean of theirs."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(times) - (times - 1) / 2)[place])

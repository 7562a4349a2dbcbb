"""The worst mistakes of a model on labelled rows: wrong labels with the highest scores, and their texts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bibert.data.examples import Split
from bibert.runtime.classifier import Scores

MOST = 10


class Mistake(NamedTuple):
    """A wrong answer."""

    score: float
    answer: str
    gold: str
    text: str


def worst_mistakes(rows: Split, scores: Scores, labels: Sequence[str]) -> list[Mistake]:
    """The `MOST` wrong answers with the highest scores, the worst first; `scores` are (rows, labels)."""
    gold, answers, best = np.asarray(rows.labels, dtype=np.int64), scores.argmax(axis=-1), scores.max(axis=-1)
    order = [row for row in np.argsort(-best, kind="stable").tolist() if answers[row] != gold[row]]
    texts = rows.joined_texts
    return [Mistake(best[row].item(), labels[answers[row]], labels[gold[row]], texts[row]) for row in order[:MOST]]

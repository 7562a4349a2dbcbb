"""The worst mistakes: wrong answers only, the surest first, with both labels and the text."""

import numpy as np

from bibert.data.examples import Split
from bibert.lab.mistakes import MOST, Mistake, worst_mistakes


def test_the_surest_wrong_answers_come_first_with_their_texts():
    rows = Split(("a", "b", "c", "d"), ("1", "2", "3", "4"), (0.0, 1.0, 1.0, 0.0), "rows.csv")
    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    expected = [Mistake(0.8, "yes", "no", "d 4"), Mistake(0.6, "no", "yes", "b 2")]
    assert worst_mistakes(rows, scores, ("no", "yes")) == expected
    many = Split(("a",) * 20, None, (1.0,) * 20, "rows.csv")
    assert len(worst_mistakes(many, np.tile(scores[:1], (20, 1)), ("no", "yes"))) == MOST

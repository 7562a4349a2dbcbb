"""Metrics against those of scikit-learn and scipy, and where these are not defined."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import distance
from sklearn import metrics as scikit

from bibert.data.metrics import METRICS, Bin, by_class, calibration_error, confusion, reliability, score, score_answers


def half_right(classes):
    """Answers and gold labels of 200 rows."""
    random = np.random.default_rng(classes)
    gold = random.integers(0, classes, 200)
    return np.where(random.random(200) < 0.5, gold, random.integers(0, classes, 200)), gold


ANSWERS = {f"{classes} classes": half_right(classes) for classes in (2, 3, 7)} | {
    "a class that is never answered": ([0] * 10, [0] * 9 + [1]),
    "classes that are nowhere": ([0, 2, 2, 5], [0, 2, 5, 5]),
}


@pytest.mark.parametrize(("answers", "gold"), ANSWERS.values(), ids=ANSWERS)
def test_metrics_of_classes_are_those_of_scikit_learn(answers, gold):
    expected = {
        "accuracy": scikit.accuracy_score(gold, answers),
        "f1": scikit.f1_score(gold, answers, labels=[1], average="macro", zero_division=0),
        "macro_f1": scikit.f1_score(gold, answers, average="macro"),
        "matthews": scikit.matthews_corrcoef(gold, answers),
    }
    logits = np.eye(7, dtype=np.float32)[answers]
    assert score(logits, np.array(gold, dtype=float), list(expected)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["f1", "matthews", "pearson", "spearman"])
def test_constant_predictions_score_zero_without_a_warning(name):
    constant = np.zeros((4, 1 if name in ("pearson", "spearman") else 3), dtype=np.float32)
    assert score(constant, np.array([0, 1, 1, 0]), [name]) == {name: 0.0}
    assert score(constant[:1], np.array([0]), [name]) == {name: 0.0}  # one row


@pytest.mark.parametrize("name", METRICS)
def test_perfect_predictions_score_one(name):
    gold = np.arange(400_000) % 2  # many enough for int32 to overflow in Matthews' correlation
    assert score_answers(gold, gold.astype(float), [name])[name] == pytest.approx(1)


def test_correlations_are_those_of_scipy_also_with_equal_scores():
    random = np.random.default_rng(0)
    gold = random.integers(0, 11, 300) / 2
    answers = np.round(gold + random.normal(size=300), 1).astype(np.float32)
    found = score(answers[:, None], gold, ["pearson", "spearman"])
    assert found["pearson"] == pytest.approx(stats.pearsonr(answers, gold)[0], abs=1e-6)  # scipy may count in float32
    assert found["spearman"] == pytest.approx(stats.spearmanr(answers, gold)[0], abs=1e-12)


def test_the_cosine_of_vectors_is_that_of_scipy_and_0_for_none():
    mine, gold = np.random.default_rng(0).normal(size=(2, 50, 8)).astype(np.float32)
    expected = np.mean([1 - distance.cosine(a, b) for a, b in zip(mine, gold, strict=True)])
    assert score_answers(3 * mine, gold, ["cosine"])["cosine"] == pytest.approx(expected, abs=1e-6)
    assert score_answers(0 * mine, gold, ["cosine"]) == {"cosine": 0.0}


def test_confusion_has_gold_rows_and_answer_columns():
    logits = np.eye(3, dtype=np.float32)[[0, 1, 1, 0]]
    assert confusion(logits, (0.0, 1.0, 0.0, 0.0)) == [[2, 1, 0], [0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize(("answers", "gold"), ANSWERS.values(), ids=ANSWERS)
def test_figures_of_each_class_are_those_of_scikit_learn(answers, gold):
    names = "abcdefg"
    found = by_class(confusion(np.eye(7, dtype=np.float32)[answers], gold), names)
    expected = scikit.precision_recall_fscore_support(gold, answers, labels=range(7), zero_division=0)
    assert list(found) == list(names)
    for place, figures in enumerate(found.values()):
        assert list(figures) == ["precision", "recall", "f1", "support"]
        assert list(figures.values()) == pytest.approx([column[place] for column in expected])


def test_the_calibration_error_is_the_one_computed_by_hand():
    best = np.array([0.52, 0.5, 0.91, 0.93, 0.99, 1.0])
    right = [True, False, True, False, True, True]
    scores = np.stack([best, 1 - best], axis=1)
    bins = reliability(scores, [0.0 if one else 1.0 for one in right])
    # Of 15 bins: 0.467 to 0.533, 0.867 to 0.933 and 0.933 to 1, which has 1 too.
    expected = [Bin(7 / 15, 2, 0.51, 0.5), Bin(13 / 15, 2, 0.92, 0.5), Bin(14 / 15, 2, 0.995, 1.0)]
    assert np.array(bins) == pytest.approx(np.array(expected))
    assert calibration_error(bins) == pytest.approx((0.01 + 0.42 + 0.005) / 3)

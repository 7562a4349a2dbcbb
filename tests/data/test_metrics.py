"""Metrics against values counted by hand, and against scikit-learn and scipy on random answers."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as scikit

from bibert.data.metrics import METRICS, confusion, score, score_answers

CLASSES = ("accuracy", "macro_f1", "matthews")


def logits(*classes: int) -> np.ndarray:
    return np.eye(3, dtype=np.float32)[list(classes)]


@pytest.mark.parametrize(
    ("name", "answers", "gold", "expected"),
    [
        ("accuracy", (0, 1, 2, 0), (0, 1, 1, 1), 0.5),
        # Class 1: 2 true positives, 1 false positive, 1 false negative: 2 · 2 / (2 · 2 + 1 + 1)
        ("f1", (1, 1, 1, 0, 0), (1, 1, 0, 1, 0), 4 / 6),
        # 2 true and 1 false positive, 1 true and 1 false negative: (2 · 1 - 1 · 1) / √(3 · 3 · 2 · 2)
        ("matthews", (1, 1, 1, 0, 0), (1, 1, 0, 0, 1), 1 / 6),
        # Class 0: 2 · 9 / (2 · 9 + 1); class 1, which is rare and never answered, counts as much: 0
        ("macro_f1", (0,) * 10, (0,) * 9 + (1,), 18 / 19 / 2),
    ],
)
def test_metrics_of_classes_are_those_counted_by_hand(name, answers, gold, expected):
    assert score(logits(*answers), np.array(gold), [name]) == {name: pytest.approx(expected)}


def test_correlations_of_scores():
    predicted, gold = np.array([[1.0], [2.0], [4.0]], dtype=np.float32), np.array([1.0, 2.0, 3.0])
    result = score(predicted, gold, ["pearson", "spearman"])
    pearson = 3 / (2 * 14 / 3) ** 0.5  # covariance 3, variances 2 and 14/3, each times 3
    assert result["pearson"] == pytest.approx(pearson)
    assert result["spearman"] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["f1", "matthews", "pearson", "spearman"])
def test_constant_predictions_score_zero_without_a_warning(name: str):
    constant = np.zeros((4, 1), dtype=np.float32) if "earson" in name or name == "spearman" else logits(0, 0, 0, 0)
    assert score(constant, np.array([0, 1, 1, 0]), [name]) == {name: 0.0}
    assert score(constant[:1], np.array([0]), [name]) == {name: 0.0}  # one row


@pytest.mark.parametrize("name", METRICS)
def test_perfect_predictions_score_one(name: str):
    gold = np.arange(400_000) % 2  # many enough for int32 to overflow in Matthews' correlation
    assert score_answers(gold, gold.astype(float), [name])[name] == pytest.approx(1)


def test_macro_f1_does_not_depend_on_the_order_of_the_classes():
    answers, gold = np.array([0, 1, 1, 0, 0, 1]), np.array([0, 1, 0, 0, 0, 0])
    assert METRICS["macro_f1"](answers, gold) == METRICS["macro_f1"](1 - answers, 1 - gold)
    assert METRICS["f1"](answers, gold) != METRICS["f1"](1 - answers, 1 - gold)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_metrics_of_classes_are_those_of_scikit_learn(classes: int):
    random = np.random.default_rng(classes)
    gold = random.integers(0, classes, 200)
    answers = np.where(random.random(200) < 0.5, gold, random.integers(0, classes, 200))
    found = score_answers(answers, gold.astype(float), CLASSES)
    assert found["accuracy"] == pytest.approx(scikit.accuracy_score(gold, answers), abs=1e-12)
    assert found["macro_f1"] == pytest.approx(scikit.f1_score(gold, answers, average="macro"), abs=1e-12)
    assert found["matthews"] == pytest.approx(scikit.matthews_corrcoef(gold, answers), abs=1e-12)
    if classes == 2:
        assert METRICS["f1"](answers, gold) == pytest.approx(scikit.f1_score(gold, answers), abs=1e-12)


def test_a_class_that_is_nowhere_is_not_counted():
    answers, gold = [0, 2, 2, 5], [0, 2, 5, 5]
    expected = scikit.f1_score(gold, answers, average="macro")
    assert score_answers(answers, gold, ["macro_f1"])["macro_f1"] == pytest.approx(expected, abs=1e-12)


def test_correlations_are_those_of_scipy_also_with_equal_scores():
    random = np.random.default_rng(0)
    gold = random.integers(0, 11, 300) / 2
    answers = np.round(gold + random.normal(size=300), 1).astype(np.float32)
    found = score(answers[:, None], gold, ["pearson", "spearman"])
    assert found["pearson"] == pytest.approx(stats.pearsonr(answers, gold)[0], abs=1e-6)  # scipy may count in float32
    assert found["spearman"] == pytest.approx(stats.spearmanr(answers, gold)[0], abs=1e-12)


def test_confusion_has_gold_rows_and_answer_columns():
    assert confusion(logits(0, 1, 1, 0), (0.0, 1.0, 0.0, 0.0)) == [[2, 1, 0], [0, 1, 0], [0, 0, 0]]

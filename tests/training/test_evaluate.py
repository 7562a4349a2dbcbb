"""Metrics against values counted by hand, and logits that do not depend on how rows are batched."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bibert.data.encoding import Collator, encode
from bibert.data.examples import TextData
from bibert.errors import DataError
from bibert.nn.binarization import binarize
from bibert.nn.loading import Classifier, load_classifier
from bibert.training.evaluate import METRICS, batches_by_length, evaluate, predict_logits, score


def logits(*classes: int) -> np.ndarray:
    return np.eye(3, dtype=np.float32)[list(classes)]


def test_accuracy_is_the_share_of_right_answers():
    assert score(logits(0, 1, 2, 0), np.array([0, 1, 1, 1]), ["accuracy"]) == {"accuracy": 0.5}


def test_f1_is_that_of_class_one():
    # 2 true positives, 1 false positive, 1 false negative: 2 · 2 / (2 · 2 + 1 + 1)
    assert score(logits(1, 1, 1, 0, 0), np.array([1, 1, 0, 1, 0]), ["f1"])["f1"] == pytest.approx(4 / 6)


def test_matthews_is_the_correlation_of_two_classes():
    # 2 true and 1 false positive, 1 true and 1 false negative: (2 · 1 - 1 · 1) / √(3 · 3 · 2 · 2)
    assert score(logits(1, 1, 1, 0, 0), np.array([1, 1, 0, 0, 1]), ["matthews"])["matthews"] == pytest.approx(1 / 6)


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


@pytest.mark.parametrize("name", METRICS)
def test_perfect_predictions_score_one(name: str):
    gold = np.array([0.0, 1.0, 1.0, 0.0])
    perfect = gold[:, None].astype(np.float32) if "earson" in name or name == "spearman" else logits(0, 1, 1, 0)
    assert score(perfect, gold, [name])[name] == pytest.approx(1)


def test_one_row_has_no_correlation():
    assert score(np.ones((1, 1), dtype=np.float32), np.array([1.0]), ["pearson"]) == {"pearson": 0.0}


@pytest.mark.parametrize("scheme", ["bibert", "baseline"])
def test_logits_do_not_depend_on_how_rows_are_batched(teacher: Path, data: TextData, scheme: str):
    full = load_classifier(teacher)
    student = Classifier(binarize(full.model, scheme), full.tokenizer)
    split = data.train
    expected = predict_logits(student, split)
    order = np.random.default_rng(0).permutation(len(split))
    shuffled = replace(split, texts=tuple(split.texts[i] for i in order), labels=tuple(split.labels[i] for i in order))
    for batch_size in (1, 7, 64):
        assert np.array_equal(predict_logits(student, shuffled, batch_size=batch_size), expected[order])


def test_full_precision_logits_agree_up_to_rounding(teacher: Path, data: TextData):
    classifier = load_classifier(teacher)
    expected = predict_logits(classifier, data.train, batch_size=64)
    np.testing.assert_allclose(predict_logits(classifier, data.train, batch_size=5), expected, atol=1e-5)


def test_predicting_leaves_the_mode_of_the_model_as_it_was(teacher: Path, data: TextData):
    classifier = load_classifier(teacher)
    for training in (True, False):
        classifier.model.train(training)
        predict_logits(classifier, data.dev["dev"])
        assert classifier.model.training is training


def test_a_teacher_that_learned_its_task_scores_well(teacher: Path, data: TextData):
    assert evaluate(load_classifier(teacher), data.dev["dev"], data.metrics)["accuracy"] >= 0.9


def test_labels_the_model_does_not_know_are_refused_with_both_numbers(teacher: Path, data: TextData):
    strange = replace(data.dev["dev"], labels=(5.0, *data.dev["dev"].labels[1:]), origin="strange.tsv")
    with pytest.raises(DataError, match=r"strange\.tsv: has label id 5, the model 2 labels"):
        predict_logits(load_classifier(teacher), strange)


def test_batches_by_length_hold_every_row_once(teacher: Path, data: TextData):
    tokenizer = load_classifier(teacher).tokenizer
    encoded = encode(data.train, tokenizer, 16)
    batches = list(batches_by_length(encoded, Collator(tokenizer.pad_token_id), 10))
    rows = np.concatenate([rows for rows, _ in batches])
    assert sorted(rows) == list(range(len(encoded)))
    lengths = torch.cat([batch["attention_mask"].sum(dim=1) for _, batch in batches])
    assert torch.equal(lengths, lengths.sort().values)

"""The answers of a network: logits that do not depend on how rows are batched, and the temperature that fits them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bibert.errors import DataError
from bibert.nn.checkpoint import Classifier, load_classifier
from bibert.nn.students import binarize
from bibert.training.evaluate import fit_temperature, predict_logits


@pytest.mark.parametrize("scheme", ["bibert", "baseline"])
def test_logits_do_not_depend_on_how_rows_are_batched(teacher, data, scheme):
    full = load_classifier(teacher)
    student = Classifier(binarize(full.model, scheme), full.tokenizer)
    split = data.train
    expected = predict_logits(student, split)
    order = np.random.default_rng(0).permutation(len(split))
    shuffled = replace(split, texts=tuple(split.texts[i] for i in order), labels=tuple(split.labels[i] for i in order))
    for batch_size in (1, 7, 64):
        assert np.array_equal(predict_logits(student, shuffled, batch_size=batch_size), expected[order])


def test_full_precision_logits_agree_up_to_rounding_and_the_mode_of_the_model_stays(teacher, data):
    classifier = load_classifier(teacher)
    expected = predict_logits(classifier, data.train, batch_size=64)
    np.testing.assert_allclose(predict_logits(classifier, data.train, batch_size=5), expected, atol=1e-5)
    for training in (True, False):
        classifier.model.train(training)
        predict_logits(classifier, data.dev["dev"])
        assert classifier.model.training is training


def test_labels_the_model_does_not_know_are_refused_with_both_numbers(teacher, data):
    strange = replace(data.dev["dev"], labels=(5.0, *data.dev["dev"].labels[1:]), origin="strange.tsv")
    with pytest.raises(DataError, match=r"strange\.tsv: has label id 5, the model has 2 labels"):
        predict_logits(load_classifier(teacher), strange)


@pytest.mark.parametrize(("rows_right", "distance"), [(75, 4.0), (95, 1.0), (55, 0.5)])
def test_the_temperature_makes_equal_scores_the_share_of_right_answers(rows_right, distance):
    logits = np.tile(np.array([distance, 0.0], np.float32), (100, 1))
    gold = [0.0] * rows_right + [1.0] * (100 - rows_right)
    expected = distance / math.log(rows_right / (100 - rows_right))
    assert fit_temperature(logits, gold) == pytest.approx(expected, abs=1e-4)
    assert fit_temperature(logits * 3, gold) == pytest.approx(3 * expected, abs=1e-3)


def test_the_temperature_of_three_classes_is_the_one_that_drew_the_labels():
    random = np.random.default_rng(0)
    logits = random.normal(0, 4, (20_000, 3)).astype(np.float32)
    noise = random.gumbel(size=logits.shape)  # the largest sum is a draw from the softmax
    assert fit_temperature(logits, (logits / 1.7 + noise).argmax(axis=1)) == pytest.approx(1.7, rel=0.03)


def test_rows_that_fit_no_temperature_leave_scores_alone_and_bad_models_stay_in_range():
    logits = np.array([[2.0, 1.0], [0.0, 3.0]], np.float32)
    assert fit_temperature(logits, [0.0, 1.0]) == 1.0  # all right: the colder, the likelier
    assert fit_temperature(logits[:, :1], [2.0, 0.5]) == 1.0  # a regression
    many = np.tile(logits, (10, 1))
    assert fit_temperature(many, [1.0, 1.0, 1.0, 1.0, *[0.0, 1.0] * 8]) == 1.0  # 2 wrong: chance would decide
    assert fit_temperature(many, [1.0, 0.0] * 10) == pytest.approx(20, abs=1e-3)  # all wrong: the warmer, the likelier

"""The answers of a network: logits that do not depend on how rows are batched."""

from dataclasses import replace

import numpy as np
import pytest

from bibert.errors import DataError
from bibert.nn.checkpoint import Classifier, load_classifier
from bibert.nn.students import binarize
from bibert.training.evaluate import predict_logits


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

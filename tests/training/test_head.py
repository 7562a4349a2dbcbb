"""The classifier of a new task: fitted on pooled tokens while the encoder stays as it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bibert.data.encoding import encode
from bibert.nn.checkpoint import load_classifier
from bibert.training.evaluate import predict_logits
from bibert.training.head import fit_head
from bibert.training.loop import dropout_overrides
from bibert.training.recipe import Recipe
from bibert.training.student import distill


def fitted(start, split, label_names, seed=0):
    classifier = load_classifier(start, label_names, dropout_overrides(Recipe()))
    before = {name: value.clone() for name, value in classifier.model.bert.state_dict().items()}
    fit_head(classifier, encode(split, classifier.tokenizer, 16), "float32", seed)
    assert all(torch.equal(value, before[name]) for name, value in classifier.model.bert.state_dict().items())
    return classifier


def test_the_classifier_is_a_logistic_regression_on_the_pooled_tokens(start, data):
    classifier = fitted(start, data.train, data.label_names)
    answers = predict_logits(classifier, data.train, 16).argmax(axis=1)
    assert np.mean(answers == data.train.labels) >= 0.9
    again = fitted(start, data.train, data.label_names)
    assert torch.equal(classifier.model.classifier.weight, again.model.classifier.weight)


def test_classes_without_a_row_are_never_answered_and_one_class_alone_leaves_the_classifier(start, data):
    names = ("negative", "positive", "mixed")
    classifier = fitted(start, data.train, names)
    assert set(predict_logits(classifier, data.dev["dev"], 16).argmax(axis=1)) <= {0, 1}
    same = replace(data.train, labels=(1,) * len(data.train))
    before = load_classifier(start, names).model.classifier.bias
    assert torch.equal(fitted(start, same, names).model.classifier.bias, before)


def test_scores_are_fitted_by_a_ridge_regression(start, scores):
    found = predict_logits(fitted(start, scores.train, ()), scores.train, 16)[:, 0]
    assert np.corrcoef(found, scores.train.labels)[0, 1] >= 0.5


def test_a_saturated_feature_gets_no_great_weight(start, scores, tmp_path):
    started = load_classifier(start, (), dropout_overrides(Recipe()))
    with torch.no_grad():
        started.model.bert.pooler.dense.bias[0] = 5  # tanh is near 1 for every row
    for part in (started.model, started.tokenizer):
        part.save_pretrained(tmp_path)
    weights = fitted(tmp_path, scores.train, ()).model.classifier.weight[0].abs()
    assert weights[0] <= weights.median()


@pytest.mark.parametrize(("knows", "fits"), [(("negative", "positive"), False), (("bad", "good"), True)])
def test_only_a_start_with_other_labels_gets_a_new_classifier(teacher, data, tmp_path, monkeypatch, knows, fits):
    started = tmp_path / "start"
    classifier = load_classifier(teacher, knows)
    for part in (classifier.model, classifier.tokenizer):
        part.save_pretrained(started)
    calls = []
    monkeypatch.setattr("bibert.training.student.fit_head", lambda *_: calls.append(1))
    recipe = Recipe(learning_rate=1e-3, max_steps=1, batch_size=16, max_length=16)
    distill(teacher, "bibert_4", data, tmp_path / "run", recipe, start=started)
    assert bool(calls) == fits


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_a_start_that_learned_scores_keeps_its_classifier(start, scores, tmp_path, monkeypatch, bias):
    classifier = load_classifier(start, ())
    torch.nn.init.constant_(classifier.model.classifier.bias, bias)  # 0 in an encoder without a task
    for part in (classifier.model, classifier.tokenizer):
        part.save_pretrained(tmp_path / "start")
    calls = []
    monkeypatch.setattr("bibert.training.student.fit_head", lambda *_: calls.append(1))
    recipe = Recipe(learning_rate=1e-3, max_steps=1, batch_size=16, max_length=16)
    distill(None, "bibert_4", scores, tmp_path / "run", recipe, start=tmp_path / "start")
    assert bool(calls) == (bias == 0)

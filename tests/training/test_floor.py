"""Baselines without a network: the majority class and a bag of words, on data small enough to count by hand."""

from dataclasses import replace

import pytest

from bibert.data.examples import Split, TextData
from bibert.errors import DataError
from bibert.training import floor
from bibert.training.floor import bag_of_words, majority_class, words_alone

TRAIN = Split(("fine film", "fine play", "bad film", "bad play") * 5, None, (1.0, 1.0, 0.0, 0.0) * 5, "train.csv")
DEV = Split(("fine", "bad", "bad bad", "fine bad bad"), None, (1.0, 0.0, 0.0, 1.0), "dev.csv")
DATA = TextData("made up", TRAIN, {"dev": DEV}, ("bad", "good"), ("accuracy", "macro_f1"), "made up")


def test_the_majority_class_is_that_of_the_rows_of_each_dev_split():
    dev = replace(DEV, labels=(0.0, 1.0, 1.0, 1.0))
    # of class 1 all 3 are found with 1 too many, 2 · 3 / (4 + 3); class 0 is never answered
    assert majority_class(replace(DATA, dev={"dev": dev})) == {
        "dev_accuracy": 0.75,
        "dev_macro_f1": pytest.approx(6 / 7 / 2),
    }
    other = replace(DEV, labels=(1.0, 1.0, 1.0, 1.0))
    found = majority_class(replace(DATA, dev={"dev": DEV, "dev_mismatched": other}, metrics=("accuracy",)))
    assert found == {"dev_accuracy": 0.5, "dev_mismatched_accuracy": 1.0}


def test_words_alone_learn_from_train_are_scored_on_dev_and_read_both_texts_of_a_pair():
    found = words_alone(DATA)
    assert found["dev_accuracy"] == 0.75  # the last row has "bad" twice
    assert found.keys() == {"dev_accuracy", "dev_macro_f1"}
    pairs = [replace(split, texts=("the",) * len(split), pairs=split.texts) for split in (TRAIN, DEV)]
    assert words_alone(replace(DATA, train=pairs[0], dev={"dev": pairs[1]})) == words_alone(DATA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": ("a", "b", "c", "?") * 5}, r"train\.csv: .*two letters"),
        ({"labels": (1.0,) * 20}, r"train\.csv: all 20 rows have the same label"),
    ],
)
def test_texts_without_words_and_a_single_label_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        bag_of_words(replace(TRAIN, **change))


def test_more_weights_than_fit_in_memory_are_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(floor, "MOST_WEIGHTS", 11)
    bag_of_words(TRAIN)  # two labels have one weight for each of the 4 words
    with pytest.raises(DataError, match=r"4 words and 3 labels .* 12 weights, .* 11"):
        bag_of_words(replace(TRAIN, labels=(0.0, 1.0, 2.0, 2.0) * 5))

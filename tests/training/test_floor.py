"""What one gets without a network: counted by hand, on the dev rows and by the metrics of the data."""

from dataclasses import replace

import pytest

from bibert.data.examples import Split, TextData
from bibert.training.floor import majority_class, words_alone

TRAIN = Split(("fine film", "fine play", "bad film", "bad play") * 5, None, (1.0, 1.0, 0.0, 0.0) * 5, "train.csv")
DEV = Split(("fine", "bad", "bad bad", "fine bad bad"), None, (1.0, 0.0, 0.0, 1.0), "dev.csv")
DATA = TextData("made up", TRAIN, {"dev": DEV}, ("bad", "good"), ("accuracy", "macro_f1"), "made up")


def test_the_majority_class_is_that_of_the_dev_rows():
    dev = replace(DEV, labels=(0.0, 1.0, 1.0, 1.0))
    # of class 1 all 3 are found with 1 too many, 2 · 3 / (4 + 3); class 0 is never answered
    assert majority_class(replace(DATA, dev={"dev": dev})) == {
        "dev_accuracy": 0.75,
        "dev_macro_f1": pytest.approx(6 / 7 / 2),
    }


def test_every_dev_split_has_its_own_majority_class():
    other = replace(DEV, labels=(1.0, 1.0, 1.0, 1.0))
    found = majority_class(replace(DATA, dev={"dev": DEV, "dev_mismatched": other}, metrics=("accuracy",)))
    assert found == {"dev_accuracy": 0.5, "dev_mismatched_accuracy": 1.0}


def test_words_alone_learn_from_train_and_are_scored_on_dev():
    found = words_alone(DATA)
    assert found["dev_accuracy"] == 0.75  # the last one says bad twice
    assert found.keys() == {"dev_accuracy", "dev_macro_f1"}


def test_both_texts_of_a_pair_are_read():
    pairs = [replace(split, texts=("the",) * len(split), pairs=split.texts) for split in (TRAIN, DEV)]
    assert words_alone(replace(DATA, train=pairs[0], dev={"dev": pairs[1]})) == words_alone(DATA)

"""Rows of labelled text, and the report before training."""

import pytest

from bibert.data.examples import Split, TextData, describe

TRAIN = Split(("a b c", "a b c", "d", "e f"), None, (0, 1, 1, 1), "films.csv")
DEV = Split(("d", "d", "new one"), None, (1, 0, 1), "dev.csv")
PAIRS = Split(("a", "a", "a"), ("x y", "y", "x y"), (0.5, 2.5, 4.5), "pairs.tsv")
SWAPPED = Split(("x y",), ("a",), (1,), "dev.tsv")
MANY = Split(tuple(f"t{n}" for n in range(21)), None, (*range(20), 0), "intents.csv")


def report(train, dev=DEV, names=("bad", "good")):
    return describe(TextData("films", train, {"dev": dev}, names, ("accuracy",), "films.csv"))


def test_the_report_has_a_line_for_each_split_with_repeated_rows_and_rows_in_both():
    assert report(TRAIN) == [
        "films: single texts from films.csv",
        "train: 4 rows; bad 1 (25.0%), good 3 (75.0%); words mean 2.2, 95 % 3, max 3; 1 repeated",
        "dev: 3 rows; bad 1 (33.3%), good 2 (66.7%); words mean 1.3, 95 % 1, max 2; 1 repeated; 2 also in train",
    ]


def test_scores_have_a_range_and_a_pair_is_repeated_only_if_both_texts_are():
    assert report(PAIRS, SWAPPED, names=()) == [
        "films: text pairs from films.csv",
        "train: 3 rows; scores 0.5 to 4.5, mean 2.5; words mean 2.7, 95 % 3, max 3; 1 repeated",
        "dev: 1 rows; scores 1 to 1, mean 1; words mean 3.0, 95 % 3, max 3",
    ]


@pytest.mark.parametrize(
    ("train", "names", "balance"),
    [
        (MANY, tuple(f"intent {n}" for n in range(20)), "; 20 classes of 1 to 2 rows; "),
        (SWAPPED, ("bad", "good"), "; bad 0 (0.0%), good 1 (100.0%); "),
    ],
    ids=["many classes", "a class without a row"],
)
def test_the_balance_of_classes_is_told(train, names, balance):
    assert balance in report(train, names=names)[1]


def test_rows_one_by_one_are_texts_or_pairs():
    assert Split(("a", "b"), None, (0, 1), "here").texts_or_pairs == ["a", "b"]
    pairs = Split(("a", "b"), ("c", "d"), (0, 1), "here")
    assert pairs.texts_or_pairs == [("a", "c"), ("b", "d")]
    assert pairs.joined_texts == ["a c", "b d"]

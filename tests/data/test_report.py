"""The report before training: what it counts and how it reads."""

from bibert.data.examples import Split, TextData
from bibert.data.report import Scores, Words, describe


def text_data(train, dev, label_names=("bad", "good")):
    return TextData("films", train, {"dev": dev}, label_names, ("accuracy",), "films.csv")


TRAIN = Split(("a b c", "a b c", "d", "e f"), None, (0, 1, 1, 1), "films.csv")
DEV = Split(("d", "d", "new one"), None, (1, 0, 1), "dev.csv")


def test_rows_and_classes_are_counted():
    train, dev = describe(text_data(TRAIN, DEV)).splits
    assert (train.name, train.rows, train.classes) == ("train", 4, {"bad": 1, "good": 3})
    assert (dev.name, dev.rows, dev.classes) == ("dev", 3, {"bad": 1, "good": 2})
    assert train.scores is None


def test_repeated_rows_and_rows_in_both_splits_are_counted():
    train, dev = describe(text_data(TRAIN, DEV)).splits
    assert (train.duplicates, train.also_in_train) == (1, 0)
    assert (dev.duplicates, dev.also_in_train) == (1, 2)


def test_a_pair_is_repeated_only_if_both_texts_are():
    pairs = Split(("a", "a", "a"), ("x", "y", "x"), (0, 1, 0), "pairs.tsv")
    swapped = Split(("x",), ("a",), (0,), "dev.tsv")
    report = describe(text_data(pairs, swapped))
    assert report.pairs
    assert report.splits[0].duplicates == 1
    assert report.splits[1].also_in_train == 0


def test_words_of_both_texts_count():
    split = Split(("one two", "one"), ("three four five", "two"), (0, 1), "pairs.tsv")
    assert describe(text_data(split, split)).splits[0].words == Words(mean=3.5, percentile_95=4, longest=5)


def test_scores_have_a_range_and_a_mean():
    split = Split(("a", "b"), None, (0.5, 4.5), "scores.tsv")
    report = describe(text_data(split, split, label_names=()))
    assert report.splits[0].scores == Scores(low=0.5, mean=2.5, high=4.5)
    assert report.splits[0].classes == {}


def test_the_report_reads_as_a_line_a_split():
    assert describe(text_data(TRAIN, DEV)).lines() == [
        "films: single texts from films.csv",
        "train: 4 rows; bad 1 (25.0%), good 3 (75.0%); words mean 2.2, 95 % 3, max 3; 1 repeated",
        "dev: 3 rows; bad 1 (33.3%), good 2 (66.7%); words mean 1.3, 95 % 1, max 2; 1 repeated; 2 also in train",
    ]


def test_scores_read_as_a_range():
    split = Split(("a", "b"), ("c", "d"), (0.5, 4.5), "scores.tsv")
    assert describe(text_data(split, split, label_names=())).lines()[:2] == [
        "films: text pairs from films.csv",
        "train: 2 rows; scores 0.5 to 4.5, mean 2.5; words mean 2.0, 95 % 2, max 2",
    ]


def test_many_classes_are_summed_up():
    names = tuple(f"intent {n}" for n in range(20))
    split = Split(tuple(f"t{n}" for n in range(21)), None, (*range(20), 0), "intents.csv")
    assert "; 20 classes of 1 to 2 rows; " in describe(text_data(split, split, names)).lines()[1]


def test_a_class_that_dev_lacks_shows_as_zero():
    dev = Split(("z",), None, (1,), "dev.csv")
    assert describe(text_data(TRAIN, dev)).splits[1].classes == {"bad": 0, "good": 1}

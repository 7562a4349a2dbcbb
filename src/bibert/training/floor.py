"""Baselines without a network, by the metrics and on the dev rows of a training: majority class and bag of words.

Both are for classes only. The bag of words is TF-IDF with logistic regression, scikit-learn's with default settings.
"""

from collections import Counter
from typing import Any

from bibert.data.examples import Split, TextData
from bibert.data.metrics import score_answers
from bibert.errors import DataError

MOST_ITERATIONS = 1000  # scikit-learn's default of 100 may end before the optimum
MOST_WEIGHTS = 4_000_000  # the solver needs about 35 float64 for each, so 1 GB


def majority_class(data: TextData) -> dict[str, float]:
    """The metrics of always answering the most frequent class of each dev split, as `{"dev_accuracy": 0.5, …}`."""
    answers = {name: Counter(split.labels).most_common(1)[0][0] for name, split in data.dev.items()}
    return _metrics(data, {name: [answer] * len(data.dev[name]) for name, answer in answers.items()})


def words_alone(data: TextData) -> dict[str, float]:
    """The metrics of a bag of words that learned from the training rows; raises `DataError` as `bag_of_words` does."""
    model = bag_of_words(data.train)
    return _metrics(data, {name: model.predict(split.joined_texts).tolist() for name, split in data.dev.items()})


def _metrics(data: TextData, answers: dict[str, list[float]] | dict[str, list[int]]) -> dict[str, float]:
    return {
        f"{name}_{metric}": value
        for name, split in data.dev.items()
        for metric, value in score_answers(answers[name], split.labels, data.metrics).items()
    }


def bag_of_words(train: Split, longest: int = 1) -> Any:
    """A trained scikit-learn pipeline whose `predict` takes texts and returns class numbers.

    It counts runs of up to `longest` words; both texts of a pair are one text. Raises `DataError` if the texts have no
    words, there is one label only, or there are too many words and labels.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words, regression = TfidfVectorizer(ngram_range=(1, longest)), LogisticRegression(max_iter=MOST_ITERATIONS)
    try:
        counted = words.fit_transform(train.joined_texts)
    except ValueError as error:  # an empty vocabulary
        raise DataError(f"{train.origin}: has no word of two letters or more to count") from error
    classes, entries = len(set(train.labels)), counted.shape[1]
    if classes == 1:
        raise DataError(f"{train.origin}: all {len(train):,} rows have the same label; a classifier needs two")
    if (weights := entries * (classes if classes > 2 else 1)) > MOST_WEIGHTS:
        needed = f"{entries:,} words and {classes:,} labels need {weights:,} weights"
        raise DataError(f"{train.origin}: {needed}, more than the {MOST_WEIGHTS:,} that fit in memory")
    regression.fit(counted, [int(label) for label in train.labels])
    return make_pipeline(words, regression)

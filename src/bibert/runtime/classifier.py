"""Texts to labels: `load` a packed file, then `predict`, or call it like transformers' text-classification pipeline.

Texts are encoded (`text`) and computed (`engine`) a window at a time, so an endless stream needs bounded memory.
`Answers` is the only place that chooses labels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from threading import Lock
from types import EllipsisType
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from bibert.errors import EngineError, ModelFileError, did_you_mean, one_line
from bibert.models import DEFAULT, find_file, shipped_file
from bibert.packed import file
from bibert.packed.file import PackedModel
from bibert.runtime.engine import Engine
from bibert.runtime.text import BY_NUMBER, Text, TextEncoder, Where, is_blank

WINDOW = 512  # rows that are sorted by length and computed together

Scores = NDArray[np.float64]
Texts = str | Iterable[str]
Item = Text | Mapping[str, str]  # of a call: a text, a pair, or {"text": ..., "text_pair": ...}


class Prediction(TypedDict):
    """A label and its score."""

    label: str
    score: float


Answer = Prediction | list[Prediction]


@dataclass(frozen=True)
class Answers:
    """The scores of some rows, and the labels that follow from them."""

    labels: tuple[str, ...]
    scores: Scores  # (rows, labels): by default the probabilities of the labels, or the value of a regression

    def best(self, min_score: float | None = None) -> list[Prediction]:
        """Return the label with the highest score of each row, the first of equal ones; "" below `min_score`."""
        best = [row[0] for row in self.ranked(1)]
        return [{**row, "label": ""} if min_score is not None and row["score"] < min_score else row for row in best]

    def ranked(self, top_k: int | None = None) -> list[list[Prediction]]:
        """Return the `top_k` best labels of each row, or all of them, the highest score first."""
        order = np.argsort(-self.scores, axis=1, kind="stable")[:, :top_k]
        return [
            [{"label": self.labels[place], "score": float(row[place])} for place in places]
            for places, row in zip(order, self.scores, strict=True)
        ]


def softmax(logits: NDArray[Any], temperature: float = 1.0) -> Scores:
    """Probabilities of mutually exclusive labels, over the last axis; a `temperature` above 1 brings them together."""
    raised = np.exp((logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)) / temperature)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def check_min_score(min_score: float | None, labels: Sequence[str]) -> None:
    """Raise `EngineError` unless a model with these labels can abstain below `min_score`; None is never."""
    if min_score is not None and len(labels) == 1:
        raise EngineError(f"min_score is {min_score}, but the model is a regression (1 label); leave it out")
    if min_score is not None and not 0 < min_score <= 1:
        raise EngineError(f"min_score is {min_score}, must be above 0 and at most 1")


def sigmoid(logits: NDArray[Any]) -> Scores:
    """Probabilities of independent labels."""
    values = logits.astype(np.float64)
    return np.asarray(np.exp(-np.logaddexp(0.0, -values)))  # 1 / (1 + exp(-x)) without overflow


SCORE_FUNCTIONS: Mapping[str, Callable[[NDArray[Any]], Scores]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "none": lambda logits: logits.astype(np.float64),
}


def load(path_or_hub_id: Path | str = DEFAULT, threads: int = 0, isa: str | None = None) -> "TextClassifier":
    """Load a packed model: a file, a folder with exactly one, "owner/name" or "owner/name@revision" on the Hub.

    By default this is "sentiment_4", the sentiment of English sentences, which ships with the package. `threads` share
    a call; 0 means one per CPU that the calling thread may use. `isa` is the instruction set, such as "avx2"; None uses
    the variable BIBERT_ISA, else the best one.

    Raises:
        ModelFileError: there is no such file, it is not a complete packed model, or it has no task.
        EngineError: the native library is missing, or this CPU does not support `isa`.

    Examples:
        >>> classifier = bibert.load()
        >>> classifier.predict(["a fine film", "a waste of time"])
        [{"label": "positive", "score": 0.98}, {"label": "negative", "score": 0.99}]
    """
    path = find_file(path_or_hub_id)
    packed = file.load(path)
    match packed.about:
        case {"metrics": {"dev_cosine": _}}:  # made by bibert generalize
            name = path.stem if shipped_file(path.stem) == path else path
            raise ModelFileError(f"{name} has no task; train one: bibert train DATA --start {name}")
    try:
        return TextClassifier(packed, threads, isa)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except MemoryError as error:
        raise ModelFileError(f"{path}: too little memory ({one_line(error)}); close other programs") from error


class TextClassifier:
    """A packed model with its tokenizer and its labels. Threads may share it, and it can be pickled.

    Methods that take texts accept a single text or any iterable of texts. A model with one label is a regression: its
    score is the value itself, and it has no probabilities.
    """

    def __init__(self, packed: PackedModel, threads: int = 0, isa: str | None = None) -> None:
        self.packed = packed
        self.engine = Engine.from_packed(packed, threads, isa)
        rows, types = packed.config.vocabulary, packed.config.token_types
        self.encoder = TextEncoder(packed.tokenizer, rows, packed.max_length, token_types=types, parallel=threads != 1)
        self.labels = packed.labels
        self.about = packed.about  # where the model comes from
        self.temperature = packed.temperature  # probabilities are the softmax of logits / it; logits stay exact
        self.config = packed.config
        self.isa = self.engine.isa
        self.max_length = packed.max_length  # tokens of the longest input; longer ones are truncated
        self.texts_cut = 0  # how many inputs so far were truncated
        self.texts_blank = 0  # how many inputs so far held only whitespace; their labels mean nothing
        self._counting = Lock()

    def __repr__(self) -> str:
        labels = ", ".join(self.labels[:5]) + (", ..." if len(self.labels) > 5 else "")
        return f"<{type(self).__name__} {self.config.layers} x {self.config.hidden} on {self.isa}: {labels}>"

    def predict(self, texts: Texts, pairs: Texts | None = None, *, min_score: float | None = None) -> list[Prediction]:
        """Return the best label of each text with its probability; for a regression, its value.

        For models of pairs, `pairs` has the second text of each. A label whose probability is below `min_score` is
        empty. Raises `EngineError` if a row is not a text.
        """
        return list(self.predict_stream(texts, pairs, min_score=min_score))

    def predict_stream(
        self, texts: Texts, pairs: Texts | None = None, window: int = WINDOW, *, min_score: float | None = None
    ) -> Iterator[Prediction]:
        """Like `predict`, in bounded memory: reads `window` texts, then yields their labels."""
        if not isinstance(window, int | np.integer) or window < 1:
            raise EngineError(f"window is {window!r}, must be a whole number of 1 or more")
        check_min_score(min_score, self.labels)
        blocks = self._blocks(_rows(texts, pairs), window)
        return (answer for block in blocks for answer in self.scored(block).best(min_score))

    def predict_proba(self, texts: Texts, pairs: Texts | None = None) -> Scores:
        """Return probabilities (texts, labels); each row sums to 1. A regression raises `EngineError`."""
        if len(self.labels) == 1:
            raise EngineError("the model is a regression (1 label), which has no probabilities; use predict or logits")
        return self.answers(_rows(texts, pairs)).scores

    def answers(self, rows: Iterable[Text], where: Where = BY_NUMBER) -> Answers:
        """Return labels and all probabilities of texts or pairs, in one pass; errors as for `predict`, with `where`."""
        nothing, blocks = np.empty((0, len(self.labels))), self._blocks(rows, WINDOW, where)
        return Answers(self.labels, np.concatenate([nothing, *(self.scored(block).scores for block in blocks)]))

    def logits(self, texts: Texts, pairs: Texts | None = None, where: Where = BY_NUMBER) -> NDArray[np.float32]:
        """Return the raw outputs of the network, (texts, labels); `where` gives the place of a row, for messages."""
        nothing = np.empty((0, len(self.labels)), dtype=np.float32)
        return np.concatenate([nothing, *self._blocks(_rows(texts, pairs), WINDOW, where)])

    def scored(self, logits: NDArray[np.float32], function: str | None = None) -> Answers:
        """Turn logits (rows, labels) into scores and labels; `function` is `function_to_apply` of a call."""
        return Answers(self.labels, self._score_function(function)(logits))

    def __call__(
        self,
        inputs: str | Mapping[str, str] | Iterable[Item],
        *,
        top_k: int | EllipsisType | None = ...,
        function_to_apply: str | None = None,
    ) -> Answer | list[Answer] | Iterator[Answer]:
        """Classify like transformers' `pipeline("text-classification")`, with answers of the same shape.

        A text returns a list with one answer, a {"text", "text_pair"} a single answer, a list returns a list, any
        other iterable an iterator. With `top_k`, each answer is a list of the best labels; None for all labels.
        `function_to_apply` is "softmax", "sigmoid" or "none"; None means softmax, and "none" for a regression. Only
        softmax divides by the temperature.
        """
        _check_iterable("inputs", inputs)
        if not isinstance(top_k, EllipsisType | None) and (not isinstance(top_k, int | np.integer) or top_k < 1):
            every = f"None for all {len(self.labels)} labels"
            raise EngineError(f"top_k is {top_k!r}, must be a whole number of 1 or more, or {every}")
        rows = map(_as_row, [inputs] if isinstance(inputs, str | Mapping) else inputs)
        score = self._score_function(function_to_apply)  # refuses a wrong name before the first row
        blocks = (Answers(self.labels, score(block)) for block in self._blocks(rows, WINDOW))
        answers = (answer for block in blocks for answer in (block.best() if top_k is ... else block.ranked(top_k)))
        if isinstance(inputs, Mapping) or (isinstance(inputs, str) and top_k is not ...):
            return next(answers)
        return list(answers) if isinstance(inputs, Sized) else answers

    def save(self, path: Path | str) -> None:
        """Write the packed file, whole or not at all."""
        file.save(self.packed, path)

    def close(self) -> None:
        """Free the memory of the engine; later calls fail."""
        self.engine.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the contents of the file, which reach any machine; there the best instruction set is chosen again."""
        return _restored, (file.dump(self.packed), self.engine.threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score_function(self, function: str | None) -> Callable[[NDArray[np.float32]], Scores]:
        name = str(function or ("none" if len(self.labels) == 1 else "softmax")).lower()
        if name not in SCORE_FUNCTIONS:
            raise EngineError(f"function_to_apply is {function!r}; {did_you_mean(name, SCORE_FUNCTIONS)}")
        return partial(softmax, temperature=self.temperature) if name == "softmax" else SCORE_FUNCTIONS[name]

    def _blocks(self, rows: Iterable[Text], window: int, where: Where = BY_NUMBER) -> Iterator[NDArray[np.float32]]:
        """Yield logits in the order of the rows, a window at a time."""
        remaining, first = iter(rows), 0
        while some := list(islice(remaining, window)):
            encoded = self.encoder.encode(some, first, where)
            with self._counting:
                self.texts_cut += sum(row.truncated for row in encoded)
                self.texts_blank += sum(map(is_blank, some))
            yield self.engine.logits_of(encoded)
            first += len(some)


def _restored(contents: bytes, threads: int) -> TextClassifier:
    return TextClassifier(file.parse(contents), threads)


def _check_iterable(name: str, value: Any) -> None:
    try:
        iter(value)  # isinstance(value, Iterable) is false for classes that only have `__getitem__`
    except TypeError:
        raise EngineError(f"{name}: {value!r:.40} ({type(value).__name__}) is not a text or a list of texts") from None


def _rows(texts: Texts, pairs: Texts | None) -> Iterator[Text]:
    _check_iterable("texts", texts)
    if pairs is None:
        return iter([texts] if isinstance(texts, str) else texts)
    _check_iterable("pairs", pairs)
    if isinstance(texts, str) != isinstance(pairs, str):
        raise EngineError("one of texts and pairs is a single text, the other is not; pass a pair for each text")
    return _joined([texts], [pairs]) if isinstance(texts, str) else _joined(texts, pairs)  # type: ignore[list-item]


def _joined(texts: Iterable[str], pairs: Iterable[str]) -> Iterator[Text]:
    for number, (text, pair) in enumerate(zip_longest(texts, pairs, fillvalue=...)):
        if isinstance(text, EllipsisType) or isinstance(pair, EllipsisType):
            missing = "text" if isinstance(text, EllipsisType) else "pair"
            raise EngineError(f"row {number}: has no {missing}; pass as many pairs as texts")
        yield text, pair


def _as_row(item: Any) -> Text:
    """An item of a call as a row; the encoder rejects anything that is neither a text nor a pair."""
    if not isinstance(item, Mapping):
        return item  # type: ignore[no-any-return]
    if "text" not in item or not item.keys() <= {"text", "text_pair"}:
        raise EngineError(f"a row has the keys {sorted(map(str, item))}, must have 'text' and may have 'text_pair'")
    return item["text"] if item.get("text_pair") is None else (item["text"], item["text_pair"])

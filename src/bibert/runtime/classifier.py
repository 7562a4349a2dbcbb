"""Texts to labels: `load` a packed file, then `predict`, or call it like transformers' text-classification pipeline.

Here rows are read, encoded (`text`), computed (`engine`) and scored (`scores`) window by window, so that an endless
stream of texts needs no more memory than a short one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice, zip_longest
from pathlib import Path
from threading import Lock
from types import EllipsisType, TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bibert.errors import EngineError, ModelFileError, NumericError
from bibert.models import DEFAULT, shipped_file
from bibert.packed import file
from bibert.packed.schema import PackedConfig
from bibert.runtime.engine import Encoded, Engine
from bibert.runtime.hub import SUFFIX, fetch, is_hub_id
from bibert.runtime.scores import Floats, Prediction, best, ranked, score_function, softmax
from bibert.runtime.text import Row, TextEncoder

WINDOW = 512  # rows that are sorted by length and computed together

Texts = str | Iterable[str]
Item = Row | Mapping[str, str]  # of a call: a text, two, or {"text": ..., "text_pair": ...}
Answer = Prediction | list[Prediction]


def load(path_or_hub_id: Path | str = DEFAULT, threads: int = 0, isa: str | None = None) -> "TextClassifier":
    """Load a packed model.

    Args:
        path_or_hub_id: a packed file, a folder with exactly one, "owner/name" or "owner/name@revision" on the Hub, or
            the name of a model that comes with the package: "sst2", the sentiment of English sentences.
        threads: how many threads work on a call; 0 is one for each CPU that the calling thread may use.
        isa: the instructions to use, such as "avx2"; None takes what the variable BIBERT_ISA says, else the best.

    Raises:
        ModelFileError: there is no such file, or it is not a whole packed model.
        EngineError: the native library is missing, or this CPU does not have `isa`.

    Example:
        classifier = bibert.load()
        classifier.predict(["a fine film", "a waste of time"])
        # [{"label": "positive", "score": 0.98}, {"label": "negative", "score": 0.99}]
    """
    path = find_file(path_or_hub_id)
    packed = file.load(path)
    labels, about, max_length, tokenizer = packed.labels, packed.about, packed.max_length, packed.tokenizer
    try:
        engine = Engine.from_packed(packed, threads, isa)
        del packed  # the engine has a copy of its own, and the tokenizer needs room
        encoder = TextEncoder(tokenizer, engine.config.vocabulary, max_length, parallel=threads != 1)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    return TextClassifier(engine, encoder, labels, about)


def find_file(path_or_hub_id: Path | str) -> Path:
    """The packed file that `load` would read; one on the Hub is fetched.

    Raises:
        ModelFileError: there is none, or a folder has several.
    """
    path = Path(path_or_hub_id)
    try:
        exists = path.exists()
    except OSError:  # such as a name that is too long for a file; whoever reads it says so
        return path
    if isinstance(path_or_hub_id, str) and not exists:
        if shipped := shipped_file(path_or_hub_id):
            return shipped
        if is_hub_id(path_or_hub_id):
            path = fetch(path_or_hub_id)
    if not path.is_dir():
        return path
    found = sorted(path.glob(f"*{SUFFIX}"))
    if len(found) != 1:
        remedy = f"give one, such as {found[0]}" if found else "bibert pack makes one"
        raise ModelFileError(f"{path_or_hub_id}: has {len(found)} files that end in {SUFFIX}, must have 1; {remedy}")
    return found[0]


class TextClassifier:
    """A packed model with its tokenizer and its labels. Any number of threads may use it at once.

    Wherever texts are expected, a single text may be given, or anything that yields texts. A model with one label is
    a regression: its score is the value itself, and it has no probabilities.

    Attributes:
        labels: the names of the classes by their numbers.
        about: where the model comes from.
        engine: what computes the logits.
        encoder: what makes token ids of texts.
    """

    def __init__(self, engine: Engine, encoder: TextEncoder, labels: Sequence[str], about: Mapping[str, Any]) -> None:
        self.engine = engine
        self.encoder = encoder
        self.labels = tuple(labels)
        self.about = about
        self._cut = 0
        self._blank = 0
        self._counting = Lock()

    def __repr__(self) -> str:
        labels = ", ".join(self.labels[:5]) + (", ..." if len(self.labels) > 5 else "")
        return f"<{type(self).__name__} {self.config.layers} x {self.config.hidden} on {self.isa}: {labels}>"

    @property
    def config(self) -> PackedConfig:
        """The shape of the model."""
        return self.engine.config

    @property
    def isa(self) -> str:
        """The instructions it runs on."""
        return self.engine.isa

    @property
    def max_length(self) -> int:
        """Tokens of the longest input; what is longer is cut."""
        return self.encoder.max_length

    @property
    def texts_cut(self) -> int:
        """How many of the inputs so far were longer than that, so that their ends were not read."""
        return self._cut

    @property
    def texts_blank(self) -> int:
        """How many of the inputs so far had nothing but spaces; they are answered too, and it means nothing."""
        return self._blank

    def predict(self, texts: Texts, pairs: Texts | None = None) -> list[Prediction]:
        """The best label of each text with its probability, or its value if this is a regression.

        Args:
            texts: what to classify.
            pairs: the second text of each, for models of pairs.

        Raises:
            EngineError: a row is not a text, or `pairs` has another length.
        """
        return list(self.predict_stream(texts, pairs))

    def predict_stream(self, texts: Texts, pairs: Texts | None = None, window: int = WINDOW) -> Iterator[Prediction]:
        """The same one by one, in bounded memory: `window` texts are read, then their answers come."""
        if window < 1:
            raise EngineError(f"window is {window}, must be 1 or more")
        score = score_function(None, len(self.labels))
        return (best(self.labels, row) for row in self._scores(_rows(texts, pairs), score, window))

    def predict_proba(self, texts: Texts, pairs: Texts | None = None) -> Floats:
        """Probabilities (texts, labels), which add up to 1.

        Raises:
            EngineError: the model is a regression, or see `predict`.
        """
        if len(self.labels) == 1:
            raise EngineError("the model is a regression (1 label), which has no probabilities; use predict or logits")
        return softmax(self.logits(texts, pairs))

    def logits(self, texts: Texts, pairs: Texts | None = None) -> NDArray[np.float32]:
        """What the network says, (texts, labels), before it is made a score."""
        nothing = np.empty((0, len(self.labels)), dtype=np.float32)
        return np.concatenate([nothing, *self._blocks(_rows(texts, pairs), WINDOW)])

    def __call__(
        self,
        inputs: str | Mapping[str, str] | Iterable[Item],
        *,
        top_k: int | EllipsisType | None = ...,
        function_to_apply: str | None = None,
    ) -> Answer | list[Answer] | Iterator[Answer]:
        """Classify as transformers' `pipeline("text-classification")` does, with answers of the same shape.

        One text gives a list with one answer, one {"text", "text_pair"} a bare answer, a list gives a list, and
        anything else that yields texts an iterator. With `top_k`, each answer is a list of labels.

        Args:
            inputs: see above.
            top_k: how many labels each answer has, the best first; None is all of them.
            function_to_apply: "softmax", "sigmoid" or "none"; None is softmax, and "none" for a regression.

        Raises:
            EngineError: an input is not a text, or an option has no such value.
        """
        if not _is_iterable(inputs):
            raise EngineError(f"inputs: {inputs!r:.40} ({type(inputs).__name__}) is not a text or a list of texts")
        answer = self._answer(top_k)
        score = score_function(function_to_apply, len(self.labels))
        if isinstance(inputs, str | Mapping):
            (row,) = self._scores([_as_row(inputs)], score, 1)
            return [answer(row)] if isinstance(inputs, str) and top_k is ... else answer(row)
        answers = (answer(row) for row in self._scores(map(_as_row, inputs), score, WINDOW))
        return list(answers) if isinstance(inputs, Sized) else answers

    def close(self) -> None:
        """Free the memory of the model; further calls are refused."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, top_k: int | EllipsisType | None) -> Callable[[Floats], Answer]:
        if isinstance(top_k, EllipsisType):
            return lambda scores: best(self.labels, scores)
        if top_k is not None and (not isinstance(top_k, int | np.integer) or top_k < 1):
            every = f"None for all {len(self.labels)} labels"
            raise EngineError(f"top_k is {top_k!r}, must be a whole number of 1 or more, or {every}")
        return lambda scores: ranked(self.labels, scores, top_k)

    def _scores(self, rows: Iterable[Row], score: Callable[[NDArray[Any]], Floats], window: int) -> Iterator[Floats]:
        for block in self._blocks(rows, window):
            yield from score(block)

    def _blocks(self, rows: Iterable[Row], window: int) -> Iterator[NDArray[np.float32]]:
        """Logits in the order of the rows, a window at a time."""
        remaining, first = iter(rows), 0
        while some := list(islice(remaining, window)):
            encoded = self.encoder.encode(some, first)
            with self._counting:
                self._cut += sum(row.truncated for row in encoded)
                self._blank += sum(not "".join(row).strip() for row in some)
            yield self._compute(encoded, first)
            first += len(some)

    def _compute(self, encoded: Sequence[Encoded], first: int) -> NDArray[np.float32]:
        try:
            return self.engine.logits_of(encoded)
        except NumericError as error:
            raise NumericError(f"rows {first} to {first + len(encoded) - 1}, {error}") from error


def _is_iterable(value: Any) -> bool:
    """Whether a loop takes it; a data set with `__getitem__` alone is no `Iterable` by its type."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def _rows(texts: Texts, pairs: Texts | None) -> Iterator[Row]:
    for name, value in (("texts", texts), ("pairs", pairs if pairs is not None else ())):
        if not _is_iterable(value):
            raise EngineError(f"{name}: {value!r:.40} ({type(value).__name__}) is not a list of texts; give one")
    if pairs is None:
        return iter([texts] if isinstance(texts, str) else texts)
    if isinstance(texts, str) != isinstance(pairs, str):
        raise EngineError("one of texts and pairs is a single text, the other is not; give a pair for each text")
    return _joined([texts], [pairs]) if isinstance(texts, str) else _joined(texts, pairs)  # type: ignore[list-item]


def _joined(texts: Iterable[str], pairs: Iterable[str]) -> Iterator[Row]:
    for number, (text, pair) in enumerate(zip_longest(texts, pairs, fillvalue=...)):
        if isinstance(text, EllipsisType) or isinstance(pair, EllipsisType):
            missing = "text" if isinstance(text, EllipsisType) else "pair"
            raise EngineError(f"row {number}: has no {missing}; texts and pairs must be equally many")
        yield text, pair


def _as_row(item: Any) -> Row:
    """An item of a call; what is neither a text nor a pair is refused when it is encoded."""
    if not isinstance(item, Mapping):
        return item  # type: ignore[no-any-return]
    if "text" not in item or not item.keys() <= {"text", "text_pair"}:
        raise EngineError(f"a row has the keys {sorted(map(str, item))}, must have 'text' and may have 'text_pair'")
    return item["text"] if item.get("text_pair") is None else (item["text"], item["text_pair"])

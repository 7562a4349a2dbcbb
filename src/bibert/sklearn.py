"""`BibertClassifier`: training and prediction as a scikit-learn estimator, for pipelines, searches and validation.

`fit` needs torch and keeps the packed model; everything after it does not, in another process or on another machine.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bibert.data.tables import table_of_rows
from bibert.errors import EngineError
from bibert.learn import train
from bibert.runtime.classifier import Answers, TextClassifier, load


class BibertClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains on texts and their labels, from the encoder in the package, and packs the result.

    Args:
        bits: bits of activations, 1, 2 or 4.
        start: another packed file, or a folder, to start from.
        epochs: passes over the texts; None for the number of steps of the recipe `labels`.
        max_steps: an upper limit of optimizer steps.
        changes: other keys of the recipe, such as `{"learning_rate": 1e-3}`.
        random_state: the seed; None for a new one each time.

    Texts are strings, or pairs of strings. After `fit`, `classes_` has the labels in the order of the probabilities,
    and `model_` is the packed `TextClassifier`.
    """

    def __init__(
        self,
        *,
        bits: int = 4,
        start: Path | str | None = None,
        epochs: float | None = None,
        max_steps: int | None = None,
        changes: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.bits = bits
        self.start = start
        self.epochs = epochs
        self.max_steps = max_steps
        self.changes = changes
        self.random_state = random_state

    @classmethod
    def from_packed(cls, model: TextClassifier | Path | str) -> Self:
        """Return a fitted classifier that uses a packed model."""
        made = cls()
        made.model_ = model if isinstance(model, TextClassifier) else load(model)
        if len(made.model_.labels) == 1:
            raise EngineError("the model is a regression (1 label), not a classifier; call it without scikit-learn")
        made.classes_ = np.array(made.model_.labels)
        return made

    def fit(self, X: Iterable[Any], y: Iterable[Any]) -> Self:
        """Train on texts and labels; a tenth of the rows calibrates the scores."""
        labels = column_or_1d(y)
        check_classification_targets(labels)
        classes, ids = np.unique(labels, return_inverse=True)
        names = [str(name) for name in classes]
        budget = {"epochs": self.epochs, "max_steps": self.max_steps}
        changes = {**(self.changes or {}), **{name: value for name, value in budget.items() if value is not None}}
        if isinstance(self.random_state, int | np.integer):
            seed = int(self.random_state)
        else:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        table = table_of_rows(_rows(X), [names[number] for number in ids], names)
        model = train(table, bits=self.bits, start=self.start, **{"seed": seed, **changes})
        self.model_, self.classes_ = model, classes
        return self

    def predict(self, X: Iterable[Any]) -> NDArray[Any]:
        """Return the likeliest label of each text."""
        answers = self._answers(X)
        number_of = {label: number for number, label in enumerate(answers.labels)}
        return np.asarray(self.classes_[[number_of[answer["label"]] for answer in answers.best()]])

    def predict_proba(self, X: Iterable[Any]) -> NDArray[np.float64]:
        """Return the probabilities (texts, classes), in the order of `classes_`."""
        return self._answers(X).scores

    def _answers(self, rows: Iterable[Any]) -> Answers:
        check_is_fitted(self, "model_")
        return self.model_.answers(_rows(rows))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.string = True
        return tags


def _rows(given: Iterable[Any]) -> Iterable[Any]:
    """The rows as a model takes them; those of a data frame would be the names of its columns."""
    if isinstance(given, str):
        raise EngineError("X is one text, must be a list of texts: [X]")
    if hasattr(given, "columns"):
        raise EngineError(
            "X is a table, must be a column of texts: X['text'], or pairs: X[['text', 'pair']].to_numpy()"
        )
    return [tuple(row) if isinstance(row, np.ndarray) else row for row in given]

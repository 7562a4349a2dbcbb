"""Logits to what a user reads: scores, and labels in their order, as in transformers' text-classification pipeline.

Scores are float64 whatever the logits are, so that they add up to 1 as well as 64 bits allow.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from bibert.errors import EngineError, did_you_mean

Floats = NDArray[np.float64]


class Prediction(TypedDict):
    """One label and how much speaks for it."""

    label: str
    score: float


def softmax(logits: NDArray[Any]) -> Floats:
    """Probabilities of labels that exclude each other, over the last axis."""
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def sigmoid(logits: NDArray[Any]) -> Floats:
    """Probabilities of labels that do not depend on each other."""
    values = logits.astype(np.float64)
    return np.asarray(np.exp(-np.logaddexp(0.0, -values)))  # 1 / (1 + exp(-x)) where exp(-x) may overflow


def raw(logits: NDArray[Any]) -> Floats:
    """The logits themselves."""
    return logits.astype(np.float64)


SCORES: Mapping[str, Callable[[NDArray[Any]], Floats]] = MappingProxyType(
    {"softmax": softmax, "sigmoid": sigmoid, "none": raw}
)


def score_function(name: str | None, labels: int) -> Callable[[NDArray[Any]], Floats]:
    """The function called `name`; None is softmax, and for regression, which has one label, the raw value.

    Raises:
        EngineError: there is no such function.
    """
    if name is None:
        return raw if labels == 1 else softmax
    if name.lower() not in SCORES:
        raise EngineError(f"function_to_apply is {name!r}; {did_you_mean(name.lower(), SCORES)}")
    return SCORES[name.lower()]


def best(labels: Sequence[str], scores: NDArray[Any]) -> Prediction:
    """The label with the highest score; of equal ones the first."""
    place = int(scores.argmax())
    return {"label": labels[place], "score": float(scores[place])}


def ranked(labels: Sequence[str], scores: NDArray[Any], top_k: int | None) -> list[Prediction]:
    """The `top_k` labels with the highest scores, or all of them, highest first."""
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [{"label": labels[place], "score": float(scores[place])} for place in order]

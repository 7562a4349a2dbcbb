"""The logits of a network on a split, and the temperature that fits them; `data.metrics` has the metrics of logits."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bibert.data import MAX_LENGTH
from bibert.data.encoding import Batch, Collator, batches_by_length, check_types, encode
from bibert.data.examples import Split
from bibert.errors import DataError
from bibert.nn.checkpoint import Classifier
from bibert.nn.model import evaluating
from bibert.packed.header import TEMPERATURES

FEWEST_MISTAKES = 5  # of a fit of the temperature
Watch = Callable[[Iterable[Batch], int], Iterable[Batch]]  # passes on so many batches and may show progress


def predict_logits(
    classifier: Classifier,
    split: Split,
    max_length: int = MAX_LENGTH,
    batch_size: int = 64,
    *,
    watch: Watch | None = None,
) -> npt.NDArray[np.float32]:
    """The logits of every row, in order, in eval mode; texts are cut after `max_length` tokens."""
    model, tokenizer = classifier.model, classifier.tokenizer
    labels, largest = model.config.num_labels, max(split.labels, default=0)
    if 1 < labels <= largest:
        remedy = "evaluate it on the task it was trained for"
        raise DataError(f"{split.origin}: has label id {largest:g}, the model has {labels} labels; {remedy}")
    encoded = encode(split, tokenizer, min(max_length, model.config.max_position_embeddings))
    check_types(encoded, model.config.type_vocab_size)
    out = np.empty((len(encoded), labels), dtype=np.float32)
    batches = batches_by_length(encoded, Collator(tokenizer.pad_token_id), batch_size)
    with evaluating(model):
        for rows, batch in batches if watch is None else watch(batches, math.ceil(len(encoded) / batch_size)):
            inputs = {name: value.to(model.device) for name, value in batch.items() if name != "labels"}
            out[rows] = model(**inputs).logits.cpu().numpy()
    return out


def fit_temperature(logits: npt.NDArray[Any], labels: npt.NDArray[Any] | Sequence[float]) -> float:
    """The temperature at which the softmax of logits / temperature makes gold labels likeliest, to four digits.

    1, which changes nothing, for a regression, and if fewer than `FEWEST_MISTAKES` rows are wrong: then chance decides.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    gold, exact = np.asarray(labels).astype(np.int64), logits.astype(np.float64)
    if logits.shape[-1] == 1 or (logits.argmax(axis=-1) != gold).sum() < FEWEST_MISTAKES:
        return 1.0

    def loss(exponent: float) -> float:
        return float(-log_softmax(exact / math.exp(exponent), axis=-1)[np.arange(len(gold)), gold].mean())

    # It has one minimum, since it is convex in 1 / temperature.
    found = minimize_scalar(loss, bounds=tuple(map(math.log, TEMPERATURES)), method="bounded")
    return round(math.exp(found.x), 4)

"""Texts to class numbers, which is what a user pays for: a packed file, or a rival with a tokenizer before it.

A rival gets the leanest way there is: the tokenizers library without transformers around it, padding to the longest
text of the call, and the place of the largest logit.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bibert.errors import CheckpointError, one_line
from bibert.lab.rivals.inputs import Run
from bibert.runtime.classifier import TextClassifier

Classify = Callable[[Sequence[str]], list[int]]


def packed_classify(classifier: TextClassifier) -> Classify:
    """A packed model by the call that users make."""
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    return lambda texts: [numbers[str(found["label"])] for found in classifier.predict(texts)]


def rival_classify(run: Run, tokenizer: Tokenizer) -> Classify:
    """A rival behind a tokenizer of `read_tokenizer`."""

    def classify(texts: Sequence[str]) -> list[int]:
        encodings = tokenizer.encode_batch_fast(list(texts))
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        numbers: list[int] = run(ids, mask).argmax(axis=1).tolist()
        return numbers

    return classify


def read_tokenizer(path: Path, max_length: int) -> Tokenizer:
    """Read tokenizer.json; inputs are cut to `max_length` tokens and padded to the longest of a call.

    Raises:
        CheckpointError: there is no such file, or it is not a tokenizer.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; save the tokenizer there with tokenizer.save_pretrained(folder)")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises this very class
        raise CheckpointError(f"{path}: is not a tokenizer ({one_line(error)}); save it again") from error
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding()  # the mask hides what stands there
    return tokenizer

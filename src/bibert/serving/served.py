"""A model that is served: what it computes for a batch of requests, what it is, and a new file while it runs."""

import base64
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.errors import BibertError, one_line
from bibert.models import find_file
from bibert.runtime import reference
from bibert.runtime.classifier import TextClassifier, load
from bibert.runtime.text import Text

log = logging.getLogger(__name__)
WARM_UP = "a text to warm up with"


@dataclass(frozen=True)
class Outcome:
    """What a model says about the rows of one request."""

    classifier: TextClassifier
    logits: NDArray[np.float32]  # (rows, labels)
    tokens: tuple[int, ...]  # of each row
    truncated: tuple[bool, ...]


class ServedModel:
    """A packed file under a name. Threads may share it; a reload replaces the classifier between two batches."""

    def __init__(self, name: str, place: str) -> None:
        self.name, self.place = name, place
        self.path = find_file(place)
        self.reloads = 0
        self._refused = ""  # why the last file could not be used
        self._load()

    def _load(self) -> None:
        self._stamp = _stamp(self.path)  # first: a file that changes while it is read is read again
        classifier = load(self.path, threads=1)
        classifier.predict([WARM_UP])
        self.sha = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.classifier = classifier

    def compute(self, groups: list[Sequence[Text]]) -> list[Outcome]:
        """Compute the rows of several requests as one batch."""
        classifier = self.classifier
        encoded = classifier.encoder.encode([row for rows in groups for row in rows])
        logits = classifier.engine.logits_of(encoded)
        outcomes, start = [], 0
        for rows in groups:
            own = slice(start, start := start + len(rows))
            tokens = tuple(len(row.ids) for row in encoded[own])
            outcomes.append(Outcome(classifier, logits[own], tokens, tuple(row.truncated for row in encoded[own])))
        return outcomes

    def attention(self, groups: list[Sequence[Text]]) -> list[dict[str, Any]]:
        """The attention weights of every layer and head for one text, by the numpy reference.

        A weight is a byte, from 0 to `levels` - 1; the bytes are those of an array (layers, heads, queries, keys).
        """
        [[row]] = groups
        classifier = self.classifier
        packed, encoder = classifier.packed, classifier.encoder
        [encoded] = encoder.encode([row])
        types = None if encoded.token_types is None else [encoded.token_types]
        trace = reference.trace(packed, [encoded.ids], None, types)
        weights = np.stack([layer.attention[0] for layer in trace.layers]).astype(np.uint8)
        return [
            {
                "tokens": encoder.tokens_of(encoded.ids.tolist()),
                "layers": weights.shape[0],
                "heads": weights.shape[1],
                "levels": 2**packed.config.attention_bits,
                "weights": base64.b64encode(weights.tobytes()).decode("ascii"),
            }
        ]

    def reload_if_replaced(self) -> None:
        """Load the file again if it is another one; a bad file changes nothing."""
        old = self._stamp
        if _stamp(self.path) in (None, old):
            return
        try:
            self._load()
        except (BibertError, OSError, MemoryError) as error:
            if isinstance(error.__cause__ or error, OSError | MemoryError):
                self._stamp = old  # this may pass, so it is tried again
            if (why := one_line(error)) != self._refused:
                log.error("%s: the file was replaced, but cannot be used, so the old model stays: %s", self.name, why)
            self._refused = why
        else:
            self._refused = ""
            self.reloads += 1
            log.info("%s: reloaded from %s", self.name, self.path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:  # it is not there, perhaps for a moment
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

"""What rivals are built from: a shape, the weights to put into it, and texts to choose the ranges of int8 by.

It goes to the process that builds as plain values. Weights are random where only speed counts; `models` makes both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from bibert.lab.rivals.inputs import Ids, Shape, random_batch
from bibert.lab.rivals.models import random_bert, shape_of, trained_bert
from bibert.packed.schema import PackedConfig

RANDOM_LENGTHS = (128, 64, 32, 16, 8)
RANDOM_BATCHES = 30


@dataclass(frozen=True)
class Blueprint:
    """The BERT that every rival is a form of.

    Attributes:
        config: its shape.
        weights: the folder of a full-precision classifier; None for random weights.
        texts: token ids of real texts, for tools that choose ranges by what a model sees; none for random ids.
    """

    config: PackedConfig
    weights: Path | None = None
    texts: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of_classifier(cls, folder: Path, texts: Sequence[Sequence[int]]) -> Self:
        """The blueprint of a full-precision classifier.

        Raises:
            CheckpointError: the folder does not hold a whole classifier.
            SchemeError: the classifier is quantized.
        """
        return cls(shape_of(trained_bert(folder)), folder, tuple(map(tuple, texts)))

    def bert(self) -> Any:
        """The BERT as Hugging Face's class, which is what every tool knows best."""
        return random_bert(self.config) if self.weights is None else trained_bert(self.weights)

    def calibration(self) -> Iterator[tuple[Ids, Ids]]:
        """Batches of one text: ids and mask of the real texts, or of random ones of several lengths."""
        if self.texts:
            for text in self.texts:
                ids = np.array([text], dtype=np.int64)
                yield ids, np.ones_like(ids)
            return
        lengths = [min(length, self.config.positions) for length in RANDOM_LENGTHS]
        for seed, length in enumerate(islice(cycle(lengths), RANDOM_BATCHES)):
            yield random_batch(Shape(1, length), self.config.vocabulary, seed)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        weights = None if self.weights is None else str(self.weights)
        return {"config": self.config.to_dict(), "weights": weights, "texts": [list(text) for text in self.texts]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` writes."""
        weights = None if values["weights"] is None else Path(values["weights"])
        return cls(PackedConfig.from_dict(values["config"]), weights, tuple(map(tuple, values["texts"])))

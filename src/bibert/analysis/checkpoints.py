"""How a student moved between checkpoints that were kept: the looks of `training.probe`, taken afterwards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bibert.analysis.direction import DirectionProbe
from bibert.analysis.history import History
from bibert.analysis.network import trace_of
from bibert.data.encoding import Collator, encode
from bibert.data.examples import Split
from bibert.distill.objective import match_layers
from bibert.errors import DataError
from bibert.nn.loading import load_classifier

MOST_TOKENS = 128


def moves_between(checkpoints: Sequence[Path], teacher: Path, texts: Sequence[str]) -> History:
    """Read texts with every checkpoint of a student, in the order given, and compare each with the one before.

    Raises:
        DataError: there are fewer than two checkpoints.
        CheckpointError: one cannot be read, or does not fit the teacher.
    """
    if len(checkpoints) < 2:
        raise DataError(f"{len(checkpoints)} checkpoint was given; a movement needs two or more, in their order")
    taught = load_classifier(teacher)
    split = Split(tuple(texts), None, (0.0,) * len(texts), "texts")
    most = min(MOST_TOKENS, taught.model.config.max_position_embeddings)
    encoded = encode(split, taught.tokenizer, most)
    batch = Collator(taught.tokenizer.pad_token_id)([encoded[row] for row in range(len(encoded))])
    batch.pop("labels")
    probe, moves, scheme = None, [], ""
    for checkpoint in checkpoints:
        student = load_classifier(checkpoint).model
        scheme = student.config.quantization.name
        if probe is None:
            probe = DirectionProbe(trace_of(taught.model, batch), match_layers(student, taught.model))
        moved = probe(trace_of(student, batch))
        moves += [] if moved is None else [moved]
    tables = {
        thing: {field: np.array([getattr(moved[thing], field) for moved in moves]) for field in vars(first)}
        for thing, first in moves[0].items()
    }
    return History(checkpoints[-1].name, scheme, (), {}, _steps(checkpoints)[1:], tables)


def _steps(checkpoints: Sequence[Path]) -> list[int]:
    """The steps in names such as checkpoint-500; places where names have none."""
    ends = [path.name.rpartition("-")[2] for path in checkpoints]
    return [int(end) for end in ends] if all(end.isdecimal() for end in ends) else list(range(len(ends)))

"""How a student moved between checkpoints that were kept: the looks of `training.probe`, taken afterwards."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from bibert.data.examples import MAX_LENGTH
from bibert.distill.objective import match_layers
from bibert.errors import DataError
from bibert.lab.direction import DirectionProbe
from bibert.lab.history import History, stacked
from bibert.lab.movement import distilled_by
from bibert.lab.network import trace_of
from bibert.lab.subject import encode_rows, padded
from bibert.nn.checkpoint import Classifier, load_classifier
from bibert.runtime.text import Row


def moves_between(checkpoints: Sequence[Path], teacher: Path, rows: Sequence[Row]) -> History:
    """Read texts with every checkpoint of a student, in the order given, and compare each with the one before.

    Raises:
        DataError: there are fewer than two checkpoints, or their steps fall.
        CheckpointError: one cannot be read, or does not fit the teacher.
    """
    if len(checkpoints) < 2:
        raise DataError(f"{len(checkpoints)} checkpoint was given; a movement needs two or more, in their order")
    steps, taught = _steps(checkpoints), load_classifier(teacher)
    batch = _batch(taught, rows)
    probe, moves, scheme = None, [], taught.model.config.quantization
    for checkpoint in checkpoints:
        student = load_classifier(checkpoint).model
        scheme = student.config.quantization
        if probe is None:
            probe = DirectionProbe(trace_of(taught.model, batch), match_layers(student, taught.model))
        moved = probe(trace_of(student, batch))
        moves += [] if moved is None else [{thing: vars(tables) for thing, tables in moved.items()}]
    return History(checkpoints[-1].name, scheme.name, distilled_by(scheme), (), {}, steps[1:], stacked(moves))


def _batch(teacher: Classifier, rows: Sequence[Row]) -> dict[str, Tensor]:
    most = min(MAX_LENGTH, teacher.model.config.max_position_embeddings)
    batch = padded(encode_rows(teacher.tokenizer, most, rows))
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def _steps(checkpoints: Sequence[Path]) -> list[int]:
    """The steps in names such as checkpoint-500; places where names have none."""
    ends = [path.name.rpartition("-")[2] for path in checkpoints]
    if not all(end.isdecimal() for end in ends):
        return list(range(len(ends)))
    steps = [int(end) for end in ends]
    if steps != sorted(set(steps)):
        raise DataError(f"the checkpoints are those of the steps {steps}; give them in the order of the training")
    return steps

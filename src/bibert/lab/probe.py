"""Looks into a student: entropies and directions on a fixed batch, while it trains or from checkpoints afterwards.

A probe does not affect training: the batch is read in eval mode and without gradients, and no random number is drawn.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bibert.data import MAX_LENGTH
from bibert.data.encoding import Collator, EncodedSplit
from bibert.distill.objective import match_layers
from bibert.errors import DataError
from bibert.files import read_json_lines
from bibert.lab.direction import DirectionProbe, Floats, distilled_by
from bibert.lab.look import encode_rows, entropies, padded, rounded
from bibert.lab.network import inside_of_trace, trace_of
from bibert.lab.record import History, stacked
from bibert.nn.checkpoint import Classifier, load_classifier
from bibert.nn.model import BiBertForSequenceClassification as Model
from bibert.runtime.text import Text
from bibert.training.callbacks import JsonLines
from bibert.training.student import ProbeMaker

TEXTS = 32  # in the probe batch
MOST_TOKENS = 64  # of a text in it; memory is quadratic in tokens: 0.3 GB for BERT-base, three times during a look


class Probe(JsonLines):
    """Appends a line to the probe file of a run every `every` steps; student and teacher read the same `batch`."""

    def __init__(self, path: Path, stage: str, every: int, teacher: Model, batch: Mapping[str, Tensor]) -> None:
        super().__init__(path, stage)
        self.every, self.teacher, self.batch = every, teacher, batch
        self.direction: DirectionProbe | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Look at the student before the first step; a resumed run may have recorded this look already."""
        if self.direction is None and self._is_due(state):
            seen, known = self.look(model), read_json_lines(self.path) if self.path.exists() else []
            if all((event["stage"], event["step"]) != (self.stage, state.global_step) for event in known):
                self.append(state.global_step, seen)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Look every `every` steps."""
        if self._is_due(state):
            self.append(state.global_step, self.look(model))

    def _is_due(self, state: Any) -> bool:
        """Looks are at multiples of `every` only, so that all movements span the same number of steps."""
        return bool(state.is_world_process_zero and state.global_step % self.every == 0)

    def look(self, model: Model) -> dict[str, Any]:
        """Current entropies, if activations are bits or levels, and how the student moved since the last look."""
        if self.direction is None:
            match = match_layers(model.config, self.teacher.config)
            self.direction = DirectionProbe(trace_of(self.teacher, self.batch), match)
        trace = trace_of(model, self.batch)
        seen: dict[str, Any] = {}
        if model.config.quantization.is_discrete:
            seen["entropy"] = rounded(entropies([inside_of_trace(model, trace)]))
        moved = self.direction(trace)
        if moved is not None:
            seen["direction"] = {
                thing: {field: _five_digits(table) for field, table in fields.items()}
                for thing, fields in moved.items()
            }
        return seen


def _five_digits(table: Floats) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in row] for row in table]


def probe_every(steps: int) -> ProbeMaker:
    """A probe for `distill` that looks into the student every `steps` steps."""

    def make(path: Path, stage: str, teacher: Classifier, texts: EncodedSplit) -> Probe:
        return Probe(path, stage, steps, teacher.model, probe_batch(texts, teacher.tokenizer.pad_token_id))

    return make


def probe_batch(split: EncodedSplit, pad_token_id: int) -> dict[str, Tensor]:
    """Texts evenly spread over a split, always the same ones, truncated at `MOST_TOKENS`."""
    rows = np.linspace(0, len(split) - 1, min(TEXTS, len(split))).round().astype(int)
    batch = Collator(pad_token_id)([split[int(row)] for row in rows])
    return {name: tensor[:, :MOST_TOKENS] for name, tensor in batch.items() if name != "labels"}


def moves_between(checkpoints: Sequence[Path], teacher: Path, rows: Sequence[Text]) -> History:
    """Read texts with each checkpoint of a student, in the order given, and compare it with the one before."""
    if len(checkpoints) < 2:
        raise DataError(f"{len(checkpoints)} checkpoint given; a movement needs two or more, in training order")
    steps, taught = _steps(checkpoints), load_classifier(teacher)
    most = min(MAX_LENGTH, taught.model.config.max_position_embeddings)
    arrays = padded(encode_rows(taught.tokenizer, most, rows))
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    probe, moves, scheme = None, [], taught.model.config.quantization
    for checkpoint in checkpoints:
        student = load_classifier(checkpoint).model
        scheme = student.config.quantization
        if probe is None:
            probe = DirectionProbe(trace_of(taught.model, batch), match_layers(student.config, taught.model.config))
        moved = probe(trace_of(student, batch))
        moves += [] if moved is None else [moved]
    return History(checkpoints[-1].name, scheme.name, distilled_by(scheme), (), {}, steps[1:], stacked(moves))


def _steps(checkpoints: Sequence[Path]) -> list[int]:
    """The steps in names such as checkpoint-500; positions if a name has none."""
    ends = [path.name.rpartition("-")[2] for path in checkpoints]
    if not all(end.isdecimal() for end in ends):
        return list(range(len(ends)))
    steps = [int(end) for end in ends]
    if steps != sorted(set(steps)):
        raise DataError(f"the checkpoints have the steps {steps}; give them in training order")
    return steps

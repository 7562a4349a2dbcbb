"""A look into a student while it trains: entropies and directions on a fixed batch, every so many steps, into a file.

Nothing of it reaches the training: the batch is read in eval mode and without a gradient, and no random number is
drawn. What is measured is in `analysis.entropy` and `analysis.direction`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from bibert.data.encoding import Collator, EncodedSplit
from bibert.distill.objective import match_layers
from bibert.files import read_json_lines
from bibert.lab.direction import DirectionProbe
from bibert.lab.entropy import entropies
from bibert.lab.network import inside_of_trace, trace_of
from bibert.nn.checkpoint import Classifier
from bibert.nn.model import BiBertForSequenceClassification
from bibert.training.callbacks import JsonLines
from bibert.training.student import ProbeMaker

TEXTS = 32  # of the probe batch
# Tokens of a text in it. Something is kept for all pairs of them: 0.3 GB of BERT-base, three times during a look.
MOST_TOKENS = 64


class Probe(JsonLines):
    """Appends a line with what it saw to the probe file of a run.

    Args:
        path: the file.
        stage: the stage of the schedule.
        every: steps between two looks.
        teacher: what the student learns from.
        batch: what both read.
    """

    def __init__(
        self,
        path: Path,
        stage: str,
        every: int,
        teacher: BiBertForSequenceClassification,
        batch: Mapping[str, Tensor],
    ) -> None:
        super().__init__(path, stage)
        self.every = every
        self.teacher = teacher
        self.batch = batch
        self.direction: DirectionProbe | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Look at the student that training starts from, or goes on from; that look may have been noted before."""
        if self.direction is None and self._is_due(state):
            seen, known = self.look(model), read_json_lines(self.path) if self.path.exists() else []
            if all((event["stage"], event["step"]) != (self.stage, state.global_step) for event in known):
                self.append(state.global_step, seen)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Look every so many steps."""
        if self._is_due(state):
            self.append(state.global_step, self.look(model))

    def _is_due(self, state: Any) -> bool:
        """Looks are at multiples of `every` only, so that all movements are over equally many steps."""
        return bool(state.is_world_process_zero and state.global_step % self.every == 0)

    def look(self, model: BiBertForSequenceClassification) -> dict[str, Any]:
        """Entropies now, of a student whose activations have one bit, and how it moved since the last look."""
        if self.direction is None:
            self.direction = DirectionProbe(trace_of(self.teacher, self.batch), match_layers(model, self.teacher))
        trace = trace_of(model, self.batch)
        seen: dict[str, Any] = {}
        if model.config.quantization.is_binarized:
            seen["entropy"] = entropies([inside_of_trace(model, trace)]).to_dict()
        moved = self.direction(trace)
        if moved is not None:
            seen["direction"] = {name: movement.to_dict() for name, movement in moved.items()}
        return seen


def probe_every(steps: int) -> ProbeMaker:
    """A probe for `distill` that looks into the student every so many steps."""

    def make(path: Path, stage: str, teacher: Classifier, texts: EncodedSplit) -> Probe:
        return Probe(path, stage, steps, teacher.model, probe_batch(texts, teacher.tokenizer.pad_token_id))

    return make


def probe_batch(split: EncodedSplit, pad_token_id: int) -> dict[str, Tensor]:
    """Texts from all over a split, always the same, cut to a moderate length."""
    rows = np.linspace(0, len(split) - 1, min(TEXTS, len(split))).round().astype(int)
    batch = Collator(pad_token_id)([split[int(row)] for row in rows])
    return {name: tensor[:, :MOST_TOKENS] for name, tensor in batch.items() if name != "labels"}

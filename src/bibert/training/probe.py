"""A look into a student while it trains: entropies and directions on a fixed batch, every so many steps, into a file.

Nothing of it reaches the training: the batch is read in eval mode and without a gradient, and no random number is
drawn. What is measured is in `analysis.entropy` and `analysis.direction`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bibert.analysis.direction import DirectionProbe, Movement
from bibert.analysis.entropy import entropies
from bibert.analysis.network import inside_of_trace, trace_of
from bibert.data.encoding import Collator
from bibert.distill.objective import match_layers
from bibert.nn.model import BiBertForSequenceClassification
from bibert.nn.trace import Trace
from bibert.training.log import JsonLines, read_lines
from bibert.training.trainer import TrainingData

TEXTS = 32  # of the probe batch


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

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Look at the student that training starts from, or goes on from."""
        super().on_train_begin(args, state, control, **kwargs)
        known = {event["step"] for event in read_lines(self.path)} if self.path.exists() else set()
        self._look(state, model, note=state.global_step not in known)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Look every so many steps."""
        if state.global_step % self.every == 0:
            self._look(state, model, note=True)

    def _look(self, state: Any, model: BiBertForSequenceClassification, note: bool) -> None:
        if not state.is_world_process_zero:
            return
        if self.direction is None:
            self.direction = DirectionProbe(trace_of(self.teacher, self.batch), match_layers(model, self.teacher))
        trace = trace_of(model, self.batch)
        moved = self.direction(trace)
        if note:
            self.append(state.global_step, _entropy_facts(model, trace) | _direction_facts(moved))


def _entropy_facts(model: BiBertForSequenceClassification, trace: Trace) -> dict[str, Any]:
    if model.config.quantization.bits.activation != 1:
        return {}
    return {"entropy": entropies(inside_of_trace(model, trace)).to_dict()}


def _direction_facts(moved: Mapping[str, Movement] | None) -> dict[str, Any]:
    return {} if moved is None else {"direction": {name: movement.to_dict() for name, movement in moved.items()}}


def probe_batch(data: TrainingData, pad_token_id: int) -> dict[str, Tensor]:
    """Texts from all over the first dev split, always the same."""
    dev = next(iter(data.dev.values()))
    rows = range(0, len(dev), -(-len(dev) // TEXTS))
    batch = Collator(pad_token_id)([dev[row] for row in rows])
    return {name: tensor for name, tensor in batch.items() if name != "labels"}

"""A running mean of a model's weights, which is evaluated and saved in their place (`Recipe.average`).

The signs of a 1-bit student flip from step to step, and its answers with them; the mean of its latent weights is
steadier. Training itself goes on with the weights. When what is evaluated and saved is decided in `trainer`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import TrainerCallback

LATENT = "latent.safetensors"  # of a checkpoint: the weights that training goes on with, beside their mean


class RunningMean(TrainerCallback):  # type: ignore[misc]
    """The mean of the weights after every step, each weighing `decay` times as much as the next one."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model
        self.mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)  # type: ignore[no-untyped-call]
        self.mean.update_parameters(model)  # the weights at the start are the first

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Called after an optimizer step, before the evaluation that may follow."""
        self.mean.update_parameters(self.model)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the mean for its weights inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def save_weights(self, checkpoint: Path) -> None:
        """Write the weights beside the mean, which the checkpoint has as its model."""
        save_file({name: value.contiguous() for name, value in self.model.state_dict().items()}, checkpoint / LATENT)

    def resume(self, checkpoint: Path) -> None:
        """Take the mean from the model, which was loaded from the checkpoint, and give the model its weights back."""
        for mine, theirs in self._pairs():
            theirs.data.copy_(mine.data)
        self.model.load_state_dict(load_file(checkpoint / LATENT))

    def _swap(self) -> None:
        for mine, theirs in self._pairs():
            mine.data, theirs.data = theirs.data, mine.data

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        mean = self.mean.module
        yield from zip(self.model.parameters(), mean.parameters(), strict=True)
        yield from zip(self.model.buffers(), mean.buffers(), strict=True)

"""What happens between the steps of a training: the order of the rows, log lines, a mean of the weights, signals.

`RunningMean` implements `Recipe.average`: the signs of a 1-bit student flip from step to step, and its answers with
them; the mean of its latent weights is steadier. `Interruption` handles SIGTERM and Ctrl-C: it finishes the step,
writes a checkpoint, and raises `Interrupted`.
"""

import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import TrainerCallback

from bibert.data.encoding import LengthGroupedSampler
from bibert.errors import BibertError
from bibert.files import whole_lines, write_whole

LATENT = "latent.safetensors"  # in a checkpoint: the weights being trained, beside their mean
SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


class EpochOrder(TrainerCallback):  # type: ignore[misc]
    """Tells the sampler the epoch, which the data loader of a resumed distributed run does not, and keeps intervals."""

    def __init__(self, sampler: LengthGroupedSampler) -> None:
        self.sampler = sampler

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Take the intervals of this run: those in a checkpoint may be of a shorter one."""
        state.eval_steps, state.save_steps, state.logging_steps = args.eval_steps, args.save_steps, args.logging_steps

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Called before the batches of an epoch are drawn, also when a run resumes in the middle of one."""
        self.sampler.set_epoch(int(state.epoch or 0))


class JsonLines(TrainerCallback):  # type: ignore[misc]
    """A file of one JSON object per event of a stage, cut back to the checkpoint when a killed run resumes."""

    def __init__(self, path: Path, stage: str) -> None:
        self.path = path
        self.stage = stage

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Drop the lines after the checkpoint that training resumes from."""
        if state.is_world_process_zero and self.path.exists():
            lines = [line for line in whole_lines(self.path) if self._is_kept(line, state.global_step)]
            with write_whole(self.path) as handle:
                handle.writelines(lines)

    def append(self, step: int, facts: dict[str, Any]) -> None:
        """Write one line."""
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"stage": self.stage, "step": step, **facts}) + "\n")

    def _is_kept(self, line: str, step: int) -> bool:
        try:
            event = json.loads(line)
            return bool(event["stage"] != self.stage or event["step"] <= step)
        except (ValueError, KeyError, TypeError):  # a power cut can leave anything where text was
            return False


class JsonLog(JsonLines):
    """Everything the Trainer logs: losses, learning rate, dev metrics."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Write one line."""
        if state.is_world_process_zero:
            self.append(state.global_step, logs or {})


class RunningMean(TrainerCallback):  # type: ignore[misc]
    """The exponential moving average of a model's weights, which is evaluated and saved instead of them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model
        self.greatest_decay = decay
        self.mean = AveragedModel(model, use_buffers=True)
        self.mean.update_parameters(model)  # the initial weights count too

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """On resuming: the model just loaded is the mean; take it from there and load the weights beside it."""
        if state.global_step:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            for mine, mean in self._pairs():
                mean.data.copy_(mine.data)
            self.model.load_state_dict(load_file(checkpoint / LATENT))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Called after an optimizer step, before the evaluation that may follow."""
        decay = min(self.greatest_decay, (1 + state.global_step) / (10 + state.global_step))
        self.mean.multi_avg_fn = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.mean.update_parameters(self.model)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block, the model's weights are the mean."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def save_weights(self, checkpoint: Path) -> None:
        """Write the weights to a checkpoint whose model is the mean."""
        save_file({name: value.contiguous() for name, value in self.model.state_dict().items()}, checkpoint / LATENT)

    def _swap(self) -> None:
        for mine, mean in self._pairs():
            mine.data, mean.data = mean.data, mine.data

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        mean = self.mean.module
        yield from zip(self.model.parameters(), mean.parameters(), strict=True)
        yield from zip(self.model.buffers(), mean.buffers(), strict=True)


class Interrupted(BibertError, SystemExit):
    """A signal ended the training; it can be resumed.

    Also a `SystemExit`, so that a script that does not catch it exits with the shell's code, 128 + the signal.
    """

    def __init__(self, number: int, folder: str, step: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"{folder}: stopped by {name} after step {step}; run the same command again to resume")
        self.exit_code = self.code = 128 + number


class Interruption(TrainerCallback):  # type: ignore[misc]
    """Turns a signal into a checkpoint and an `Interrupted`.

    The first signal is only noted; the run ends after the current step, when a checkpoint can be written. Then the
    previous handlers are back, so a second signal ends the process at once.
    """

    def __init__(self) -> None:
        self.noted = 0  # the number of the signal; 0 for none
        self._before: dict[int, Any] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Listen inside the block, but not to ignored signals, nor outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            listening = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in listening}
        try:
            yield
        finally:
            self._restore()

    def _note(self, number: int, frame: Any) -> None:  # noqa: ARG002
        self.noted = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Request a checkpoint; all processes must request it at the same step."""
        if args.world_size > 1:
            self.noted = int(gather(torch.tensor([self.noted], device=PartialState().device)).max())
        if self.noted:
            logger.warning("%s: writing a checkpoint", signal.Signals(self.noted).name)
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """End the run, now that the checkpoint has its manifest."""
        self.raise_if_noted(args, state)

    def raise_if_noted(self, args: Any, state: Any) -> None:
        """Raise `Interrupted` if a signal came, also after the last step."""
        if self.noted:
            raise Interrupted(self.noted, args.output_dir, state.global_step)

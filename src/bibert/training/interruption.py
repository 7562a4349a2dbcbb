"""SIGTERM and Ctrl-C during training: finish the step, write a checkpoint, leave with the code of the signal.

The first signal is only noted, and acted upon between two steps, where a checkpoint is whole. A second one finds
the handlers that were there before and ends the process as it always would. What a checkpoint is, is in
`checkpoints`; before and after training signals do what they always do, because a run can be killed at any moment.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather
from transformers import TrainerCallback

from bibert.errors import BibertError

SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


class Interrupted(BibertError, SystemExit):
    """A signal ended the training; it can be resumed.

    Also a `SystemExit`, so that a script that does not catch it leaves with the shell's code: 128 + the signal.
    """

    def __init__(self, number: int, folder: str, step: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"{folder}: stopped by {name} after step {step}; run the same again and it goes on from there")
        self.exit_code = self.code = 128 + number


class Interruption(TrainerCallback):  # type: ignore[misc]
    """Turns a signal into a checkpoint and an `Interrupted`."""

    def __init__(self) -> None:
        self.noted = 0  # the number of the signal; 0 for none
        self._before: dict[int, Any] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Listen inside the block; where signals are ignored, or belong to another thread, they are left alone."""
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
        """Ask for a checkpoint; all processes have to ask for it at the same step."""
        if args.world_size > 1:
            self.noted = int(gather(torch.tensor([self.noted], device=PartialState().device)).max())
        if self.noted:
            logger.warning("%s: writing a checkpoint", signal.Signals(self.noted).name)
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Leave, now that the checkpoint has its manifest."""
        self.leave_if_noted(args, state)

    def leave_if_noted(self, args: Any, state: Any) -> None:
        """Raise `Interrupted` if a signal came, also where it came after the last step."""
        if self.noted:
            raise Interrupted(self.noted, args.output_dir, state.global_step)

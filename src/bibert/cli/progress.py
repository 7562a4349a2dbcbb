"""Progress of a training: a bar with loss, dev score and time left on a terminal, plain lines elsewhere."""

import time
from datetime import timedelta
from typing import Any

from rich.progress import Progress
from transformers import TrainerCallback

from bibert.cli.console import SECONDS_BETWEEN_LINES, messages, progress, say

STEPS_TO_ESTIMATE = 10


class TrainingProgress(TrainerCallback):  # type: ignore[misc]
    """Shows one training at a time, under a title such as `teacher`; stages follow each other."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.bar: Progress | None = None
        self.loss = self.score = ""
        self.started = self.last_line = 0.0
        self.first_step = 0
        self.running = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Start a bar, or print a line."""
        if not state.is_world_process_zero:
            return
        self.loss = self.score = ""
        self.running = True
        self.started = self.last_line = time.monotonic()
        self.first_step = state.global_step
        if messages.is_terminal:
            self.bar = progress()
            self.bar.start()
            self.bar.add_task(self.title, total=state.max_steps, completed=state.global_step)
        elif state.global_step:
            self._say(f"resuming at step {state.global_step} of {state.max_steps}")
        else:
            self._say(f"{state.max_steps} steps")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Move the bar; without a terminal, say how long the training will take as soon as that is known."""
        if self.bar is not None:
            description = "  ".join(part for part in (self.title, self.loss, self.score) if part)
            self.bar.update(self.bar.task_ids[0], completed=state.global_step, description=description)
        elif state.is_world_process_zero and state.global_step == self.first_step + STEPS_TO_ESTIMATE:
            self._line(state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Remember the newest loss; without a terminal, print a line every 30 seconds."""
        if not state.is_world_process_zero or "loss" not in (logs or {}):
            return
        self.loss = f"loss {logs['loss']:.3f}"
        if self.bar is None and time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self._line(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Show the newest and the best dev score."""
        name = args.metric_for_best_model
        if not state.is_world_process_zero or name not in (metrics or {}) or not self.running:
            return  # after the training the best model is evaluated once more
        best = max(metrics[name], state.best_metric if state.best_metric is not None else metrics[name])
        self.score = f"{name.removeprefix('eval_')} {metrics[name]:.4f} (best {best:.4f})"
        if self.bar is None:
            self._line(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the bar and print a summary."""
        self.running = False
        if not state.is_world_process_zero:
            return
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        score = self.score and f", {self.score}"
        self._say(f"{state.global_step} steps in {timedelta(seconds=round(time.monotonic() - self.started))}{score}")

    def _line(self, state: Any) -> None:
        self.last_line = time.monotonic()
        done = max(state.global_step - self.first_step, 1)
        left = timedelta(seconds=round((self.last_line - self.started) / done * (state.max_steps - state.global_step)))
        facts = (f"step {state.global_step}/{state.max_steps}", self.loss, self.score, f"{left} left")
        self._say(", ".join(fact for fact in facts if fact))

    def _say(self, text: str) -> None:
        say(f"{self.title}: {text}")

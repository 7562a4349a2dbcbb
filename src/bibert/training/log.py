"""Files to which a training appends one JSON object a line, and which stay right when it is killed and goes on.

`JsonLog` has what the Trainer logs: losses and metrics. What a look into the student finds is in `probe`.
"""

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from bibert.files import whole_lines, write_whole


class JsonLines(TrainerCallback):  # type: ignore[misc]
    """A file of events of a stage; lines after the point of resumption are dropped."""

    def __init__(self, path: Path, stage: str) -> None:
        self.path = path
        self.stage = stage

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Cut the file back to the checkpoint that training goes on from."""
        if not state.is_world_process_zero or not self.path.exists():
            return
        lines = [line for line in whole_lines(self.path) if self._stays(line, state.global_step)]
        with write_whole(self.path) as handle:
            handle.writelines(lines)

    def append(self, step: int, facts: dict[str, Any]) -> None:
        """Write one line."""
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"stage": self.stage, "step": step, **facts}) + "\n")

    def _stays(self, line: str, step: int) -> bool:
        try:
            event = json.loads(line)
        except ValueError:  # a power cut can leave zeros where text was
            return False
        return bool(event["stage"] != self.stage or event["step"] <= step)


class JsonLog(JsonLines):
    """Every log event of the Trainer, in log.jsonl."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Write one line."""
        if state.is_world_process_zero:
            self.append(state.global_step, logs or {})

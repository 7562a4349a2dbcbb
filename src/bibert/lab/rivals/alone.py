"""One engine in a process of its own: to build the file of a rival, and to measure the memory of an engine.

Build tools may print, crash or use much memory, which must not disturb the process that times. Memory can be attributed
to an engine only if no other is loaded. The child runs this module with `python -m`; its task and its answer are JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bibert.errors import BibertError
from bibert.lab.rivals.engines import RIVALS, load_engine
from bibert.lab.rivals.models import Blueprint, Shape, random_batch
from bibert.machine import peak_memory_bytes

CALLS = 3  # after these the memory of an engine has stopped growing


class ChildError(BibertError):
    """An engine failed in its own process; the message is the last line of its stderr."""


def build_alone(name: str, blueprint: Blueprint, folder: Path) -> Path:
    """Build the file of a rival; raises ChildError if that fails."""
    return Path(_ask("build", name, blueprint.to_dict(), str(folder)))


def peak_memory_alone(name: str, path: Path, threads: int, shape: Shape, vocabulary: int) -> int:
    """Peak resident bytes, Python included, of a process that loads an engine and runs it; raises ChildError."""
    return int(_ask("measure", name, str(path), threads, list(shape), vocabulary))


def _ask(*words: Any) -> Any:
    command = [sys.executable, "-m", __name__, json.dumps(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ChildError(said[-1] if said else f"its process ended with code {done.returncode}")
    return json.loads(done.stdout)


def _build(name: str, blueprint: dict[str, Any], folder: str) -> str:
    return str(RIVALS[name].build(Blueprint.from_dict(blueprint), Path(folder)))


def _measure(name: str, path: str, threads: int, shape: list[int], vocabulary: int) -> int:
    run, batch = load_engine(name, Path(path), threads), random_batch(Shape(*shape), vocabulary)
    for _ in range(CALLS):
        run(*batch)
    return peak_memory_bytes()


TASKS: Mapping[str, Callable[..., Any]] = {"build": _build, "measure": _measure}


def _answer(task: str) -> None:
    """Do a task. Output of libraries goes to stderr, so that stdout has the answer only."""
    stdout = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    name, *words = json.loads(task)
    answer = TASKS[name](*words)
    with os.fdopen(stdout, "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    _answer(sys.argv[1])

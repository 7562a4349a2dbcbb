"""One engine in a process of its own: building a rival's file, and the memory that an engine takes.

Building loads tools that running does not need, and a tool may print, crash or take all memory; none of that must reach
the process that times. The memory of an engine shows only where no other engine is loaded. The child is this same
module, run by `python -m`; it gets its task as JSON words and answers with one line of JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bibert.errors import BibertError
from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.inputs import Shape, random_batch
from bibert.lab.rivals.table import LOADERS, RIVALS
from bibert.machine import peak_memory_bytes

CALLS = 3  # after these an engine's memory has stopped growing


class ChildError(BibertError):
    """An engine failed in its own process; the message is its last words."""


def build_alone(name: str, blueprint: Blueprint, folder: Path) -> Path:
    """Build a rival's file in a process of its own.

    Raises:
        ChildError: the rival cannot be built.
    """
    return Path(_ask("build", name, blueprint.to_dict(), str(folder)))


def peak_memory_alone(name: str, path: Path, threads: int, shape: Shape, vocabulary: int) -> int:
    """The peak resident bytes of a process that loads one engine and runs it a few times, Python included.

    Raises:
        ChildError: the engine cannot be loaded or run.
    """
    return int(_ask("measure", name, str(path), threads, list(shape), vocabulary))


def _ask(*words: Any) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(words)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise ChildError(said[-1] if said else f"its process ended with code {done.returncode}")
    return json.loads(done.stdout)


def _build(name: str, blueprint: dict[str, Any], folder: str) -> str:
    return str(RIVALS[name].build(Blueprint.from_dict(blueprint), Path(folder)))


def _measure(name: str, path: str, threads: int, shape: list[int], vocabulary: int) -> int:
    run = LOADERS[name](Path(path), threads)
    batch = random_batch(Shape(*shape), vocabulary)
    for _ in range(CALLS):
        run(*batch)
    return peak_memory_bytes()


TASKS: Mapping[str, Callable[..., Any]] = {"build": _build, "measure": _measure}


def _answer(task: str) -> None:
    """Do a task. What libraries print goes to stderr, so that stdout holds the answer alone."""
    stdout = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    name, *words = json.loads(task)
    answer = TASKS[name](*words)
    with os.fdopen(stdout, "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    _answer(sys.argv[1])

"""One engine in a process of its own: to build the file of a rival, and to measure the memory of an engine.

Build tools may print, crash or use much memory, which must not disturb the process that times. Memory can be attributed
to an engine only if no other is loaded. The child runs this module with `python -m`; task and answer are pickled.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from bibert.errors import BibertError
from bibert.lab.rivals.engines import RIVALS, Blueprint, Shape, load_engine, random_batch
from bibert.machine import peak_memory_bytes

CALLS = 3  # after these the memory of an engine has stopped growing


class ChildError(BibertError):
    """An engine failed in its own process; the message is the last line of its stderr."""


def build_alone(name: str, blueprint: Blueprint, folder: Path) -> Path:
    """Build the file of a rival; raises ChildError if that fails."""
    return Path(_ask("build", name, blueprint, folder))


def peak_memory_alone(name: str, path: Path, threads: int, shape: Shape, vocabulary: int) -> int:
    """Peak resident bytes, Python included, of a process that loads an engine and runs it; raises ChildError."""
    return int(_ask("measure", name, path, threads, shape, vocabulary))


def _ask(*task: Any) -> Any:
    command, path = [sys.executable, "-m", __name__], os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path}  # a blueprint may be a class of the calling script's neighbours
    done = subprocess.run(command, input=pickle.dumps(task), env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise ChildError(lines[-1] if lines else f"its process ended with code {done.returncode}")
    return pickle.loads(done.stdout)


def _measure(name: str, path: Path, threads: int, shape: Shape, vocabulary: int) -> int:
    run, batch = load_engine(name, path, threads), random_batch(shape, vocabulary)
    for _ in range(CALLS):
        run(*batch)
    return peak_memory_bytes()


def _answer() -> None:
    """Do the task of stdin. Output of libraries goes to stderr, so that stdout has the answer only."""
    stdout = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    task, name, *words = pickle.load(sys.stdin.buffer)
    answer = _measure(name, *words) if task == "measure" else RIVALS[name].build(*words)
    with os.fdopen(stdout, "wb") as file:
        pickle.dump(answer, file)


if __name__ == "__main__":
    _answer()

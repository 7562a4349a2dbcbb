"""Checkpoints that survive a kill at any moment, and the lock and notes of a run folder.

The Trainer writes a checkpoint file by file, so a kill leaves half of one. Here a checkpoint counts only once its
manifest, with the size and SHA-256 of every file, is written and agrees; a torn one is set aside with a message
and the one before is used. Which tensors go into a checkpoint is the Trainer's business.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bibert.errors import CheckpointError
from bibert.files import write_whole

MANIFEST = "COMPLETE.json"
TORN = "torn"
CHUNK = 1 << 20

logger = logging.getLogger(__name__)


def write_manifest(checkpoint: Path) -> None:
    """Declare `checkpoint` complete: its files reach the disk first, the manifest after them."""
    files = {}
    for path in sorted(p for p in checkpoint.rglob("*") if p.is_file() and p.name != MANIFEST):
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        files[path.relative_to(checkpoint).as_posix()] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
    write_json(checkpoint / MANIFEST, {"files": files})


def is_whole(checkpoint: Path) -> bool:
    """Whether the manifest is there and every file is as it says."""
    manifest = read_json(checkpoint / MANIFEST)
    if manifest is None:
        return False
    for name, expected in manifest["files"].items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size != expected["bytes"] or _digest(path) != expected["sha256"]:
            return False
    return True


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a run; torn ones are moved to `torn/` so that nothing picks them up."""
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        if is_whole(checkpoint):
            return checkpoint
        aside = folder / TORN / checkpoint.name
        logger.warning("%s was cut off while it was written; set aside as %s", checkpoint, aside)
        aside.parent.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        checkpoint.rename(aside)
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run folder for this process; a second run in the same folder is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            raise CheckpointError(
                f"{folder}: another run (process {handle.read().strip() or 'unknown'}) is writing here; "
                "wait for it, or choose another output folder"
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    with write_whole(path) as handle:
        json.dump(value, handle, indent=2)
        handle.write("\n")


def read_json(path: Path) -> Any:
    """The JSON of a file we wrote ourselves; None where it is missing."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])

"""Checkpoints that survive a kill at any moment, and the lock of a run folder.

The Trainer writes a checkpoint file by file, so a kill leaves half of one. Here a checkpoint counts only once its
manifest, with the size and SHA-256 of every file, is written and agrees; a torn checkpoint is set aside with a
message, and training resumes from the one before. The Trainer decides which tensors are in a checkpoint.
"""

import errno
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bibert.errors import CheckpointError
from bibert.files import fsync_folder, load_json, lock, save_json, sha256_of

LOCK = ".lock"
MANIFEST = "COMPLETE.json"
TORN = "torn"
NAME = re.compile(r"checkpoint-(\d+)")
FULL = (errno.ENOSPC, errno.EDQUOT)
# Raised on a full disk by Python, torch.save and safetensors.
WRITE_ERRORS = (OSError, RuntimeError, SafetensorError)

logger = logging.getLogger(__name__)


def write_manifest(checkpoint: Path) -> None:
    """Mark `checkpoint` as complete: first sync its files to the disk, then write the manifest."""
    files = {}
    for path in sorted(p for p in checkpoint.rglob("*") if p.is_file() and p.name != MANIFEST):
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        files[path.relative_to(checkpoint).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    save_json(checkpoint / MANIFEST, {"files": files})
    fsync_folder(checkpoint.parent)


def is_whole(checkpoint: Path) -> bool:
    """Whether the manifest exists and every file agrees with it."""
    try:
        files = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"]
        return bool(files) and all(_agrees(checkpoint / name, expected) for name, expected in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no manifest, or not ours
        return False


def _agrees(path: Path, expected: dict[str, Any]) -> bool:
    return bool(path.stat().st_size == expected["bytes"] and sha256_of(path) == expected["sha256"])


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that training can resume from; unusable ones are moved to `torn/`.

    A checkpoint is usable if it is whole and the best checkpoint that it refers to still exists.
    """
    whole = []
    for checkpoint in checkpoints_of(folder):
        if is_whole(checkpoint):
            whole.append(checkpoint)
        else:
            _set_aside(checkpoint, "is incomplete")
    while whole and not _has_its_best(whole[-1]):
        _set_aside(whole.pop(), "refers to a best checkpoint that is gone")
    return whole[-1] if whole else None


def _has_its_best(checkpoint: Path) -> bool:
    best = (load_json(checkpoint / "trainer_state.json") or {}).get("best_global_step")
    return best is None or checkpoint.with_name(f"checkpoint-{best}").is_dir()


def _set_aside(checkpoint: Path, reason: str) -> None:
    aside = checkpoint.parent / TORN / checkpoint.name
    if aside.parent.is_file():
        raise CheckpointError(f"{aside.parent}: is a file, where {checkpoint.name} is set aside; move or delete it")
    logger.warning("%s %s; set aside as %s", checkpoint, reason, aside)
    aside.parent.mkdir(exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)


def drop_old_checkpoints(folder: Path, keep: int, best: str | None) -> None:
    """Delete all but the newest `keep` checkpoints and the best one; call it when the newest one is whole."""
    for checkpoint in checkpoints_of(folder)[:-keep]:
        if best is None or checkpoint.name != Path(best).name:
            shutil.rmtree(checkpoint, ignore_errors=True)


def checkpoints_of(folder: Path) -> list[Path]:
    """All checkpoints in a folder, whole or not, by step."""
    found = [path for path in folder.glob("checkpoint-*") if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


@contextmanager
def disk_space(target: Path, needed: int) -> Iterator[None]:
    """Check that about `needed` bytes fit before the block writes the folder `target`; remove it if the disk fills up.

    The `CheckpointError` names the path, the bytes needed and the bytes free.
    """
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise _disk_full(target, needed, free)
    try:
        yield
    except WRITE_ERRORS as error:
        free = shutil.disk_usage(target.parent).free
        if getattr(error, "errno", None) not in FULL and free >= needed:
            raise
        shutil.rmtree(target, ignore_errors=True)
        raise _disk_full(target, needed, free) from error


def _disk_full(target: Path, needed: int, free: int) -> CheckpointError:
    sizes = f"about {needed:,} bytes are needed and {free:,} are free"
    remedy = "make room and run the same command again to resume from the last checkpoint"
    return CheckpointError(f"{target}: the disk is full, {sizes}; {remedy}")


@contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """Name the folder if the disk fills up inside the block, when a log or a note is written."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        remedy = "make room and run the same command again to resume"
        raise CheckpointError(f"{error.filename or folder}: the disk is full; {remedy}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the run folder for this process; raises `CheckpointError` if another run has it."""
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise CheckpointError(f"{path}: is a file; give a folder for the run")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as handle:
        if not lock(handle):
            handle.seek(0)
            owner, remedy = handle.read().strip() or "unknown", "wait for it, or choose another output folder"
            raise CheckpointError(f"{folder}: another run (process {owner}) is writing here; {remedy}")
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield

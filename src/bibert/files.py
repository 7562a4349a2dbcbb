"""Atomic writes: a file is complete or absent.

A reader never sees half a file, and a full disk, a killed process or a power cut leaves the previous file intact.
"""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from bibert.errors import BibertError, CheckpointError

STANDARD_OUTPUT = "standard output"  # as messages call it


def check_output(path: Path, suffix: str) -> None:
    """Refuse a bad output path before hours of work; the suffix, so that a slip does not replace another file."""
    if path.suffix != suffix:
        raise BibertError(f"{path}: a {suffix} file is written; give it a name ending in {suffix}")
    if not path.resolve().parent.is_dir():
        raise BibertError(f"{path}: the folder {path.parent} does not exist; create it first")


@overload
def write_whole(path: Path | str, mode: Literal["w"] = "w") -> AbstractContextManager[TextIO]: ...
@overload
def write_whole(path: Path | str, mode: Literal["wb"]) -> AbstractContextManager[BinaryIO]: ...
@contextlib.contextmanager
def write_whole(path: Path | str, mode: Literal["w", "wb"] = "w") -> Iterator[Any]:
    """Open `path` for writing so that it appears complete at the end of the block, or not at all.

    The bytes go to a hidden temporary file in the same folder, are flushed to the disk, and only then renamed to
    `path`. If the block raises, the temporary file is removed and an existing `path` is left unchanged. Text is UTF-8,
    and line ends are written as given on every system.
    """
    # Follow a link, so that it points at the new file instead of being replaced by it.
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise BibertError(f"{path}: the folder {Path(path).parent} does not exist; create it first")
    if target.exists() and not target.is_file():
        raise BibertError(f"{path}: is not a regular file and cannot be replaced by one; choose another name")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with naming(path, temporary), _open_new(temporary, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:  # Ctrl-C must not leave the temporary file behind either
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(target.parent)


@contextlib.contextmanager
def naming(path: Path | str, hidden: Path | None = None) -> Iterator[None]:
    """Put `path` into an error of the system that names no file, as a full disk, or names only the `hidden` one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.filename == str(hidden):
            error.filename = str(path)
        raise


def _open_new(path: Path, mode: Literal["w", "wb"]) -> IO[Any]:
    """Create `path` with the usual permissions (`tempfile` would make it private to the user)."""
    if mode == "wb":
        return path.open("xb")
    return path.open("x", encoding="utf-8", newline="")


def fsync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut; Windows neither needs nor allows it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed; False if another process has locked it. Without effect on Windows."""
    if os.name == "nt":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def save_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    with write_whole(path) as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def load_json(path: Path) -> Any:
    """The JSON of a file that a run wrote; None if there is no file. Raises `CheckpointError` if it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}); choose another output folder") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a growing file with their ends; a last line that a kill cut off is dropped.

    Bytes that are not UTF-8, which a power cut can leave, become U+FFFD.
    """
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        return [line for line in file if line.endswith("\n")]


def read_json_lines(path: Path) -> list[Any]:
    """Return the values of a file with one JSON value per line, which may still be growing."""
    return [json.loads(line) for line in whole_lines(path)]

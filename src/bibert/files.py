"""Files that are there whole or not at all.

A reader never sees half a file, and neither a full disk nor a killed process nor a power cut spoils the file
that was there before. Folders, checkpoints and what is inside a file are the business of whoever writes it.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from bibert.errors import BibertError


@overload
def write_whole(path: Path | str, mode: Literal["w"] = "w") -> AbstractContextManager[TextIO]: ...
@overload
def write_whole(path: Path | str, mode: Literal["wb"]) -> AbstractContextManager[BinaryIO]: ...
def write_whole(path: Path | str, mode: Literal["w", "wb"] = "w") -> AbstractContextManager[IO[Any]]:
    r"""Open `path` for writing so that it appears complete at the end of the block, or not at all.

    The bytes go to a hidden temporary file in the same folder, are flushed to the disk, and only then take the
    name `path`. If the block raises, the temporary file is removed and an earlier `path` stays as it was. Text is
    UTF-8 and line ends are written as given, on every system.

    Example:
        with write_whole("metrics.tsv") as file:
            file.write("step\tloss\n")

    Raises:
        BibertError: the folder does not exist, or `path` is there and is not a regular file.
    """
    return _write_whole(Path(path), mode)


@contextlib.contextmanager
def _write_whole(path: Path, mode: Literal["w", "wb"]) -> Iterator[IO[Any]]:
    # A link is followed, so that it goes on pointing at the new file instead of being replaced by it.
    target = path.resolve()
    _require_writable_place(path, target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with _open_new(temporary, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:  # Ctrl-C too must not leave the temporary file behind
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(target.parent)


def _require_writable_place(path: Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise BibertError(f"{path}: the folder {path.parent} does not exist; make it first")
    if target.exists() and not target.is_file():
        raise BibertError(f"{path}: is not a regular file, so it cannot be replaced by one; give the name of a file")


def _open_new(path: Path, mode: Literal["w", "wb"]) -> IO[Any]:
    """Create `path` with the permissions of any new file (`tempfile` would make it private to the user)."""
    if mode == "wb":
        return path.open("xb")
    return path.open("x", encoding="utf-8", newline="")


def fsync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut; Windows cannot open folders and needs no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that is appended to, with their ends; a last line that a kill cut off is left out."""
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def read_json_lines(path: Path) -> list[Any]:
    """The values of a file with one JSON value a line, which may be growing at this moment."""
    return [json.loads(line) for line in whole_lines(path)]

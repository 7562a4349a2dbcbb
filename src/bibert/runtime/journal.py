"""What `bibert predict` has done so far, beside its output: after a kill, the same command continues from there.

The journal holds the labels, block by block, one JSON line each below a line that identifies the task. The output
itself is written whole at the end of the work, so that any format can be continued: rows are read again, which takes
little time, and labelled from the journal. The last line has the SHA-256 of the output, before that gets its name.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

import bibert
from bibert.errors import BibertError
from bibert.files import lock, naming, sha256_of
from bibert.runtime.tables import Block, Source
from bibert.runtime.writers import Labeller


def task_of(source: Source, model: Path, labeller: Labeller) -> dict[str, Any]:
    """Everything that the labels of a file depend on, as JSON values."""
    assert source.path is not None
    found, decoding = source.path.stat(), source.decoding
    return {
        "bibert": bibert.__version__,
        "model": sha256_of(model),
        "input": [str(source.path.resolve()), found.st_size, found.st_mtime_ns],
        "read": [source.file_format, decoding.encoding, decoding.delimiter, source.columns.noted()],
        "labels": [*labeller.columns, labeller.min_score, labeller.label_blank],
        "rows_per_block": source.rows_per_chunk,
    }


def journal_of(target: Path) -> Path:
    """The place of the journal of an output file."""
    return target.with_name(f".{target.name}.journal")


def is_complete(target: Path, task: Mapping[str, Any]) -> bool:
    """Whether a kill came after the output of this task was in place; the journal is then removed."""
    path = journal_of(target)
    if not path.exists() or not target.is_file():
        return False
    with path.open("rb") as file:
        same, last = _value(file.readline()) == task, deque(file, maxlen=1)
    if not same or not last or _value(last[0]) != {"output": sha256_of(target)}:
        return False
    path.unlink()
    return True


@contextmanager
def open_journal(target: Path, task: Mapping[str, Any]) -> "Iterator[Journal]":
    """Open the journal of an output file, and remove it when the block ends well, or fails before anything was done."""
    path, done = journal_of(target), False
    with naming(target, path):
        try:
            with path.open("a+b") as file:
                if not lock(file):
                    raise BibertError(f"{target}: another process is writing it; wait for it, or give another name")
                place = target.resolve()
                for stray in place.parent.glob(f".{escape(place.name)}.{'[0-9a-f]' * 8}.tmp"):  # of a killed process
                    stray.unlink()
                journal = Journal(file, task)
                try:
                    yield journal
                except BibertError:
                    done = journal.is_empty
                    raise
                done = True
        finally:
            if done:  # and closed: Windows removes no open file
                path.unlink(missing_ok=True)


class Journal:
    """Blocks of labels in the order of the rows: first those of an earlier process are read, then new ones added."""

    def __init__(self, file: BinaryIO, task: Mapping[str, Any]) -> None:
        self.is_empty = False  # new, without a block
        self.rows_found = 0  # labelled by an earlier process
        self._file = file
        self._at_end = False
        file.seek(0)
        if _value(file.readline()) != task:  # new, or of another task
            file.truncate(0)
            self._append(task)
            self._at_end = self.is_empty = True

    def next_block(self, rows: int) -> Block | None:
        """The labels of the next `rows` rows, if an earlier process had them; drops a line that was cut off."""
        if self._at_end:
            return None
        start = self._file.tell()
        found = _value(self._file.readline())
        if isinstance(found, dict) and found.get("rows") == rows:
            self.rows_found += rows
            return Block(**found)
        self._at_end = True
        self._file.truncate(start)
        return None

    def add(self, block: Block) -> None:
        """Write the labels of some rows."""
        self._append(block._asdict())
        self.is_empty = False

    def finish(self, output: Path) -> None:
        """Note the whole output, which is about to be renamed, so that `is_complete` knows it."""
        self._file.truncate()  # behind the last block: an earlier process may have been killed here
        self._append({"output": sha256_of(output)})

    def _append(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")
        self._file.flush()


def _value(line: bytes) -> Any:
    """The value of a whole line; None of one that was cut off or damaged."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None

"""Models that are named on the command line to be looked into: loaded quietly, each under a title of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bibert.data.examples import MAX_LENGTH
from bibert.errors import require_extra

if TYPE_CHECKING:
    from bibert.lab.subject import Subject


def load_subjects(paths: Sequence[str | Path], max_length: int = MAX_LENGTH) -> "dict[str, Subject]":
    """Packed files, names on the Hub and folders with models, by title; a folder cuts texts at `max_length` tokens."""
    from bibert.lab.subject import load_subject, titles

    if any(Path(path).is_dir() for path in paths):
        require_extra("train", "a look into a model folder")
        from bibert.cli.progress import quiet_libraries

        quiet_libraries()
    subjects = [load_subject(path, max_length) for path in paths]
    return dict(zip(titles(subjects), subjects, strict=True))

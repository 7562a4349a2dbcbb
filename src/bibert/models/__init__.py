"""Packed models that come with the package, by name; each has a card beside it.

The files are made by `bibert pack` and `bibert card`; docs/models.md says with which commands.
"""

from pathlib import Path

DEFAULT = "sst2"  # sentiment of English sentences
FOLDER = Path(__file__).parent


def shipped_file(name: str) -> Path | None:
    """The packed file of a model that comes with the package, or None if there is none of that name."""
    path = FOLDER / f"{name}.bibert"
    return path if name.isidentifier() and path.is_file() else None

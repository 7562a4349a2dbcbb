"""Every error a user can cause, as one small tree with the exit code of each branch.

A message is one line: where, what is wrong with the numbers, and how to fix it. The command line prints it and exits
with `exit_code`; the library raises and never prints.
"""

import difflib
import importlib.util
from collections.abc import Iterable


class BibertError(Exception):
    """Anything that is wrong with the user's input."""

    exit_code = 2


class DataError(BibertError):
    """A data file, column, row or label is missing or malformed; the message starts with file:line."""


class RecipeError(BibertError):
    """A recipe has an unknown key, a wrong type or a value out of range."""


class SchemeError(BibertError):
    """A scheme does not exist, or its fields contradict each other."""


class CheckpointError(BibertError):
    """A checkpoint, tokenizer or run folder cannot be used."""


class ModelFileError(BibertError):
    """A packed file is damaged, is not a packed file, or exceeds the limits of the format."""


class EngineError(BibertError):
    """The native engine cannot be loaded, or cannot run its input."""


class NumericError(BibertError):
    """A value left the range of the numeric contract or is not finite, or the bits of two computations differ."""

    exit_code = 4


class MissingExtraError(BibertError):
    """A command needs packages that the light install does not include."""

    exit_code = 3


PACKAGES_OF_EXTRA = {
    "train": ("torch", "transformers", "datasets", "accelerate", "sklearn", "scipy"),
    "data": ("pyarrow",),
    "excel": ("openpyxl",),
    "tensorboard": ("tensorboard",),
    "plot": ("matplotlib", "jinja2"),
    "serve": ("granian", "prometheus_client", "pydantic"),
}


def require_extra(extra: str, purpose: str) -> None:
    """Raise `MissingExtraError` with the pip line unless every package of `extra` can be imported."""
    if missing := [name for name in PACKAGES_OF_EXTRA[extra] if importlib.util.find_spec(name) is None]:
        remedy = f"pip install 'bibert[{extra}]' (in a clone: pip install '.[{extra}]')"
        raise MissingExtraError(f"{purpose} needs {', '.join(missing)}, not installed here: {remedy}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: the closest known name, or all of them."""
    choices = list(known)
    if close := difflib.get_close_matches(name, choices, n=1):
        return f"did you mean {close[0]!r}?"
    return "choose one of " + ", ".join(choices)


def one_line(error: BaseException) -> str:
    """Shorten another library's message: keep its first line, and the second if the first ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])

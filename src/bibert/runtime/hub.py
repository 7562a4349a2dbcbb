"""Fetching a packed file from the Hugging Face Hub; a file that was fetched before is found without a network.

huggingface_hub is imported only here and only when it is needed, because its import takes as long as a small model.
"""

import re
from pathlib import Path
from typing import Any

from bibert.errors import ModelFileError, one_line

SUFFIX = ".bibert"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)


def is_hub_id(name: str) -> bool:
    """Whether `name` could be "owner/name" or "owner/name@revision" on the Hub."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith(SUFFIX)


def fetch(name: str) -> Path:
    """The folder with the packed files of a Hub repository, fetched unless it is in the cache.

    Args:
        name: "owner/name", or "owner/name@revision" with a branch, a tag or a commit.

    Raises:
        ModelFileError: there is no such repository or revision, or the Hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases are the errors of the HTTP client, which differs from one version of huggingface_hub to another.
    refusals: tuple[type[Any], ...] = (OSError, ValueError, *HfHubHTTPError.__bases__)
    repository, _, revision = name.partition("@")
    try:
        return Path(
            snapshot_download(
                repository, revision=revision or None, allow_patterns=f"*{SUFFIX}", tqdm_class=_silent_progress()
            )
        )
    except refusals as error:
        raise ModelFileError(
            f"{name}: there is no such file or folder, and the Hub does not give it ({one_line(error)})"
        ) from error


def _silent_progress() -> type:
    """A progress bar that is not shown, since libraries do not print."""
    from huggingface_hub.utils.tqdm import tqdm

    class Silent(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]

    return Silent

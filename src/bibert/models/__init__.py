"""Where packed models are found: a file, a folder, the Hugging Face Hub, or this folder, which ships with the package.

docs/models.md has the commands that made the shipped files and their cards.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bibert.errors import ModelFileError, did_you_mean, one_line

DEFAULT = "sentiment_4"  # sentiment of English sentences, activations of 4 bits
FOLDER = Path(__file__).parent
SUFFIX = ".bibert"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)


def find_file(path_or_name: Path | str) -> Path:
    """Return the packed file that `bibert.load` reads; download it if it is on the Hub."""
    path = Path(path_or_name)
    try:
        exists = path.exists()
    except OSError:  # for example, a name that is too long for a file; opening it gives the reason
        return path
    if isinstance(path_or_name, str) and not exists:
        if shipped := shipped_file(path_or_name):
            return shipped
        if is_hub_id(path_or_name):
            path = fetch(path_or_name)
        elif path.name == path_or_name and not path.suffix:
            hint = did_you_mean(path_or_name, shipped_names())
            raise ModelFileError(f"{path_or_name}: no such file, and no shipped model of this name; {hint}")
    if not path.is_dir():
        return path
    found = sorted(path.glob(f"*{SUFFIX}"))
    if len(found) != 1:
        remedy = f"choose one, such as {found[0]}" if found else "create one with bibert pack"
        raise ModelFileError(f"{path_or_name}: has {len(found)} files that end in {SUFFIX}, must have 1; {remedy}")
    return found[0]


def shipped_file(name: str) -> Path | None:
    """Return the packed file that ships with the package under this name, or None."""
    path = FOLDER / f"{name}{SUFFIX}"
    return path if name.isidentifier() and path.is_file() else None


def shipped_names() -> list[str]:
    """Return the names of the packed files that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def shipped_start(bits: int) -> str:
    """Return the name of the encoder in the package that a student with activations of that many bits starts from."""
    own = f"general_{bits}"
    return own if shipped_file(own) else "general_4"


def is_hub_id(name: str) -> bool:
    """Return whether `name` has the form "owner/name" or "owner/name@revision"."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith(SUFFIX)


def fetch(name: str) -> Path:
    """Download the packed files of a Hub repository, unless they are in the cache, and return their folder.

    `name` is "owner/name", or "owner/name@revision" with a branch, a tag or a commit.
    """
    # Imported only when needed: this takes as long as loading a small model.
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import tqdm

    class Silent(tqdm):  # libraries do not print
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]

    repository, _, revision = name.partition("@")
    with _asking_the_hub(f"{name}: no such file or folder, and the Hub does not provide it ({{}})"):
        wanted = f"*{SUFFIX}"
        folder = snapshot_download(repository, revision=revision or None, allow_patterns=wanted, tqdm_class=Silent)
    return Path(folder)


def publish(path: Path, card: Path, name: str, *, private: bool = False) -> str:
    """Upload a packed file and its card to the Hub repository "owner/name", created if needed, and return the address.

    Both go into one commit. The file gets the same name each time, since a repository has only one.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    if not is_hub_id(name) or "@" in name:
        raise ModelFileError(f"{name!r} is not a name on the Hub; write owner/name")
    files = {f"model{SUFFIX}": path, "README.md": card}
    additions = [CommitOperationAdd(target, source) for target, source in files.items()]
    with _asking_the_hub(f"{name}: the Hub does not take it ({{}}); log in with hf auth login, or set HF_TOKEN"):
        hub = HfApi()
        hub.create_repo(name, private=private, exist_ok=True)
        if private and not hub.repo_info(name).private:
            remedy = "make it private there, or leave it out"
            raise ModelFileError(f"{name}: is public, so --private has no effect; {remedy}")
        hub.create_commit(name, additions, commit_message=f"Add {path.name}")
        return f"{hub.endpoint}/{name}"


@contextmanager
def _asking_the_hub(message: str) -> Iterator[None]:
    """Turn errors of the Hub into `ModelFileError`; `message` has a place for the reason."""
    try:
        yield
    except hub_failures() as error:
        raise ModelFileError(message.format(one_line(error))) from error


def hub_failures() -> tuple[type[Any], ...]:
    """The errors of huggingface_hub and of its HTTP client, which differs between its versions."""
    from huggingface_hub.errors import HfHubHTTPError

    return OSError, ValueError, *HfHubHTTPError.__bases__

"""`bibert push` and `bibert pull`: packed files to and from the Hugging Face Hub; `models` talks to it."""

from pathlib import Path
from typing import Annotated

import typer

from bibert.cli.console import say
from bibert.cli.options import EXISTS, option
from bibert.errors import BibertError
from bibert.files import check_output
from bibert.models import SUFFIX, fetch, find_file, is_hub_id, publish


def push(
    file: Annotated[Path, typer.Argument(help="The packed file.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository; created if there is none.")],
    card: Annotated[Path | None, option("Its card; by default the file of the same name that ends in .md.")] = None,
    private: Annotated[bool, typer.Option("--private", help="Create a repository that others cannot see.")] = False,
) -> None:
    """Upload a packed file and its card to the Hugging Face Hub, in one commit.

    Log in first with hf auth login, or set HF_TOKEN. `bibert card` writes the card.

    Example: bibert push reviews.bibert owner/reviews
    """
    from bibert.packed.file import load

    load(file)  # raises if the file is damaged
    card = card or file.with_suffix(".md")
    if not card.is_file():
        command = f"bibert card TEST.csv -m {file} --title TITLE -o {card}"
        raise BibertError(f"{card}: no such card; write one with {command}")
    say(f"{publish(file, card, name, private=private)}: uploaded {file.stat().st_size:,} bytes and {card}")
    say(f"next: bibert predict -m {name} 'a text'")


def pull(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository; @REVISION may follow.")],
    output: Annotated[
        Path | None, option("The packed file; by default NAME.bibert in this folder.", "--output", "-o")
    ] = None,
    force: Annotated[bool, option("Replace an existing file.")] = False,
) -> None:
    """Download a packed file from the Hugging Face Hub, and check every byte of it.

    Other commands take the name itself and keep the file in the cache of the Hub.

    Example: bibert pull owner/reviews -o reviews.bibert
    """
    from bibert.packed.file import load, save

    if not is_hub_id(name):
        raise BibertError(f"{name!r} is not a name on the Hub; write owner/name or owner/name@revision")
    target = output or Path(name.partition("@")[0].partition("/")[2] + SUFFIX)
    check_output(target, SUFFIX)
    if target.exists() and not force:
        raise BibertError(f"{target}: {EXISTS}")
    save(load(find_file(fetch(name))), target)
    say(f"{target}: {target.stat().st_size:,} bytes")

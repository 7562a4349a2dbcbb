"""`bibert serve`: packed models over HTTP, and a page to try them. The server is in `serving/`."""

from typing import Annotated

import typer

from bibert.cli.console import say
from bibert.cli.options import with_option_groups
from bibert.errors import require_extra
from bibert.models import DEFAULT
from bibert.serving.settings import Settings, named


@with_option_groups
def serve(
    settings: Settings,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL",
            help=f"A packed file, Hub id or shipped name; {DEFAULT} if none.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve packed models over HTTP, in the protocol of text-embeddings-inference, with a page at /.

    The first model answers at /predict, each at /models/NAME/predict. Ctrl-C and SIGTERM answer what was accepted.

    Example: bibert serve

    Example: bibert serve reviews.bibert fast=sst2 --port 8000
    """
    require_extra("serve", "bibert serve")
    from bibert.serving.run import checked
    from bibert.serving.run import serve as run

    places = named(models or [DEFAULT])
    settings = checked(settings, places)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"serving {', '.join(places)} at http://{host}:{settings.port}")
    run(settings, places)

"""The settings of a server, each a flag of `bibert serve` and a variable BIBERT_..., and the models by name."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bibert.errors import BibertError

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # of several workers; prometheus_client reads it when it is imported
_NAME = re.compile(r"[\w.-]+", re.ASCII)  # part of a path, without escapes


def _setting(name: str, help_text: str, **limits: Any) -> Any:
    return typer.Option(f"--{name}", help=help_text, envvar=f"BIBERT_{name.replace('-', '_').upper()}", **limits)


@dataclass(frozen=True)
class Settings:
    """How to serve; limits hold for each worker process."""

    host: Annotated[str, _setting("host", "Address to listen on; 0.0.0.0 for all addresses.")] = "127.0.0.1"
    port: Annotated[int, _setting("port", "Port to listen on.", min=1, max=65535)] = 8080
    api_key: Annotated[
        str, _setting("api-key", "Ask clients for it (Authorization: Bearer KEY); better in the variable.")
    ] = ""
    workers: Annotated[int, _setting("workers", "Processes; each loads every model.", min=1, max=256)] = 1
    threads: Annotated[
        int, _setting("threads", "Threads that compute, for each model; 0 is one per CPU.", min=0, max=256)
    ] = 0
    batch: Annotated[int, _setting("batch", "Texts that a thread takes at once.", min=1, max=1024)] = 32
    max_client_batch: Annotated[
        int, _setting("max-client-batch", "Texts that one request may have, else 413.", min=1, max=10_000)
    ] = 32
    max_queue: Annotated[
        int, _setting("max-queue", "Texts that may wait for each model, else 429.", min=1, max=1_000_000)
    ] = 512
    deadline: Annotated[
        float, _setting("deadline", "Seconds that a request may wait, else 503.", min=0.01, max=3600)
    ] = 10.0
    max_body: Annotated[int, _setting("max-body", "Bytes of a request, else 413.", min=1024, max=1 << 30)] = 2_000_000
    client_seconds: Annotated[
        int, _setting("client-seconds", "Seconds for a client to send headers, then the body, else 408.", min=1)
    ] = 5
    drain: Annotated[int, _setting("drain", "Seconds to answer what was accepted, at SIGTERM.", min=1)] = 10
    reload: Annotated[
        float, _setting("reload", "Seconds between looks for a replaced model file; 0 for never.", min=0)
    ] = 1.0
    page: Annotated[bool, typer.Option("--page/--no-page", envvar="BIBERT_PAGE", help="The page at /.")] = True
    log_requests: Annotated[
        bool, typer.Option("--log-requests", envvar="BIBERT_LOG_REQUESTS", help="Log paths and codes, never texts.")
    ] = False

    def __post_init__(self) -> None:
        if self.max_client_batch > self.max_queue:
            problem = f"--max-client-batch is {self.max_client_batch}, --max-queue {self.max_queue}"
            raise BibertError(f"{problem}: the largest request would never be admitted; raise --max-queue")

    @property
    def threads_of_a_model(self) -> int:
        """`threads`, or one per CPU that this process may use."""
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        return self.threads or len(allowed)


def named(models: list[str]) -> dict[str, str]:
    """Names and places of models, each given as NAME=PLACE, or as a place whose last part is the name."""
    found: dict[str, str] = {}
    for word in models:
        name, equals, place = word.partition("=")
        if not equals or Path(word).exists():
            name, place = re.split(r"[/\\]", word.partition("@")[0].rstrip("/"))[-1].removesuffix(".bibert"), word
        if not _NAME.fullmatch(name) or not place:
            raise BibertError(f"{word!r}: {name!r} cannot be part of an address; write NAME={place or 'FILE'}")
        if name in found:
            raise BibertError(f"two models are called {name!r}: {found[name]} and {place}; rename one: NAME={place}")
        found[name] = place
    return found

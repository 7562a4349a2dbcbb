"""Starting a server: granian listens, watches its workers and restarts one that dies; each worker has an `App`."""

import contextlib
import ctypes
import logging
import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bibert.errors import BibertError
from bibert.serving.served import ServedModel
from bibert.serving.settings import SHARED_METRICS, Settings

CONNECTIONS = 16_384  # of a worker, most of them idle
M_ARENA_MAX, ARENAS = -8, 2  # of mallopt(3); by default each thread may keep 64 MB
LOG = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "bibert": {"handlers": ["stderr"], "level": "INFO"},
        "_granian": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "granian.access": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}


def checked(settings: Settings, places: Mapping[str, str]) -> Settings:
    """The settings with the address of their host; raises what is wrong with a model, the host or the port."""
    for name, place in places.items():
        ServedModel(name, place)  # workers load their own
    # Two servers could share a port without noticing it: granian listens with SO_REUSEPORT.
    family, *_, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    try:
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        problem = f"port {settings.port}: {error.strerror}"  # names the address too
        raise BibertError(f"{problem}; choose another --port, or another --host") from None
    return replace(settings, host=str(address[0]))


def serve(settings: Settings, places: Mapping[str, str]) -> None:
    """Serve models, by name, until SIGTERM or Ctrl-C."""
    _raise_file_limit()
    with _shared_metrics(settings.workers):
        _listen(settings, dict(places))


def _listen(settings: Settings, places: Mapping[str, str]) -> None:
    """Imports what is slow only now, after the checks; workers are forks, and find the application imported."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels

    import bibert.serving.app  # noqa: F401

    Granian(
        "bibert.serving.app:App",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        http=HTTPModes.http1,  # to find out the version, granian would wait for a first byte for ever
        http1_settings=HTTP1Settings(header_read_timeout=1000 * settings.client_seconds),
        websockets=False,
        backlog=4096,
        backpressure=CONNECTIONS,
        log_dictconfig=LOG,
        log_level=LogLevels.warning,
        log_access=settings.log_requests,
        respawn_failed_workers=True,
        workers_kill_timeout=settings.drain,
    ).serve(target_loader=partial(_application, settings, places), wrap_loader=False)


def _application(settings: Settings, places: Mapping[str, str]) -> Any:
    from bibert.serving.app import App

    # glibc only: threads share memory instead of keeping their own. Windows has no CDLL(None).
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    logging.getLogger("bibert").setLevel(logging.INFO)
    return App(settings, places)


def _raise_file_limit() -> None:
    """Every connection is a file; allow as many as the system lets us."""
    if os.name == "nt":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def _shared_metrics(workers: int) -> Any:
    """A folder through which the workers share their metrics, if there are several."""
    if workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="bibert-metrics-") as folder:
        os.environ[SHARED_METRICS] = folder
        yield

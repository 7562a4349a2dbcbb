"""Requests and replies in ASGI: what a client may send, for how long, and how every refusal looks.

granian limits the time of headers; the size and the time of a body are limited here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON = "application/json"
ALWAYS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


@dataclass(frozen=True)
class Reply:
    """A status with a body."""

    body: bytes
    kind: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send, *, without_body: bool = False) -> None:
        """Send it; the reply to HEAD has no body."""
        length = {"content-type": self.kind, "content-length": str(len(self.body))}
        headers = [(name.encode(), value.encode()) for name, value in {**ALWAYS, **length, **self.headers}.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if without_body else self.body})


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A value as JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Reply(text.encode(), JSON, status, headers or {})


class RefusalError(Exception):
    """A request that gets an error, with the type that TEI gives it."""

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.kind = kind
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = json_reply({"error": message, "error_type": kind}, status, named)


def header(scope: Scope, name: bytes) -> bytes:
    """The first header of this name, in lower case; empty if there is none."""
    return next((value for key, value in scope["headers"] if key == name), b"")


async def read_json(scope: Scope, receive: Receive, most_bytes: int, seconds: float) -> bytes:
    """The body of a request that says it is JSON."""
    kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
    if kind != JSON.encode():
        raise RefusalError(415, "validation", f"the content type is {kind.decode('latin-1')!r:.60}, must be {JSON}")
    if header(scope, b"content-encoding").lower() not in (b"", b"identity"):
        raise RefusalError(415, "validation", "the body is compressed; send it as it is")
    length = header(scope, b"content-length")
    if length.isdigit() and int(length[:20]) > most_bytes:
        raise _too_large(most_bytes)
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, most_bytes)
    except TimeoutError:
        problem = f"the body did not arrive within {seconds:g} s"
        raise RefusalError(408, "timeout", problem, connection="close") from None


async def _read(receive: Receive, most_bytes: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise client_gone()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most_bytes:
            raise _too_large(most_bytes)
        more = message.get("more_body", False)
    return b"".join(parts)


def client_gone() -> RefusalError:
    """The client closed the connection, or broke HTTP in its body; perhaps it still reads an answer."""
    return RefusalError(400, "gone", "the request was not completed", connection="close")


def _too_large(most_bytes: int) -> RefusalError:
    problem = f"the body has more than {most_bytes:,} bytes, the most that is read; send less at once"
    return RefusalError(413, "validation", problem, connection="close")

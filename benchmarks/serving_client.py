"""A server in a process of its own, connections to it, and texts: what serving.py and serving_soak.py share."""

import asyncio
import contextlib
import json
import random
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = "sst2"
WORDS = (
    "a the film plot witty dull gorgeous slow never always funny and but with without of heart mind".split()  # noqa: SIM905
)
HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def sentence(number: int, least: int = 1, most: int = 60) -> str:
    """A text of its own for every number: `least` to `most` words and the number."""
    draw = random.Random(number)
    return f"{' '.join(draw.choices(WORDS, k=draw.randint(least, most)))} {number}"


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of the values lies, in milliseconds."""
    return round(1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))], 2) if values else 0.0


@dataclass
class Server:
    """A server in a process of its own."""

    port: int
    process: asyncio.subprocess.Process

    def resident_mb(self) -> float:
        """Memory of the worker."""
        status = Path(f"/proc/{self.workers()[0]}/status").read_text("ascii")
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def shared_mb(self) -> float:
        """Memory of all its processes, each shared page counted once."""
        pages = [Path(f"/proc/{pid}/smaps_rollup").read_text("ascii") for pid in (self.process.pid, *self.workers())]
        return sum(int(re.findall(r"\nPss:\s+(\d+)", page)[0]) for page in pages) / 1024

    def workers(self) -> list[int]:
        """The processes that answer."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text("ascii").split()]


@contextlib.asynccontextmanager
async def served(*words: str, prepare: Callable[[], None] | None = None) -> AsyncIterator[Server]:
    """Start `bibert serve` with these words, wait for its health, and end it."""
    async with started([sys.executable, "-m", "bibert", "serve", *(words or (MODEL,)), "--port"], prepare) as server:
        yield server


@contextlib.asynccontextmanager
async def started(command: Sequence[str], prepare: Callable[[], None] | None = None) -> AsyncIterator[Server]:
    """Start a server whose command ends with the port, wait for its health, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    process = await asyncio.create_subprocess_exec(*command, str(port), stderr=subprocess.DEVNULL, preexec_fn=prepare)
    server = Server(port, process)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                await Client(server).get("/health")
                break
            await asyncio.sleep(0.05)
        yield server
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@dataclass
class Client:
    """One connection, kept open between requests."""

    server: Server
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        return await self._ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    async def predict(self, inputs: Any, path: str = "/predict", key: str = "") -> tuple[int, bytes]:
        """Status and body of a prediction."""
        body = json.dumps({"inputs": inputs}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return await self._ask(
            head.encode() + (f"Authorization: Bearer {key}\r\n" if key else "").encode() + b"\r\n" + body
        )

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the connection, unless it is open."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.server.port)
        return self.streams

    async def _ask(self, raw: bytes) -> tuple[int, bytes]:
        try:
            reader, writer = await self.connect()
            writer.write(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            return int(head.split()[1]), await reader.readexactly(int(length[1]) if length else 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def crowd(clients: int, count: int, work: Callable[[Client, int], Awaitable[None]], server: Server) -> None:
    """Let clients share `count` pieces of work."""
    numbers = iter(range(count))

    async def one() -> None:
        client = Client(server)
        for number in numbers:
            await work(client, number)
        client.close()

    await asyncio.gather(*(one() for _ in range(clients)))

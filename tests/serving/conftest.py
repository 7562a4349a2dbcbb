"""Servers in processes of their own, on the tiny model of the tests or on the shipped ones, and how to ask them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("granian", reason="pip install 'bibert[serve]' to run this")

SECONDS = 30  # until a server must have started, or ended; no test is about time


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen
    port: int
    log: Path
    headers: dict = field(default_factory=dict)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, body=None, headers=()):
        """Status, headers and body of the reply; a body that is no bytes becomes JSON."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **self.headers, **dict(headers)}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, raw, {name: value for name, value in sent.items() if value is not None})
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def predict(self, inputs, path="/predict", **more):
        status, _, body = self.ask("POST", path, {"inputs": inputs, **more})
        return status, json.loads(body)

    def send(self, raw):
        """The first bytes of the reply to raw bytes, empty if the server closed the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as client:
            client.sendall(raw)
            return client.recv(4096)

    def metric(self, line):
        """The value of a metric, 0 if it was never counted."""
        text = self.ask("GET", "/metrics")[2].decode()
        return next((float(row.split()[-1]) for row in text.splitlines() if row.startswith(line)), 0.0)

    def end(self, number=signal.SIGTERM):
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextmanager
def started(folder, *words, environment=()):
    port, log = free_port(), folder / "log"
    command = [sys.executable, "-m", "bibert", "serve", *map(str, words), "--port", str(port)]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, env={**os.environ, **dict(environment)})
    server, deadline = Server(process, port, log), time.monotonic() + SECONDS
    try:
        while True:
            try:
                server.ask("GET", "/health")
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(SECONDS)


@pytest.fixture
def start(tmp_path):
    """A function that starts a server, as a context."""
    return lambda *words, **more: started(tmp_path, *words, **more)


@pytest.fixture
def connect():
    """A function that opens a connection to a server; all are closed at the end."""
    with ExitStack() as opened:
        yield lambda server: opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS))


@pytest.fixture(scope="module")
def server(packed_file, tmp_path_factory):
    """One server of two models for all tests of a file: the tiny one, twice."""
    with started(tmp_path_factory.mktemp("server"), packed_file, f"other={packed_file}", "--max-body", "200000") as one:
        yield one


@pytest.fixture(scope="session")
def offline(packed_file):
    """The same model without a server."""
    from bibert.runtime.classifier import load

    return load(packed_file, threads=1)

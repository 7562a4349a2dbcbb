"""Lines from a pipe that stays open: those that have arrived come together, and nothing waits for the next one."""

import io
import os
import threading
from contextlib import contextmanager

import pytest

from bibert.data.lines import Decoding, open_input
from bibert.data.readers import FORMATS


@contextmanager
def piped(monkeypatch, file_format="txt"):
    """The end of a pipe to write to, and the chunks of rows that standard input gives at the other end."""
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as stdin, os.fdopen(write, "wb", buffering=0) as pipe:
        monkeypatch.setattr("sys.stdin", stdin)
        pipe.write(b"text\n" if file_format == "csv" else b"")
        with open_input(None) as source:
            chunks = FORMATS[file_format](source, Decoding()).chunks(most_rows=100)
            yield pipe, ([row.cells["text"] for row in chunk] for chunk in chunks)


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_lines_that_have_arrived_come_together_before_the_next_one_is_written(monkeypatch):
    with piped(monkeypatch) as (pipe, chunks):
        pipe.write(b"one\n")
        assert next(chunks) == ["one"]
        pipe.write(b"two\nthree\n\nfive, the first half")
        assert next(chunks) == ["two", "three", ""]
        pipe.write(b" and the second\n")
        assert next(chunks) == ["five, the first half and the second"]
        pipe.write("ünïcödé\r\n".encode() * 250)
        assert [len(next(chunks)) for _ in range(3)] == [100, 100, 50]
        pipe.write(b"the end without a line break")
        pipe.close()
        assert list(chunks) == [["the end without a line break"]]


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_row_of_csv_may_arrive_in_parts(monkeypatch):
    with piped(monkeypatch, "csv") as (pipe, chunks):
        pipe.write(b'one\n"two')
        assert next(chunks) == ["one"]
        threading.Timer(0.05, pipe.write, [b'\nlines"\nthree\n']).start()
        assert next(chunks) == ["two\nlines", "three"]


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_fast_pipe_fills_its_chunks(monkeypatch):
    with piped(monkeypatch) as (pipe, chunks):
        pipe.write(b"a line of some length\n" * 2000)  # less than a pipe holds
        pipe.close()
        assert [len(chunk) for chunk in chunks] == [100] * 20


def test_a_file_and_bytes_in_memory_never_wait(monkeypatch, write):
    path = write("lines.txt", b"a\nb\nc\n")
    with path.open("rb") as file, open_input(path) as opened:
        for stdin in (file, io.BytesIO(b"a\nb\nc\n")):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stdin))
            with open_input(None) as source:
                assert [len(chunk) for chunk in FORMATS["txt"](source, Decoding()).chunks(100)] == [3]
        assert not opened.pauses

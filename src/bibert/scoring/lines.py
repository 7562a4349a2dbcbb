"""Lines of text from bytes of unknown quality, one at a time: encodings, bytes that are not text, lines without end.

A file is never held in memory. What a line means is the business of `tables`.
"""

import codecs
import gzip
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bibert.data.readers import MOST_CHARACTERS, check_gzip, check_utf8_text, reading
from bibert.errors import DataError, did_you_mean

ON_ERROR = ("fail", "skip", "replace")
ON_ERROR_REMEDY = "skip such rows (--on-error skip) or replace the byte (--on-error replace)"
STDIN = "stdin"
_LONGEST_MAGIC = 4
# What `surrogateescape` makes of a byte that the encoding does not have; NUL marks a binary file.
_NOT_TEXT = re.compile("[\udc80-\udcff\0]")
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Decoding:
    """How bytes become text.

    Attributes:
        encoding: the encoding of the file.
        on_error: what happens to a row that is not text or broken: one of `ON_ERROR`. `replace` puts U+FFFD in the
            place of bytes that are not text; other rows that are broken still fail.
    """

    encoding: str = "utf-8"
    on_error: str = "fail"

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise DataError(f"on_error is {self.on_error!r}; {did_you_mean(self.on_error, ON_ERROR)}")

    @property
    def is_utf8(self) -> bool:
        """Whether the encoding is UTF-8, under any of its names."""
        try:
            return codecs.lookup(self.encoding).name == "utf-8"
        except LookupError:
            return False

    def checked(self, text: str, where: str) -> str:
        """The text, if all its bytes were text; mended if that is wanted.

        Raises:
            DataError: a byte is not of the encoding, or is NUL.
        """
        if text.isascii() and "\0" not in text:
            return text
        found = _NOT_TEXT.search(text)
        if found is None:
            return text
        if self.on_error == "replace":
            return _NOT_TEXT.sub(REPLACEMENT, text)
        if found[0] == "\0":
            raise DataError(f"{where}: holds a NUL byte; write the file again, or {ON_ERROR_REMEDY}")
        raise DataError(
            f"{where}: byte 0x{ord(found[0]) & 0xFF:02x} is not {self.encoding}; name the file's encoding "
            f"(--encoding latin-1 is common), or {ON_ERROR_REMEDY}"
        )


@contextmanager
def open_input(path: Path | None) -> "Iterator[Input]":
    """Open a file, compressed if its name ends in .gz; standard input where `path` is None.

    Raises:
        DataError: it cannot be opened, or is not compressed though its name says so.
    """
    if path is None:
        yield Input(STDIN, sys.stdin.buffer)
        return
    with reading(path):
        disk = path.open("rb")
    with disk:
        if path.suffix.lower() != ".gz":
            yield Input(str(path), disk, disk)
            return
        check_gzip(disk.peek(_LONGEST_MAGIC), path)
        yield Input(str(path), gzip.GzipFile(fileobj=disk), disk)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Input:
    """The bytes of a file, decompressed, or of standard input.

    Attributes:
        origin: its name, for messages.
        stream: the bytes.
        disk: the file as it is on the disk, whose position tells how far we are; None where there is none.
    """

    origin: str
    stream: BinaryIO
    disk: BinaryIO | None = None

    @property
    def share(self) -> float | None:
        """How much of the file has been read, from 0 to 1; None where that cannot be known."""
        if self.disk is None or not self.disk.seekable():
            return None
        return min(1.0, self.disk.tell() / max(1, os.fstat(self.disk.fileno()).st_size))

    def lines(self, decoding: Decoding, newline: str = "\n") -> Iterator[str]:
        r"""The lines with their ends, bytes that are not text escaped for `Decoding.checked` to find.

        Args:
            decoding: the encoding.
            newline: `\n`, or the empty string to end a line also at a lone `\r`, as CSV allows.

        Raises:
            DataError: the file cannot be read or decompressed, is no text at all, or has a line without end.
        """
        number = 1
        with reading(self.origin):
            text = self._text(decoding, newline)
            try:
                for number, line in enumerate(iter(partial(text.readline, MOST_CHARACTERS), ""), start=1):
                    if len(line) == MOST_CHARACTERS and not line.endswith("\n"):
                        raise DataError(f"{self.origin}:{number}: has over {MOST_CHARACTERS} characters; is it text?")
                    yield line
            except UnicodeError as error:  # encodings of several bytes a letter know errors that cannot be escaped
                reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
                raise DataError(
                    f"{self.origin}:{number}: is not {decoding.encoding} ({reason}); name the file's encoding"
                ) from None
            finally:
                if not text.closed:
                    text.detach()  # or its end would close standard input

    def _text(self, decoding: Decoding, newline: str) -> io.TextIOWrapper:
        if decoding.is_utf8 and hasattr(self.stream, "peek"):
            check_utf8_text(self.stream.peek(_LONGEST_MAGIC), self.origin)
        encoding = "utf-8-sig" if decoding.is_utf8 else decoding.encoding
        try:
            return io.TextIOWrapper(self.stream, encoding, errors="surrogateescape", newline=newline)
        except LookupError:
            raise DataError(
                f"there is no encoding {decoding.encoding!r}; utf-8, utf-16, latin-1 and cp1252 are common"
            ) from None

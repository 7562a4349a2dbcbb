"""Lines of text from the bytes of a file, plain or .gz, or of standard input; a file is never held in memory.

Bytes that are not text are found line by line, so that a row can be refused, skipped or repaired as `Decoding` says.
`readers` makes rows of the lines.
"""

import codecs
import gzip
import io
import os
import re
import select
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from bibert.errors import DataError, did_you_mean

ON_ERROR = ("fail", "skip", "replace")
LONGEST_LINE = 2**24  # in one line or field: anything longer is not text, or a quote was never closed

GZIP = b"\x1f\x8b"
UTF16 = "UTF-16 text; save it as UTF-8; bibert predict also reads it with --encoding utf-16"
# The suffix names the format of a file; these first bytes show that the suffix is wrong.
NOT_UTF8_TEXT = {
    GZIP: "gzip-compressed; give it a name ending in .gz",
    b"PAR1": "Parquet; give it a name ending in .parquet",
    b"PK\x03\x04": "a zip archive or an Excel file; give an Excel file a name ending in .xlsx",
    b"\xff\xfe": UTF16,
    b"\xfe\xff": UTF16,
}
LONGEST_MAGIC = 4
TABS = {"tab": "\t", "\\t": "\t"}  # as people write a tab in a shell
# `surrogateescape` turns a byte that is not in the encoding into one of these; NUL marks a binary file.
NOT_TEXT = re.compile("[\udc80-\udcff\0]")


def shown(names: Iterable[str]) -> str:
    """Quote up to ten names for a message; a long one (a text, not a name) is cut short."""
    short = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names]
    return ", ".join(short[:10]) + (", ..." if len(short) > 10 else "")


def is_plain(text: str) -> bool:
    """Whether a text is ASCII without NUL, so that nothing needs to be checked."""
    return text.isascii() and "\0" not in text


class Usual(str):
    """The delimiter of the data that a model learned from: for CSV files that have it in their header."""


@dataclass(frozen=True)
class Decoding:
    """How bytes become rows."""

    encoding: str = "utf-8"
    on_error: str = "fail"  # what to do with a broken row; `replace` repairs only bytes that are not text, with U+FFFD
    remedy: str = "save the file as UTF-8 (iconv -f latin1 -t utf8 converts the most common other encoding)"
    delimiter: str = ""  # of CSV and TSV; empty for the one of the header, and tabs in TSV

    def __post_init__(self) -> None:
        object.__setattr__(self, "delimiter", type(self.delimiter)(TABS.get(self.delimiter, self.delimiter)))
        if len(self.delimiter) > 1 or self.delimiter in ('"', "\r", "\n"):
            raise DataError(f"the delimiter is {self.delimiter!r}, must be one character, such as ; or tab")
        if self.on_error not in ON_ERROR:
            raise DataError(f"on_error is {self.on_error!r}; {did_you_mean(self.on_error, ON_ERROR)}")
        try:
            "".encode(self.encoding)
        except LookupError:
            common = "utf-8, utf-16, latin-1 and cp1252 are common"
            raise DataError(f"there is no encoding {self.encoding!r}; {common}") from None

    def checked(self, text: str, where: str) -> str:
        """Return the text if every byte is in the encoding and none is NUL; `on_error="replace"` repairs it."""
        if is_plain(text) or not (found := NOT_TEXT.search(text)):
            return text
        if self.on_error == "replace":
            return NOT_TEXT.sub("\ufffd", text)
        byte = ord(found[0]) & 0xFF
        problem = f"byte 0x{byte:02x} is not {self.encoding}" if byte else "holds a NUL byte: binary, or UTF-16"
        raise DataError(f"{where}: {problem}; {self.remedy}")


class Arriving(io.RawIOBase):
    """The bytes of a stream that may stay open, with a count of the lines that have arrived."""

    def __init__(self, stream: BinaryIO) -> None:
        self.lines = 0
        self._raw: Any = getattr(stream, "raw", stream)  # without a buffer, which would hide what has arrived

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, or wait for the first bytes."""
        count: int | None = self._raw.readinto(buffer)
        self.lines += bytes(buffer[: count or 0]).count(b"\n")
        return count

    def would_wait(self) -> bool:
        """Whether a read would wait; at the end of the stream, and in a file, it does not."""
        try:
            return not select.select([self._raw], [], [], 0)[0]
        except (OSError, ValueError, TypeError):  # bytes in memory, and pipes of Windows, which cannot be asked
            return False


class Input:
    """The bytes of a file, decompressed, or of standard input; `origin` is its name for messages."""

    def __init__(self, origin: str, stream: BinaryIO, disk: BinaryIO | None = None) -> None:
        self.origin = origin
        self.stream = stream
        self.characters = self.lines_read = 0  # by `lines`
        self._disk = disk  # the file itself, whose position gives the progress even where `stream` decompresses it

    @property
    def share(self) -> float | None:
        """The share of the file that has been read, from 0 to 1; None where it is unknown."""
        if self._disk is None or not self._disk.seekable():
            return None
        return min(1.0, self._disk.tell() / max(1, os.fstat(self._disk.fileno()).st_size))

    @property
    def pauses(self) -> bool:
        """Whether every line that has arrived was read, and the next one is not there yet."""
        raw = getattr(self.stream, "raw", None)
        return isinstance(raw, Arriving) and self.lines_read >= raw.lines and raw.would_wait()

    def lines(self, decoding: Decoding, newline: str = "\n") -> Iterator[str | DataError]:
        r"""Yield lines with their ends; bytes that are not text are escaped, for `Decoding.checked` to find.

        With an empty `newline` a line also ends at a lone `\r`, as CSV allows. A line that is too long raises, or is
        yielded as its error if broken rows are skipped.
        """
        number = 1
        with reading(self.origin):
            text = self._text(decoding, newline)
            try:
                for number, line in enumerate(iter(partial(text.readline, LONGEST_LINE), ""), start=1):
                    self.characters += len(line)
                    self.lines_read += 1
                    if len(line) < LONGEST_LINE or line.endswith("\n"):
                        yield line
                        continue
                    too_long = DataError(f"{self.origin}:{number}: has over {LONGEST_LINE} characters; is it text?")
                    if decoding.on_error != "skip":
                        raise too_long
                    while len(line) == LONGEST_LINE and not line.endswith("\n"):
                        line = text.readline(LONGEST_LINE)
                    yield too_long
            except UnicodeError as error:  # errors of multi-byte encodings, which cannot be escaped
                reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
                problem = f"is not {decoding.encoding} ({reason})"
                raise DataError(f"{self.origin}:{number}: {problem}; name the file's encoding") from None
            finally:
                if not text.closed:
                    text.detach()  # or its end would close standard input

    def _text(self, decoding: Decoding, newline: str) -> io.TextIOWrapper:
        encoding = decoding.encoding
        if codecs.lookup(encoding).name == "utf-8":
            encoding = "utf-8-sig"  # a mark at the start is left out
            start = self.stream.peek(LONGEST_MAGIC) if hasattr(self.stream, "peek") else b""
            for magic, remedy in NOT_UTF8_TEXT.items():
                if start.startswith(magic):
                    raise DataError(f"{self.origin}:1: is {remedy}")
        return io.TextIOWrapper(self.stream, encoding, errors="surrogateescape", newline=newline)


@contextmanager
def open_input(path: Path | None) -> Iterator[Input]:
    """Open a file, decompressing it if its name ends in .gz; None is standard input."""
    if path is None:
        if sys.stdin is None:  # closed by the caller
            raise DataError("stdin: is closed; give a file")
        yield Input("stdin", io.BufferedReader(Arriving(sys.stdin.buffer)))
        return
    with reading(path):
        disk = path.open("rb")
    with disk:
        if path.suffix.lower() != ".gz":
            yield Input(str(path), disk, disk)
            return
        if not disk.peek(LONGEST_MAGIC).startswith(GZIP):
            raise DataError(f"{path}: is not gzip-compressed; remove .gz from its name")
        yield Input(str(path), gzip.GzipFile(fileobj=disk), disk)  # type: ignore[arg-type]


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn errors of opening, reading and decompressing `path` into `DataError`."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {files_in(Path(path).parent)}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a file; {files_in(Path(path))}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{path}: the compressed data is cut short or damaged; copy or compress it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None


def files_in(folder: Path) -> str:
    """List a folder for a message about a wrong path."""
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir())
    return f"the folder {folder} has {shown(names) or 'no file'}"

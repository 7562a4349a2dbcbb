"""Packed files on disk: `save` writes one whole or not at all, `load` reads one that is whole or says why it is not.

A file is a header (`header`) and a data section of the tensors that `schema` lists; docs/packed-format.md is the
specification. Everything is checked before memory of that size is taken, and the memory is private: a file that is
cut or replaced later does not change a model that is loaded. Running a model is not the business of this package.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bibert.errors import ModelFileError
from bibert.files import write_whole
from bibert.packed.bits import has_stray_bits
from bibert.packed.header import (
    ALIGNMENT,
    DAMAGED,
    LENGTH_BYTES,
    MOST_HEADER_BYTES,
    PACK_AGAIN,
    Decoded,
    Description,
    decode,
    encode,
)
from bibert.packed.schema import TOKENIZER, PackedConfig, TensorSpec, columns_of_bits, tensor_specs

MOST_FILE_BYTES = 10**9
DTYPES: Mapping[str, np.dtype[Any]] = {
    "U64": np.dtype("<u8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}
# What people give instead of a packed file, by its first bytes. As the length of a header each would be far too much.
_PICKLE = "a Python pickle, which could run any code; give a file made by bibert pack"
_FOREIGN: Mapping[bytes, str] = {
    b"PK\x03\x04": "a zip archive, perhaps a torch checkpoint (.bin, .pt); give a file made by bibert pack",
    **{bytes([0x80, protocol]): _PICKLE for protocol in range(2, 6)},
    b"version ": "a Git LFS pointer, not the file itself; fetch it with git lfs pull",
    b"GGUF": "a GGUF model; give a file made by bibert pack",
    b"<": "a web page or XML, not a model; check the address it was downloaded from",
    b"{": "plain JSON, perhaps a config.json; give a file made by bibert pack",
}
_LONGEST_MESSAGE = 600  # a hostile file must not choose how long its message is


@dataclass(frozen=True, eq=False)
class PackedModel(Description):
    """A whole packed model in memory; whatever exists has passed every check.

    Attributes:
        data: the data section: all weights in the order of the schema, then the tokenizer. Read-only.
    """

    data: NDArray[np.uint8]

    def __post_init__(self) -> None:
        super().__post_init__()
        frozen = self.data.view()
        frozen.flags.writeable = False
        object.__setattr__(self, "data", frozen)
        _check_contents(self)

    @cached_property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Every tensor, in the order of the file."""
        return tensor_specs(self.config, self.data.size - self.weights_bytes)

    @cached_property
    def weights_bytes(self) -> int:
        """Bytes of the data section in front of the tokenizer."""
        return tensor_specs(self.config, 0)[-1].offset

    @property
    def tokenizer(self) -> bytes:
        """The contents of tokenizer.json."""
        return self.data[self.weights_bytes :].tobytes()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file, in which the digits of the digest itself are zeros."""
        return _digest(self, self.data, self.specs[-1].nbytes)

    def tensor(self, name: str) -> NDArray[Any]:
        """A read-only view of a tensor; KeyError for a name that is not in `specs`."""
        return _view(self.data, self._by_name[name])

    @cached_property
    def _by_name(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in self.specs}

    @classmethod
    def from_tensors(
        cls,
        config: PackedConfig,
        labels: Sequence[str],
        max_length: int,
        tensors: Mapping[str, NDArray[Any]],
        tokenizer: bytes,
        about: Mapping[str, Any],
    ) -> "PackedModel":
        """Copy tensors, named as in the schema, into a model.

        Args:
            config: the shape of the model; it decides which tensors there must be.
            labels: the names of the outputs.
            max_length: tokens of the longest input.
            tensors: every tensor but the tokenizer, of exactly the type and shape of the schema.
            tokenizer: the contents of tokenizer.json.
            about: where the model comes from, as plain JSON values.

        Raises:
            ModelFileError: something is missing, unknown, of another type or shape, not finite or too large.
        """
        description = Description(config, tuple(labels), max_length, about)
        specs = tensor_specs(config, len(tokenizer))
        _require_file_size(len(encode(description, len(tokenizer))) + _end(specs))
        everything = {**tensors, TOKENIZER: np.frombuffer(tokenizer, dtype=DTYPES["U8"])}
        _check_tensors(everything, specs)
        data = np.empty(_end(specs), dtype=np.uint8)
        for spec in specs:
            _view(data, spec)[...] = everything[spec.name]
        return cls(config, description.labels, max_length, about, data)


def save(model: PackedModel, path: Path | str) -> None:
    """Write a model to `path`, which is afterwards the old file or the new one, whole, whatever happens.

    Raises:
        ModelFileError: the disk is full or refuses.
        BibertError: the folder does not exist, or `path` is there and is not a regular file.
    """
    front = encode(model, model.specs[-1].nbytes, model.digest)
    try:
        with write_whole(path, "wb") as file:
            _require_room(Path(path), len(front) + model.data.size)
            file.write(front)
            file.write(model.data.data)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be written: {error.strerror or error}; choose another place") from error


def load(path: Path | str) -> PackedModel:
    """Read a packed file.

    Raises:
        ModelFileError: there is no such file, or it is not a whole packed file that this version reads. The message
            is one line that starts with `path`.
    """
    try:
        with _open(Path(path)) as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {_shorten(str(error))}") from None
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be read: {error.strerror or error}; check the disk and the rights"
        ) from error


def _open(path: Path) -> BinaryIO:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ModelFileError("there is no such file; check the spelling") from None
    except ValueError as error:  # a NUL in the name
        raise ModelFileError(f"is not a name of a file: {error}") from None
    if stat.S_ISDIR(mode):
        raise ModelFileError("is a folder, a packed model is one file; bibert pack makes it from a model folder")
    if not stat.S_ISREG(mode):  # a pipe would block, a device has no size
        raise ModelFileError("is not a regular file; copy it to one first")
    return path.open("rb")


def _read(file: BinaryIO, size: int) -> PackedModel:
    """Read a model from the start of a file of `size` bytes; messages do not name the file yet."""
    description, specs, stated = _read_header(file, size)
    data = _read_data(file, _end(specs))
    found = _digest(description, data, specs[-1].nbytes)
    if found != stated:
        raise ModelFileError(f"the contents have SHA-256 {found}, the header says {stated}; {DAMAGED}")
    return PackedModel(description.config, description.labels, description.max_length, description.about, data)


def _read_header(file: BinaryIO, size: int) -> Decoded:
    if size == 0:
        raise ModelFileError("is empty, 0 bytes; copy it again")
    _require_file_size(size)
    first = file.read(LENGTH_BYTES)
    length = int.from_bytes(first, "little")
    if len(first) < LENGTH_BYTES:
        raise ModelFileError(f"has {len(first)} bytes, the length of its header alone takes {LENGTH_BYTES}; {DAMAGED}")
    if length > MOST_HEADER_BYTES:
        raise ModelFileError(_foreign(first, length))
    if length == 0 or length % ALIGNMENT:
        raise ModelFileError(f"its header has {length} bytes, must be a multiple of {ALIGNMENT} above 0; {DAMAGED}")
    if LENGTH_BYTES + length > size:
        raise ModelFileError(f"is cut in its header: {size} bytes of at least {LENGTH_BYTES + length}; {DAMAGED}")
    header = decode(file.read(length))
    expected = LENGTH_BYTES + length + _end(header.specs)
    if size < expected:
        raise ModelFileError(f"is cut: {size} bytes of {expected}, {expected - size} are missing; {DAMAGED}")
    if size > expected:
        raise ModelFileError(f"has {size - expected} bytes behind its end: {size} bytes of {expected}; {DAMAGED}")
    return header


def _foreign(first: bytes, length: int) -> str:
    for start, what in _FOREIGN.items():
        if first.startswith(start):
            return f"is {what}"
    return f"is not a file made by bibert pack: its header would have {length} bytes, at most {MOST_HEADER_BYTES} may"


def _read_data(file: BinaryIO, size: int) -> NDArray[np.uint8]:
    try:
        data = np.empty(size, dtype=np.uint8)
    except MemoryError:
        raise ModelFileError(
            f"needs {size} bytes of memory, more than this process can have; close something"
        ) from None
    count = file.readinto(data.data)  # type: ignore[attr-defined]  # typeshed's BinaryIO lacks it, every file has it
    if count < size:  # it was cut after its size was taken
        raise ModelFileError(f"ended after {count} of {size} bytes of data while it was read; load it again")
    return data


def _check_tensors(tensors: Mapping[str, NDArray[Any]], specs: tuple[TensorSpec, ...]) -> None:
    for name in sorted(tensors.keys() - {spec.name for spec in specs}):
        raise ModelFileError(f"tensor {name!r}: a model of this config has no such tensor")
    for spec in specs:
        if spec.name not in tensors:
            raise ModelFileError(f"tensor {spec.name!r} is missing")
        found = tensors[spec.name]
        if found.dtype != DTYPES[spec.dtype] or found.shape != spec.shape:
            raise ModelFileError(
                f"tensor {spec.name!r} is {found.dtype}{list(found.shape)}, "
                f"must be {DTYPES[spec.dtype]}{list(spec.shape)}"
            )


def _check_contents(model: PackedModel) -> None:
    """What neither the table of tensors nor the digest can tell: values that no model of ours has."""
    if model.data.dtype != np.uint8 or model.data.ndim != 1 or model.data.size <= model.weights_bytes:
        raise ModelFileError(
            f"data is {model.data.dtype}{list(model.data.shape)}, "
            f"must be more than {model.weights_bytes} bytes: the weights, then a tokenizer; {PACK_AGAIN}"
        )
    for spec in model.specs:
        if spec.dtype == "F32":
            _check_floats(spec.name, model.tensor(spec.name))
        if spec.dtype == "I32":
            _check_scores(spec.name, model.tensor(spec.name), model.config.head_size)
    for name, columns in columns_of_bits(model.config).items():
        if has_stray_bits(model.tensor(name), columns):
            raise ModelFileError(f"tensor {name!r}: a bit is set behind the {columns} of a row; {PACK_AGAIN}")


def _check_floats(name: str, values: NDArray[np.float32]) -> None:
    with np.errstate(invalid="ignore"):
        low, high = values.min(), values.max()  # both are NaN if any value is; needs no memory
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ModelFileError(f"tensor {name!r}: holds values from {low} to {high}, must be finite; {PACK_AGAIN}")
    if name.endswith(".scale") and np.signbit(values).any():  # -0.0 too: the engine looks at the sign bit
        found = values[np.signbit(values)][0]
        raise ModelFileError(f"tensor {name!r}: holds {found}, a scale has no minus sign; {PACK_AGAIN}")


def _check_scores(name: str, values: NDArray[np.int32], head_size: int) -> None:
    """A score is a sum of head_size terms of ±1, so a threshold beyond ±(head_size + 1) has no meaning of its own."""
    low, high, most = int(values.min()), int(values.max()), head_size + 1
    if low < -most or high > most:
        raise ModelFileError(f"tensor {name!r}: holds {low} to {high}, must be from {-most} to {most}; {PACK_AGAIN}")


def _digest(description: Description, data: NDArray[np.uint8], tokenizer_bytes: int) -> str:
    digest = hashlib.sha256(encode(description, tokenizer_bytes))
    digest.update(data.data)
    return digest.hexdigest()


def _view(data: NDArray[np.uint8], spec: TensorSpec) -> NDArray[Any]:
    return data[spec.offset : spec.offset + spec.nbytes].view(DTYPES[spec.dtype]).reshape(spec.shape)


def _end(specs: tuple[TensorSpec, ...]) -> int:
    return specs[-1].offset + specs[-1].nbytes


def _require_file_size(size: int) -> None:
    if size > MOST_FILE_BYTES:
        raise ModelFileError(f"has {size} bytes, a packed model has at most {MOST_FILE_BYTES}; give a smaller one")


def _require_room(path: Path, size: int) -> None:
    folder = path.resolve().parent
    free = shutil.disk_usage(folder).free
    if free < size:
        raise ModelFileError(f"{path}: needs {size} bytes, {folder} has {free} free; make room or choose another disk")


def _shorten(message: str) -> str:
    """Keep the start, which names the field, and the end, which has the remedy."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    half = _LONGEST_MESSAGE // 2
    return f"{message[:half]} ... {message[-half:]}"

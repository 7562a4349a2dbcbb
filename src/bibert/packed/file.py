"""Packed files on disk: `save` writes one completely or not at all, `load` reads one or explains why it cannot.

A file is a header (`header`) and a data section with the tensors that `schema` lists; docs/packed-format.md is the
specification. Sizes are checked before memory is allocated, and the memory is private: a file that is truncated or
replaced later does not change a loaded model.
"""

import hashlib
import io
import math
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

from bibert.errors import ModelFileError, one_line
from bibert.files import write_whole
from bibert.packed import bounds, schema
from bibert.packed.bits import has_stray_bits
from bibert.packed.header import DAMAGED, LENGTH_BYTES, MOST_HEADER_BYTES, PACK_AGAIN, Description, decode, encode

MOST_FILE_BYTES = 10**9
# Other files that people pass, by their first bytes. Read as the length of a header, each would be far too large.
_PICKLE = "a Python pickle, which could run any code; use a file made by bibert pack"
_FOREIGN: Mapping[bytes, str] = {
    b"PK\x03\x04": "a zip archive, perhaps a torch checkpoint (.bin, .pt); use a file made by bibert pack",
    **{bytes([0x80, protocol]): _PICKLE for protocol in range(2, 6)},
    b"version ": "a Git LFS pointer, not the file itself; fetch it with git lfs pull",
    b"GGUF": "a GGUF model; use a file made by bibert pack",
    b"<": "a web page or XML, not a model; check the address it was downloaded from",
    b"{": "plain JSON, perhaps a config.json; use a file made by bibert pack",
}
_LONGEST_MESSAGE = 600  # a hostile file must not choose the length of its message


@dataclass(frozen=True, eq=False)
class PackedModel(Description):
    """A complete packed model in memory; every instance has passed all checks."""

    data: NDArray[np.uint8]  # the data section: all weights in the order of the schema, then the tokenizer; read-only

    def __post_init__(self) -> None:
        super().__post_init__()
        frozen = self.data.view()
        frozen.flags.writeable = False
        object.__setattr__(self, "data", frozen)
        _check_contents(self)

    @cached_property
    def specs(self) -> tuple[schema.TensorSpec, ...]:
        """Every tensor, in the order of the file."""
        return schema.tensor_specs(self.config, self.data.size - self.weights_bytes)

    @cached_property
    def weights_bytes(self) -> int:
        """Bytes of the data section before the tokenizer."""
        return schema.tensor_specs(self.config, 0)[-1].offset

    @property
    def tokenizer(self) -> bytes:
        """The contents of tokenizer.json."""
        return self.data[self.weights_bytes :].tobytes()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file in which the digits of the digest itself are zeros."""
        return _digest(self, self.data, self.specs[-1].nbytes)

    @property
    def float32_bytes(self) -> int:
        """Bytes of the same model and tokenizer before binarization."""
        return sum(schema.float32_bytes(self.config, spec) for spec in self.specs)

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a read-only view of a tensor; KeyError for an unknown name."""
        return _view(self.data, self._by_name[name])

    @cached_property
    def _by_name(self) -> dict[str, schema.TensorSpec]:
        return {spec.name: spec for spec in self.specs}

    @classmethod
    def from_tensors(
        cls,
        config: schema.PackedConfig,
        labels: Sequence[str],
        max_length: int,
        tensors: Mapping[str, NDArray[Any]],
        tokenizer: bytes,
        about: Mapping[str, Any],
    ) -> "PackedModel":
        """Copy `tensors`, every tensor of the schema except the tokenizer, into a model."""
        description = Description(config, tuple(labels), max_length, about)
        specs = schema.tensor_specs(config, len(tokenizer))
        _require_file_size(len(encode(description, len(tokenizer))) + _end(specs))
        remaining = {**tensors, schema.TOKENIZER: np.frombuffer(tokenizer, dtype=schema.DTYPES["U8"])}
        data = np.empty(_end(specs), dtype=np.uint8)
        for spec in specs:
            tensor, target = remaining.pop(spec.name, None), _view(data, spec)
            if tensor is None or tensor.dtype != target.dtype or tensor.shape != target.shape:
                found = "missing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
                raise ModelFileError(f"tensor {spec.name!r} is {found}, must be {target.dtype}{list(target.shape)}")
            target[...] = tensor
        if remaining:
            raise ModelFileError(f"tensor {min(remaining)!r}: a model of this config has no such tensor")
        return cls(config, description.labels, max_length, about, data)


def save(model: PackedModel, path: Path | str) -> None:
    """Write a model to `path`; after a failure, `path` still holds the old file."""
    front = encode(model, model.specs[-1].nbytes, model.digest)
    try:
        with write_whole(path, "wb") as file:
            size, folder = len(front) + model.data.size, Path(path).resolve().parent
            if (free := shutil.disk_usage(folder).free) < size:
                raise ModelFileError(f"{path}: needs {size} bytes, {folder} has {free} free; free some space")
            file.write(front)
            file.write(model.data.data)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be written: {error.strerror or error}; choose another place") from error


def dump(model: PackedModel) -> bytes:
    """Return the bytes of the file of a model; `parse` reads them."""
    return encode(model, model.specs[-1].nbytes, model.digest) + model.data.tobytes()


def parse(contents: bytes) -> PackedModel:
    """Read a model from the bytes of its file, with the checks of `load`."""
    return _read(io.BytesIO(contents), len(contents))


def load(path: Path | str) -> PackedModel:
    """Read a packed file; if that fails, the message of the `ModelFileError` is one line that starts with `path`."""
    try:
        with _open(Path(path)) as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except ModelFileError as error:
        message, half = str(error), _LONGEST_MESSAGE // 2
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:half]} ... {message[-half:]}"
        raise ModelFileError(f"{path}: {message}") from None
    except MemoryError as error:
        raise ModelFileError(f"{path}: too little memory ({one_line(error)}); close other programs") from error
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(f"{path}: cannot be read: {reason}; check the disk and the permissions") from error


def _open(path: Path) -> BinaryIO:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, ValueError):  # ValueError: a NUL in the name
        raise ModelFileError("no such file; check the spelling") from None
    if not stat.S_ISREG(mode):  # a pipe would block, a device has no size
        kind = "folder" if stat.S_ISDIR(mode) else "pipe or a device"
        raise ModelFileError(f"is a {kind}, a packed model is a regular file; create one with bibert pack")
    return path.open("rb")


def _read(file: BinaryIO, size: int) -> PackedModel:
    """Read a model from a file of `size` bytes; `load` adds the name of the file to messages."""
    description, specs, stated = decode(_read_header(file, size))
    expected = file.tell() + _end(specs)
    if size != expected:
        what = f"{expected - size} are missing" if size < expected else f"{size - expected} too many"
        raise ModelFileError(f"has {size} bytes of {expected}, {what}; {DAMAGED}")
    schema.check_tokenizer_size(specs[-1].nbytes, description.config.vocabulary)
    data = _read_data(file, _end(specs))
    found = _digest(description, data, specs[-1].nbytes)
    if found != stated:
        raise ModelFileError(f"the contents have SHA-256 {found}, the header says {stated}; {DAMAGED}")
    try:
        return PackedModel(**vars(description), data=data)
    except ModelFileError as error:
        raise ModelFileError(f"{error}; {PACK_AGAIN}") from None


def _read_header(file: BinaryIO, size: int) -> bytes:
    _require_file_size(size)
    first = file.read(LENGTH_BYTES)
    if len(first) < LENGTH_BYTES:
        raise ModelFileError(f"has {size} bytes, the length of its header alone takes {LENGTH_BYTES}; {DAMAGED}")
    length = int.from_bytes(first, "little")
    if length > MOST_HEADER_BYTES:
        for start, what in _FOREIGN.items():
            if first.startswith(start):
                raise ModelFileError(f"is {what}")
        sizes = f"its header would have {length} bytes, at most {MOST_HEADER_BYTES} may"
        raise ModelFileError(f"is not a file made by bibert pack: {sizes}")
    if LENGTH_BYTES + length > size:
        raise ModelFileError(f"ends in its header: {size} bytes of at least {LENGTH_BYTES + length}; {DAMAGED}")
    return file.read(length)


def _read_data(file: BinaryIO, size: int) -> NDArray[np.uint8]:
    data = np.empty(size, dtype=np.uint8)
    count = file.readinto(data.data)  # type: ignore[attr-defined]  # typeshed's BinaryIO lacks it, every file has it
    if count < size:  # truncated after its size was read
        raise ModelFileError(f"ended after {count} of {size} bytes of data while it was read; load it again")
    return data


def _check_contents(model: PackedModel) -> None:
    """Check the values, which neither the table of tensors nor the digest can."""
    if model.data.dtype != np.uint8 or model.data.ndim != 1 or model.data.size <= model.weights_bytes:
        needed = f"more than {model.weights_bytes} bytes: the weights, then a tokenizer"
        raise ModelFileError(f"data is {model.data.dtype}{list(model.data.shape)}, must be {needed}")
    columns = schema.columns_of_bits(model.config)
    for spec in model.specs:
        tensor = model.tensor(spec.name)
        if spec.dtype == "U64" and has_stray_bits(tensor, columns[spec.name]):
            raise ModelFileError(f"tensor {spec.name!r}: a bit is set after channel {columns[spec.name]} of a row")
        if spec.dtype in ("F32", "I32"):
            _check_numbers(spec.name, tensor, model.config.head_size)
    bounds.check(model.config, model.tensor)


def _check_numbers(name: str, values: NDArray[Any], head_size: int) -> None:
    with np.errstate(invalid="ignore"):
        low, high = values.min().item(), values.max().item()  # both are NaN if any value is; needs no memory
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ModelFileError(f"tensor {name!r}: holds values from {low} to {high}, must be finite")
    if name.endswith(".scale") and np.signbit(values).any():  # -0.0 too: the engine looks at the sign bit
        found = values[np.signbit(values)][0]
        raise ModelFileError(f"tensor {name!r}: holds {found}, a scale must not have a minus sign")
    if name.endswith((".rate", ".step")) and not low > 0:
        raise ModelFileError(f"tensor {name!r}: holds {low}, must be above 0")
    if name.endswith(".attention_threshold") and (low < 0 or (np.diff(values) > 0).any()):
        raise ModelFileError(f"tensor {name!r}: holds values from {low} to {high}, must neither be negative nor rise")
    # A score is a sum of head_size terms of ±1, so thresholds beyond ±(head_size + 1) have no meaning of their own.
    most = head_size + 1
    if name.endswith(".score_threshold") and max(-low, high) > most:
        raise ModelFileError(f"tensor {name!r}: holds values from {low} to {high}, must be from {-most} to {most}")


def _digest(description: Description, data: NDArray[np.uint8], tokenizer_bytes: int) -> str:
    digest = hashlib.sha256(encode(description, tokenizer_bytes))
    digest.update(data.data)
    return digest.hexdigest()


def _view(data: NDArray[np.uint8], spec: schema.TensorSpec) -> NDArray[Any]:
    return data[spec.offset : spec.offset + spec.nbytes].view(schema.DTYPES[spec.dtype]).reshape(spec.shape)


def _end(specs: tuple[schema.TensorSpec, ...]) -> int:
    return specs[-1].offset + specs[-1].nbytes


def _require_file_size(size: int) -> None:
    if size > MOST_FILE_BYTES:
        raise ModelFileError(f"has {size} bytes, a packed model has at most {MOST_FILE_BYTES}; use a smaller model")

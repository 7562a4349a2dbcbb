"""The native library behind ctypes: finding it, its structs, and its status codes as errors.

Mirrors native/include/bibert.h and nothing else; `engine` prepares the arrays. ctypes releases the GIL during a call.
"""

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import bibert.runtime
from bibert.errors import EngineError, ModelFileError, NumericError, one_line
from bibert.packed.schema import FFN_LEVELS, SITES, PackedConfig

ABI_VERSION = 3
LIBRARY_VARIABLE = "BIBERT_LIBRARY"  # a path; takes precedence over the library of the package
FILE_NAME = {"darwin": "libbibert.dylib", "win32": "libbibert.dll"}.get(sys.platform, "libbibert.so")

# Errors by status, from 1: a bad argument, a bad model, a value out of range, no memory, no such ISA, anything else.
_ERRORS = dict(enumerate((EngineError, ModelFileError, NumericError, MemoryError, EngineError, EngineError), start=1))


class _Config(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("layers", "hidden", "heads", "head_size", "intermediate")),
        *((name, ctypes.c_uint32) for name in ("vocabulary", "positions", "token_types", "labels")),
        *((name, ctypes.c_uint32) for name in ("thresholds", "score_thresholds", "ffn_levels")),
        ("norm_eps", ctypes.c_double),
        *((name, ctypes.c_uint32) for name in ("activation_bits", "attention_bits")),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("sequences", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("lengths", "ids", "token_types", "positions")),
    )


# Name: result, arguments.
_FUNCTIONS: Mapping[str, tuple[type | None, tuple[type, ...]]] = {
    "bibert_last_error": (ctypes.c_char_p, ()),
    "bibert_available_isas": (ctypes.c_char_p, ()),
    "bibert_model_create": (
        ctypes.c_int,
        (ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
    ),
    "bibert_model_destroy": (None, (ctypes.c_void_p,)),
    "bibert_model_isa": (ctypes.c_char_p, (ctypes.c_void_p,)),
    "bibert_logits": (ctypes.c_int, (ctypes.c_void_p, ctypes.POINTER(_Batch), ctypes.c_uint32, ctypes.c_void_p)),
}


@dataclass(frozen=True)
class RaggedBatch:
    """Sequences of tokens, one after the other, without padding; every array is contiguous."""

    lengths: NDArray[np.uint32]  # tokens of each sequence
    ids: NDArray[np.int32]
    token_types: NDArray[np.int32]
    positions: NDArray[np.int32] | None = None  # None for 0, 1, 2, ... in each sequence


class NativeModel:
    """A model inside the library, freed when nothing refers to this object any more.

    The library copies `weights`, the data section of a packed file without the tokenizer, and checks them.
    """

    def __init__(self, config: PackedConfig, weights: NDArray[np.uint8], isa: str | None = None) -> None:
        if isa is not None and isa not in available_isas():
            raise EngineError(f"isa is {isa!r}, this CPU and this build have: {', '.join(available_isas())}")
        self._library = library()
        self._labels = config.labels
        self._pointer = ctypes.c_void_p()
        arguments = (weights.ctypes.data, weights.size, isa and isa.encode(), ctypes.byref(self._pointer))
        self._check(self._library.bibert_model_create(_as_struct(config), *arguments))
        finalizer = weakref.finalize(self, self._library.bibert_model_destroy, self._pointer)
        finalizer.atexit = False  # a thread may still be computing then, and the system frees the memory anyway
        self.isa: str = self._library.bibert_model_isa(self._pointer).decode()

    def logits(self, batch: RaggedBatch, threads: int) -> NDArray[np.float32]:
        """Return logits (sequences, labels); the library checks the range of everything in the batch."""
        answer = np.empty((len(batch.lengths), self._labels), dtype=np.float32)
        arrays = (batch.lengths, batch.ids, batch.token_types, batch.positions)
        struct = _Batch(len(answer), *(None if array is None else array.ctypes.data for array in arrays))
        self._check(self._library.bibert_logits(self._pointer, struct, threads, answer.ctypes.data))
        return answer

    def _check(self, status: int) -> None:
        if status != 0:
            message = self._library.bibert_last_error().decode("utf-8", "replace")
            raise _ERRORS.get(status, EngineError)(message)


def available_isas() -> tuple[str, ...]:
    """Return the instruction sets that this library has and this CPU supports, best first; the last is "reference"."""
    return tuple(library().bibert_available_isas().decode().split())


@functools.cache
def library() -> ctypes.CDLL:
    """Load the native library, once."""
    path = _find()
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.bibert_abi_version.restype = ctypes.c_uint32
        version = loaded.bibert_abi_version()
    except (OSError, AttributeError) as error:
        raise EngineError(f"{path}: is no library that runs here ({one_line(error)}); install bibert again") from error
    if version not in (ABI_VERSION - 1, ABI_VERSION):  # the older one runs 1-bit models
        raise EngineError(f"{path}: has version {version} of the C API, not {ABI_VERSION}; install bibert again")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _find() -> Path:
    if named := os.environ.get(LIBRARY_VARIABLE):
        return Path(named)
    # An editable install has two places: the sources, and the folder of the built library.
    places = [Path(place) / "_native" / FILE_NAME for place in bibert.runtime.__path__]
    for place in places:
        if place.is_file():
            return place
    remedy = f"install bibert with pip, which builds it, or set {LIBRARY_VARIABLE} to its path"
    raise EngineError(f"the native library is not at {' or '.join(map(str, places))}; {remedy}")


def _as_struct(config: PackedConfig) -> _Config:
    special = {
        "thresholds": sum(1 << SITES.index(site) for site in config.thresholds),
        "score_thresholds": int(config.score_thresholds),
        "ffn_levels": FFN_LEVELS.index(config.ffn_levels),
    }
    return _Config(*(special[name] if name in special else getattr(config, name) for name, *_ in _Config._fields_))

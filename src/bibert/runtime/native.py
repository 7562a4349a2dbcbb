"""The native library behind ctypes: finding it, its structs, and its status codes as errors.

Mirrors native/include/bibert.h and nothing else; arrays are made and checked in `engine`. ctypes gives up the
GIL during a call, so other Python threads go on.
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
from bibert.errors import BibertError, EngineError, ModelFileError, NumericError, one_line
from bibert.packed.schema import FFN_LEVELS, SITES, PackedConfig

ABI_VERSION = 2
LIBRARY_VARIABLE = "BIBERT_LIBRARY"  # a path; wins over the library of the package
FILE_NAME = "libbibert.dylib" if sys.platform == "darwin" else "libbibert.so"

_NO_MEMORY = 4
_ERRORS: Mapping[int, type[BibertError]] = {
    1: EngineError,  # bad argument
    2: ModelFileError,  # bad model
    3: NumericError,  # out of range
    5: EngineError,  # no such ISA
    6: EngineError,  # anything else
}


class _Config(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("layers", "hidden", "heads", "head_size", "intermediate")),
        *((name, ctypes.c_uint32) for name in ("vocabulary", "positions", "token_types", "labels")),
        *((name, ctypes.c_uint32) for name in ("thresholds", "score_thresholds", "ffn_levels")),
        ("norm_eps", ctypes.c_double),
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
class Batch:
    """Sequences of tokens, one after the other, without padding; every array is contiguous.

    Attributes:
        lengths: uint32, tokens of each sequence.
        ids: int32, of all tokens.
        token_types: int32, of all tokens; None for all 0.
        positions: int32, of all tokens; None for 0, 1, 2, ... in each sequence.
    """

    lengths: NDArray[np.uint32]
    ids: NDArray[np.int32]
    token_types: NDArray[np.int32] | None = None
    positions: NDArray[np.int32] | None = None


class NativeModel:
    """A model inside of the library; it is freed when nothing refers to this object any more.

    Args:
        config: the shape of the model.
        weights: the data section of a packed file without the tokenizer. The library keeps a copy of its own.
        isa: which instructions to use; None takes what the variable BIBERT_ISA says, else the best.

    Raises:
        ModelFileError: the weights do not fit the config, or hold what no model of ours has.
        EngineError: the library is missing, or this CPU does not have `isa`.
    """

    def __init__(self, config: PackedConfig, weights: NDArray[np.uint8], isa: str | None = None) -> None:
        self._library = library()
        self._labels = config.labels
        self._pointer = ctypes.c_void_p()
        status = self._library.bibert_model_create(
            _as_struct(config), _address(weights), weights.size, _isa_name(isa), ctypes.byref(self._pointer)
        )
        _check(self._library, status)
        finalizer = weakref.finalize(self, self._library.bibert_model_destroy, self._pointer)
        finalizer.atexit = False  # a thread may still be computing then, and the system takes the memory back anyway
        self.isa: str = self._library.bibert_model_isa(self._pointer).decode()

    def logits(self, batch: Batch, threads: int) -> NDArray[np.float32]:
        """Logits (sequences, labels).

        Raises:
            EngineError: a length, an id, a token type or a position is out of range.
            NumericError: a value has left the range of the numeric contract.
            MemoryError: there is not enough memory for a batch of this size.
        """
        answer = np.empty((len(batch.lengths), self._labels), dtype=np.float32)
        struct = _Batch(
            len(batch.lengths),
            *(_address(array) for array in (batch.lengths, batch.ids, batch.token_types, batch.positions)),
        )
        _check(self._library, self._library.bibert_logits(self._pointer, struct, threads, _address(answer)))
        return answer


def available_isas() -> tuple[str, ...]:
    """The instruction sets that this library has and this CPU can run, best first; "reference" is always one.

    Raises:
        EngineError: the library is missing.
    """
    return tuple(library().bibert_available_isas().decode().split())


@functools.cache
def library() -> ctypes.CDLL:
    """The native library, loaded once.

    Raises:
        EngineError: it is missing, cannot be loaded or is of another version.
    """
    path = _find()
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.bibert_abi_version.restype = ctypes.c_uint32
        version = loaded.bibert_abi_version()
    except (OSError, AttributeError) as error:
        raise EngineError(
            f"{path}: is not a library that runs here ({one_line(error)}); install bibert again"
        ) from error
    if version != ABI_VERSION:
        raise EngineError(
            f"{path}: has version {version} of the C API, this bibert needs {ABI_VERSION}; install bibert again"
        )
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _find() -> Path:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return Path(named)
    # An editable install has two places: the sources, and where the library was built to.
    places = [Path(place) / "_native" / FILE_NAME for place in bibert.runtime.__path__]
    for place in places:
        if place.is_file():
            return place
    raise EngineError(
        f"the native library is not at {' or '.join(map(str, places))}; "
        f"install bibert with pip, which builds it, or set {LIBRARY_VARIABLE} to its path"
    )


def _isa_name(isa: str | None) -> bytes | None:
    if isa is None:
        return None
    if not isinstance(isa, str) or not isa.isascii() or "\0" in isa:
        raise EngineError(f"isa is {isa!r}, must be one of {', '.join(available_isas())}")
    return isa.encode("ascii")


def _as_struct(config: PackedConfig) -> _Config:
    special = {
        "thresholds": sum(1 << SITES.index(site) for site in config.thresholds),
        "score_thresholds": int(config.score_thresholds),
        "ffn_levels": FFN_LEVELS.index(config.ffn_levels),
    }
    return _Config(*(special.get(name, getattr(config, name)) for name, *_ in _Config._fields_))


def _address(array: NDArray[np.generic] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _check(loaded: ctypes.CDLL, status: int) -> None:
    if status == 0:
        return
    message = loaded.bibert_last_error().decode("utf-8", "replace")
    if status == _NO_MEMORY:
        raise MemoryError(message)
    raise _ERRORS.get(status, EngineError)(message)

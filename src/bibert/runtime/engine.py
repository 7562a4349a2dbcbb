"""Token ids to logits with the native library: one call for a batch, no padding computed, the same bits in any batch.

Texts become ids in `text`; labels and scores are the business of `classifier`; `native` binds the library.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bibert.errors import EngineError, ModelFileError
from bibert.packed import file
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig
from bibert.runtime.native import Batch, NativeModel, available_isas

__all__ = ["Encoded", "Engine", "available_isas"]

MOST_THREADS = 256  # as in the library
_INT32 = np.iinfo(np.int32)


class Encoded(NamedTuple):
    """One input of a model.

    Attributes:
        ids: token ids.
        token_types: 0 for the first text, 1 for the second; None for all 0.
        truncated: whether something of the text was left out.
    """

    ids: NDArray[np.int32]
    token_types: NDArray[np.int32] | None = None
    truncated: bool = False


class Engine:
    """Runs one packed model. Any number of threads may use it at once.

    Example:
        with Engine.load("model.bibert") as engine:
            logits = engine.logits([[101, 2307, 102]])

    Attributes:
        config: the shape of the model.
        isa: the instructions it runs on.
        threads: how many threads share a call; 0 is one for each CPU that the calling thread may use.
    """

    def __init__(self, config: PackedConfig, model: NativeModel, threads: int = 0) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= MOST_THREADS:
            raise EngineError(
                f"threads is {threads!r}, must be a whole number from 0 (one for each CPU) to {MOST_THREADS}"
            )
        self.config = config
        self.isa = model.isa
        self.threads = threads
        self._model: NativeModel | None = model

    @classmethod
    def load(cls, path: Path | str, threads: int = 0, isa: str | None = None) -> Self:
        """Read a packed file and make an engine of it.

        Raises:
            ModelFileError: the file is not a whole packed model.
            EngineError: the native library is missing, or this CPU does not have `isa`.
        """
        packed = file.load(path)
        try:
            return cls.from_packed(packed, threads, isa)
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from error

    @classmethod
    def from_packed(cls, packed: PackedModel, threads: int = 0, isa: str | None = None) -> Self:
        """Make an engine of a model in memory, which may be dropped afterwards.

        Args:
            packed: the model.
            threads: how many threads share a call; 0 is one for each CPU that the calling thread may use.
            isa: one of `available_isas()`; None takes what the variable BIBERT_ISA says, else the best.
        """
        weights = np.ascontiguousarray(packed.data[: packed.weights_bytes])
        return cls(packed.config, NativeModel(packed.config, weights, isa), threads)

    def logits(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, token_type_ids: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Logits (batch, labels) of padded rows, as a tokenizer or a data loader gives them.

        Args:
            input_ids: whole numbers (batch, tokens).
            attention_mask: 0 where a token is to be ignored, else 1; None ignores nothing. The first token counts.
            token_type_ids: 0 for the first text, 1 for the second; None for all 0.

        Raises:
            EngineError: the arrays do not fit each other or the model.
            NumericError: a value has left the range of the numeric contract.
        """
        ids = _matrix("input_ids", input_ids)
        if ids.shape[0] == 0:
            return np.empty((0, self.config.labels), dtype=np.float32)
        if ids.shape[1] > self.config.positions:
            raise EngineError(
                f"input_ids: rows of {ids.shape[1]} tokens, the model has {self.config.positions} positions; cut them"
            )
        keep = _kept(ids, attention_mask)
        types = None if token_type_ids is None else _like(ids, "token_type_ids", token_type_ids)
        places = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
        batch = Batch(
            lengths=keep.sum(axis=1, dtype=np.uint32),
            ids=_int32("input_ids", ids[keep]),
            token_types=None if types is None else _int32("token_type_ids", types[keep]),
            positions=places[keep],
        )
        return self._open_model().logits(batch, self.threads)

    def logits_of(self, sequences: Sequence[Encoded]) -> NDArray[np.float32]:
        """Logits (sequences, labels) of inputs of any lengths.

        Raises:
            EngineError: a sequence is empty or too long, or an id is outside of the vocabulary.
            NumericError: a value has left the range of the numeric contract.
        """
        if not sequences:
            return np.empty((0, self.config.labels), dtype=np.float32)
        lengths = [_length(number, "ids", sequence.ids) for number, sequence in enumerate(sequences)]
        batch = Batch(
            lengths=np.array(lengths, dtype=np.uint32),
            ids=_int32("ids", np.concatenate([sequence.ids for sequence in sequences])),
            token_types=_joined_types(sequences, lengths),
        )
        return self._open_model().logits(batch, self.threads)

    def close(self) -> None:
        """Free the memory of the model as soon as no call is running; further calls are refused."""
        self._model = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise EngineError("an engine cannot be pickled; send the path of its file, and load it in the other process")

    def _open_model(self) -> NativeModel:
        """The model; who holds it keeps it alive, even if another thread closes the engine meanwhile."""
        model = self._model
        if model is None:
            raise EngineError("the engine is closed; load it again")
        return model


def _matrix(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise EngineError(f"{name}: rows differ in length; pad them and give attention_mask") from error
    if array.shape[:1] == (0,):
        return array.reshape(0, 0)
    if array.ndim != 2:
        raise EngineError(f"{name}: has {array.ndim} dimensions, must have 2 (batch, tokens)")
    if array.dtype.kind not in "iub" and array.size:
        raise EngineError(f"{name}: holds {array.dtype}, must hold whole numbers")
    return array if array.size else array.astype(np.int32)


def _like(ids: NDArray[Any], name: str, values: ArrayLike) -> NDArray[Any]:
    array = _matrix(name, values)
    if array.shape != ids.shape:
        raise EngineError(f"{name}: has shape {array.shape}, input_ids has {ids.shape}; they must be equal")
    return array


def _kept(ids: NDArray[Any], attention_mask: ArrayLike | None) -> NDArray[np.bool_]:
    """Which tokens are computed; each row must have its first, from which the answer is read."""
    if attention_mask is None:
        return np.ones(ids.shape, dtype=bool)
    mask = _like(ids, "attention_mask", attention_mask)
    if mask.size and (mask.min() < 0 or mask.max() > 1):
        raise EngineError(f"attention_mask: holds {mask.min()} to {mask.max()}, must hold 0 and 1")
    keep = mask.astype(bool)
    first_masked = np.flatnonzero(~keep[:, :1])
    if first_masked.size:
        raise EngineError(
            f"attention_mask: row {first_masked[0]} masks its first token, which gives the answer; pad at the end"
        )
    return keep


def _int32(name: str, values: NDArray[Any]) -> NDArray[np.int32]:
    """The values as the library takes them, which checks their range; here they only must not wrap around."""
    if values.dtype == np.int32:
        return np.ascontiguousarray(values)
    if values.dtype.kind not in "iub":
        raise EngineError(f"{name}: holds {values.dtype}, must hold whole numbers")
    if values.size and (values.min() < _INT32.min or values.max() > _INT32.max):
        raise EngineError(f"{name}: holds {values.min()} to {values.max()}, must fit in 32 bits")
    return values.astype(np.int32)


def _length(number: int, name: str, values: NDArray[Any]) -> int:
    if np.ndim(values) != 1:
        raise EngineError(f"sequence {number}: {name} have {np.ndim(values)} dimensions, must have 1")
    return len(values)


def _joined_types(sequences: Sequence[Encoded], lengths: Sequence[int]) -> NDArray[np.int32] | None:
    if all(sequence.token_types is None for sequence in sequences):
        return None
    types = [
        np.zeros(length, dtype=np.int32) if sequence.token_types is None else sequence.token_types
        for sequence, length in zip(sequences, lengths, strict=True)
    ]
    for number, (found, length) in enumerate(zip(types, lengths, strict=True)):
        if (count := _length(number, "token types", found)) != length:
            raise EngineError(f"sequence {number}: has {length} ids and {count} token types; they must be equal")
    return _int32("token_types", np.concatenate(types))

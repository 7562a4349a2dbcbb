"""Token ids to logits with the native library: one call per batch, no work on padding, the same bits in any batch.

`text` turns texts into ids, `classifier` turns logits into labels. Here arrays only get the type and the shape that
the library takes; the library checks the values.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bibert.errors import EngineError
from bibert.packed import file
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig
from bibert.runtime.native import NativeModel, RaggedBatch, available_isas

__all__ = ["Encoded", "Engine", "available_isas"]

MOST_THREADS = 256  # as in the library
_INT32 = np.iinfo(np.int32)


class Encoded(NamedTuple):
    """One input of a model: token ids, token types (None for all 0), and whether the text was truncated."""

    ids: NDArray[np.int32]
    token_types: NDArray[np.int32] | None = None
    truncated: bool = False


class PaddedBatch(NamedTuple):
    """Rows of equal length, (batch, tokens) each; ids and token types are 0 where a token is not real."""

    ids: NDArray[np.int32]
    token_types: NDArray[np.int32]
    real: NDArray[np.bool_]

    @classmethod
    def of(cls, config: PackedConfig, ids: ArrayLike, mask: ArrayLike | None, token_types: ArrayLike | None) -> Self:
        """Check shapes, types and the mask, but not the range of ids and token types."""
        ids = _whole_numbers("input_ids", ids)
        if ids.shape[:1] == (0,):
            ids = ids.reshape(0, 1)
        if ids.ndim != 2 or not 1 <= ids.shape[1] <= config.positions:
            raise EngineError(f"input_ids: has shape {ids.shape}, must be (batch, 1 to {config.positions} tokens)")
        mask = np.ones(ids.shape, np.int8) if mask is None else _whole_numbers("attention_mask", mask)
        zeros = np.zeros(ids.shape, np.int32)
        token_types = zeros if token_types is None else _whole_numbers("token_type_ids", token_types)
        for name, array in (("attention_mask", mask), ("token_type_ids", token_types)):
            if array.shape != ids.shape:
                raise EngineError(f"{name}: has shape {array.shape}, input_ids has {ids.shape}; make them equal")
        if mask.size and (mask.min() < 0 or mask.max() > 1):
            raise EngineError(f"attention_mask: holds {mask.min()} to {mask.max()}, must hold 0 and 1")
        real = mask.astype(bool)
        if not real[:, 0].all():  # the logits are read from the first token
            raise EngineError(f"attention_mask: row {real[:, 0].argmin()} masks its first token; pad at the end")
        return cls(_int32("input_ids", ids * real), _int32("token_type_ids", token_types * real), real)


class Engine:
    """Runs one packed model. Threads may share it.

    Examples:
        with Engine.load("model.bibert") as engine:
            logits = engine.logits([[101, 2307, 102]])
    """

    def __init__(self, config: PackedConfig, model: NativeModel, threads: int = 0) -> None:
        if type(threads) is not int or not 0 <= threads <= MOST_THREADS:
            raise EngineError(f"threads is {threads!r}, must be a whole number from 0 (one per CPU) to {MOST_THREADS}")
        self.config = config
        self.isa = model.isa
        self.threads = threads
        self._model: NativeModel | None = model

    @classmethod
    def load(cls, path: Path | str, threads: int = 0, isa: str | None = None) -> Self:
        """Read a packed file and create an engine; see `from_packed`."""
        return cls.from_packed(file.load(path), threads, isa)

    @classmethod
    def from_packed(cls, packed: PackedModel, threads: int = 0, isa: str | None = None) -> Self:
        """Create an engine from a model in memory, which may be freed afterwards.

        `threads` share a call; 0 means one per CPU that the calling thread may use. `isa` is one of
        `available_isas()`; None uses the variable BIBERT_ISA, else the best one.
        """
        weights = np.ascontiguousarray(packed.data[: packed.weights_bytes])
        return cls(packed.config, NativeModel(packed.config, weights, isa), threads)

    def logits(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, token_type_ids: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return logits (batch, labels) of padded rows (batch, tokens), as tokenizers and data loaders produce them.

        The mask is 1 for real tokens, 0 for padding, None for no padding; the first token must be real. Raises
        `EngineError` if the arrays do not fit, `NumericError` if a value leaves the range of the numeric contract.
        """
        ids, token_types, real = PaddedBatch.of(self.config, input_ids, attention_mask, token_type_ids)
        if real.all():  # nothing to remove; for one short text, removing takes 3 % of the time
            lengths = np.full(len(ids), ids.shape[1], dtype=np.uint32)
            return self._run(RaggedBatch(lengths, ids.ravel(), token_types.ravel()))
        positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
        return self._run(RaggedBatch(real.sum(axis=1, dtype=np.uint32), ids[real], token_types[real], positions[real]))

    def logits_of(self, sequences: Sequence[Encoded]) -> NDArray[np.float32]:
        """Return logits (sequences, labels) of inputs of any lengths; errors as for `logits`."""
        ids = [_whole_numbers("ids", sequence.ids) for sequence in sequences]
        token_types = [
            np.zeros_like(row) if sequence.token_types is None else _whole_numbers("token types", sequence.token_types)
            for row, sequence in zip(ids, sequences, strict=True)
        ]
        for number, (row, types_of_row) in enumerate(zip(ids, token_types, strict=True)):
            if row.ndim != 1 or types_of_row.shape != row.shape:
                shapes = f"ids have shape {row.shape}, token types {types_of_row.shape}"
                raise EngineError(f"sequence {number}: {shapes}; both must be (tokens,)")
        nothing = np.empty(0, dtype=np.int32)
        lengths = np.array([len(row) for row in ids], dtype=np.uint32)
        all_ids, all_types = np.concatenate([nothing, *ids]), np.concatenate([nothing, *token_types])
        return self._run(RaggedBatch(lengths, _int32("ids", all_ids), _int32("token types", all_types)))

    def close(self) -> None:
        """Free the memory of the model once no call is running; later calls fail."""
        self._model = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise EngineError("an engine cannot be pickled; send the path of its file and load it in the other process")

    def _run(self, batch: RaggedBatch) -> NDArray[np.float32]:
        model = self._model  # this reference keeps it alive if another thread closes the engine meanwhile
        if model is None:
            raise EngineError("the engine is closed; load it again")
        if not len(batch.lengths):
            return np.empty((0, self.config.labels), dtype=np.float32)
        return model.logits(batch, self.threads)


def _whole_numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise EngineError(f"{name}: rows differ in length; pad them and pass attention_mask") from error
    if not array.size:
        return array.astype(np.int32)
    if array.dtype.kind not in "iub":
        raise EngineError(f"{name}: holds {array.dtype}, must hold whole numbers")
    return array


def _int32(name: str, values: NDArray[Any]) -> NDArray[np.int32]:
    """Convert to the type of the library without wrapping around."""
    if values.dtype == np.int32:
        return np.ascontiguousarray(values)
    if values.size and (values.min() < _INT32.min or values.max() > _INT32.max):
        raise EngineError(f"{name}: holds {values.min()} to {values.max()}, must fit in 32 bits")
    return np.ascontiguousarray(values, dtype=np.int32)

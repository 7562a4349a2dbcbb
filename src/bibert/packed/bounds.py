"""How large the inputs of the LayerNorms of a packed model can be, for any text: a model that fits answers every text.

The bound of a channel follows from the tensors alone: a linear layer adds at most scale · (greatest dot) + |bias| to a
residual that is the output of a LayerNorm, which is at most gain · |weight| + |bias|. docs/numeric-contract.md (rule 7)
derives the gain. `check` is part of making a `PackedModel`, so packing and loading refuse the same models.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bibert.errors import ModelFileError
from bibert.packed.schema import GRID, LAYER_NORM_LIMIT, PackedConfig

ROUNDING = 1 + 2.0**-20  # more than a few float32 roundings of terms without cancellation can add
CANCELLATION = 2.0**-50  # of the square of the mean: what the variance of a row can lose to float64 rounding
BLOCK = 64  # rows of a table that are copied at a time: float64 takes twice the memory of the file
_LARGEST = float(np.finfo(np.float32).max)

Tensor = Callable[[str], NDArray[Any]]  # a tensor by its name
Bounds = NDArray[np.float64]  # one magnitude per channel


class NormBound(NamedTuple):
    """A LayerNorm of a model, and the greatest magnitude that each channel of its input can have."""

    name: str
    channels: Bounds

    @property
    def length(self) -> float:
        """No input row is longer than this; the squares of a row of this length must fit in 64 bits."""
        return float(np.linalg.norm(self.channels))


def check(config: PackedConfig, tensor: Tensor) -> None:
    """Raise `ModelFileError` unless every LayerNorm and every logit stays in range for every text."""
    for norm in norm_bounds(config, tensor):
        if not norm.length < LAYER_NORM_LIMIT:  # NaN too
            limits = f"a row of its input can have the length {norm.length:.6g}, must stay below {LAYER_NORM_LIMIT:g}"
            raise ModelFileError(f"{norm.name!r}: {limits}; train with a lower learning rate or more weight decay")
    weight, bias = tensor("classifier.weight"), _size(tensor("classifier.bias"))
    blocks = (slice(first, first + BLOCK) for first in range(0, len(bias), BLOCK))
    # A pooled channel is a tanh.
    largest = max(float((_size(weight[rows]).sum(axis=1) + bias[rows]).max()) for rows in blocks) * ROUNDING
    if not largest < _LARGEST:
        raise ModelFileError(f"'classifier': a logit can reach {largest:.6g}, must stay below {_LARGEST:.6g}")


def norm_bounds(config: PackedConfig, tensor: Tensor) -> Iterator[NormBound]:
    """The bounds of every LayerNorm, in the order of the forward pass."""
    types, positions = (_largest(tensor(f"embeddings.{name}")) for name in ("token_type", "position"))
    words = float(tensor("embeddings.word.scale").max())
    norm = NormBound("embeddings.norm", (words + (types + positions)) * ROUNDING)
    yield norm
    top = 2**config.activation_bits - 1
    for layer in range(config.layers):
        at = f"layers.{layer}"
        yield (norm := _after(config, tensor, norm, f"{at}.attention", np.float64(top * config.inner)))
        most = np.float64(top * config.intermediate)
        if config.ffn_levels == "bool":  # levels from 0 up reach their greatest sum where the weights have one sign
            ones = np.bitwise_count(tensor(f"{at}.output.bits")).sum(axis=1, dtype=np.int64)
            most = top * np.maximum(ones, config.intermediate - ones).astype(np.float64)
        yield (norm := _after(config, tensor, norm, f"{at}.output", most))


def _after(config: PackedConfig, tensor: Tensor, before: NormBound, part: str, most: Bounds | np.float64) -> NormBound:
    """The LayerNorm of a linear layer with dots up to `most` plus its residual, the output of `before`."""
    linear = f"{part}_output" if part.endswith("attention") else part
    added = _size(tensor(f"{linear}.scale")) * most + _size(tensor(f"{linear}.bias"))
    gain = _gain(config, before.channels)
    residual = _size(tensor(f"{before.name}.weight")) * gain + _size(tensor(f"{before.name}.bias"))
    return NormBound(f"{part}_norm", (added + residual) * ROUNDING)


def _gain(config: PackedConfig, channels: Bounds) -> float:
    """The greatest magnitude of a normalized value, before weight and bias.

    It is √(C - 1), unless epsilon is so small that the rounding of the variance and of the grid counts. The variance
    is that small only in a row whose values are all about equal, so none is larger than the least bound.
    """
    lost = CANCELLATION * float(channels.min()) ** 2
    deviation = math.sqrt(config.norm_eps)
    return math.sqrt((config.hidden - 1) * max(1.0, lost / config.norm_eps)) + 0.5 / GRID / deviation


def _largest(table: NDArray[Any]) -> Bounds:
    """The greatest magnitude of each column, without a copy of the table."""
    return np.maximum(_size(table.max(axis=0)), _size(table.min(axis=0)))


def _size(values: NDArray[Any]) -> Bounds:
    return np.abs(values.astype(np.float64))

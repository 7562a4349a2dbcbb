"""The forward pass on packed bits in plain numpy: slow, and the specification of the native engine.

Every step follows docs/numeric-contract.md: first an integer from xor and popcount, then the scale and the bias, each
rounded once to float32. Padding is allowed: masked keys are ANDed away, so it never changes a result.

Shapes: B batch, T tokens, C channels, H heads, D head size, W words of a row. Bits are booleans; levels of 2 and 4 bits
are integers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bibert.errors import EngineError
from bibert.packed.bits import Words, pack_rows, unpack_rows
from bibert.packed.file import PackedModel
from bibert.packed.schema import GRID, PackedConfig
from bibert.runtime.engine import PaddedBatch

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
Levels = NDArray[Any]  # bits or integers


@dataclass(frozen=True)
class LayerBits:
    """The bits or levels and the output of one block, (B, T, channels) each; meaningless at masked tokens."""

    query: Levels  # all heads side by side, as in key, value and context
    key: Levels
    value: Levels
    attention: Levels  # (B, H, T, T): the weight of each key for each query of a head
    context: Levels
    ffn_hidden: Levels  # the input of the second FFN layer
    hidden: Floats


@dataclass(frozen=True)
class ForwardPass:
    """Every intermediate result: embedding (B, T, C), blocks, the pooled first token (B, C), logits (B, labels)."""

    embedding: Floats
    layers: tuple[LayerBits, ...]
    pooled: Floats
    logits: Floats


def logits(
    packed: PackedModel,
    input_ids: ArrayLike,
    attention_mask: ArrayLike | None = None,
    token_type_ids: ArrayLike | None = None,
) -> Floats:
    """Return logits (B, labels) of token ids (B, T); arguments and errors are those of `Engine.logits`."""
    return trace(packed, input_ids, attention_mask, token_type_ids).logits


@np.errstate(over="ignore")  # in front of a sign or a level, where infinities are compared as in the engine
def trace(
    packed: PackedModel,
    input_ids: ArrayLike,
    attention_mask: ArrayLike | None = None,
    token_type_ids: ArrayLike | None = None,
) -> ForwardPass:
    """Like `logits`, with every intermediate result, for comparisons layer by layer."""
    batch = PaddedBatch.of(packed.config, input_ids, attention_mask, token_type_ids)
    _check_range("input_ids", batch.ids, packed.config.vocabulary)
    _check_range("token_type_ids", batch.token_types, packed.config.token_types)
    hidden = embedding = _embed(packed, batch)
    layers: list[LayerBits] = []
    for index in range(packed.config.layers):
        layers.append(_block(packed, f"layers.{index}", hidden, batch.real))
        hidden = layers[-1].hidden
    pooled = _pool(packed, hidden[:, 0])
    return ForwardPass(embedding, tuple(layers), pooled, _classify(packed, pooled))


def _check_range(name: str, values: Integers, end: int) -> None:
    wrong = np.argwhere((values < 0) | (values >= end))
    if len(wrong):
        row, column = (int(number) for number in wrong[0])
        raise EngineError(f"{name}: row {row}, token {column} is {values[row, column]}, must be from 0 to {end - 1}")


def _embed(packed: PackedModel, batch: PaddedBatch) -> Floats:
    """Word + token type + position, summed in this order, and LayerNorm."""
    ones = unpack_rows(packed.tensor("embeddings.word.bits")[batch.ids], packed.config.hidden)
    scale = packed.tensor("embeddings.word.scale")[batch.ids][..., None]
    rows = np.where(ones, scale, -scale) + packed.tensor("embeddings.token_type")[batch.token_types]
    rows = rows + packed.tensor("embeddings.position")[: batch.ids.shape[1]]
    return _layer_norm(packed, "embeddings.norm", rows)


def _block(packed: PackedModel, at: str, hidden: Floats, real: Flags) -> LayerBits:
    entering = _read(packed, f"{at}.attention_input", hidden)
    sites = (f"{at}.query", f"{at}.key", f"{at}.value")
    query, key, value = (_read(packed, site, _linear(packed, site, entering)) for site in sites)
    attend = _level_attention if packed.config.has_levels else _bi_attention
    attention, sums = attend(packed, at, (query, key, value), real)
    context = _read(packed, f"{at}.context", sums)
    mha = _linear(packed, f"{at}.attention_output", context)
    attended = _layer_norm(packed, f"{at}.attention_norm", mha + hidden)
    wide = _linear(packed, f"{at}.intermediate", _read(packed, f"{at}.ffn_input", attended))
    ffn_hidden = _read(packed, f"{at}.ffn_hidden", wide)
    narrow = _linear(packed, f"{at}.output", ffn_hidden, packed.config.ffn_levels)
    leaving = _layer_norm(packed, f"{at}.output_norm", narrow + attended)
    return LayerBits(query, key, value, attention, context, ffn_hidden, leaving)


def _read(packed: PackedModel, site: str, values: Floats | Integers) -> Levels:
    """The bits or levels of values at a site.

    One bit is sign or bool (rule 1): value ≥ 0, or ≥ the threshold of its channel where the model has one. Levels have
    the index floor((value - edge) · rate), from 0 to top (rule 9); signed sites mean 2 · index - top.
    """
    name = site.rpartition(".")[-1]
    if packed.config.has_levels:
        bits = packed.config.attention_bits if name in ("query", "key", "value") else packed.config.activation_bits
        top = 2**bits - 1
        position = (values - packed.tensor(f"{site}.edge")) * packed.tensor(f"{site}.rate")
        index: Integers = np.clip(np.floor(position), 0, top).astype(np.int32)
        return index if name == "ffn_hidden" else 2 * index - top
    least = packed.tensor(f"{site}.threshold") if name in packed.config.thresholds else 0
    return np.asarray(values >= least)


def _linear(packed: PackedModel, name: str, inputs: Levels, levels: str = "sign") -> Floats:
    """A binary linear layer (rules 4 and 10): the integer dot, then alpha · dot + bias, each rounded to float32."""
    dot = (_dot_of_levels if packed.config.has_levels else DOTS[levels])(inputs, packed.tensor(f"{name}.bits"))
    value: Floats = packed.tensor(f"{name}.scale") * dot.astype(np.float32) + packed.tensor(f"{name}.bias")
    return value


def _dot_of_signs(bits: Flags, weight: Words) -> Integers:
    """The paper's ⊗, ±1 with ±1: n - 2·popcount(x ^ w)."""
    return np.asarray(bits.shape[-1] - 2 * _popcounts(pack_rows(bits), weight, np.bitwise_xor))


def _dot_of_bools(bits: Flags, weight: Words) -> Integers:
    """{0, 1} with ±1: popcount(w) - popcount(x ^ w)."""
    return _ones(weight) - _popcounts(pack_rows(bits), weight, np.bitwise_xor)


def _dot_of_levels(levels: Levels, weight: Words) -> Integers:
    """Integers with ±1; float64 holds every sum exactly."""
    signs = np.where(unpack_rows(weight, levels.shape[-1]), 1.0, -1.0)
    return np.asarray(levels.astype(np.float64) @ signs.T, dtype=np.int32)


DOTS = {"sign": _dot_of_signs, "bool": _dot_of_bools}  # by the levels of the input


def _popcounts(rows: Words, columns: Words, combine: Callable[[Words, Words], Words]) -> Integers:
    """Popcount of every row combined with every column: (..., m, W) and (..., n, W) to (..., m, n)."""
    lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    total = np.zeros((*lead, rows.shape[-2], columns.shape[-2]), dtype=np.int32)
    for word in range(rows.shape[-1]):
        total += np.bitwise_count(combine(rows[..., :, None, word], columns[..., None, :, word]))
    return total


def _ones(rows: Words) -> Integers:
    """Popcount of each row."""
    return np.asarray(np.bitwise_count(rows).sum(axis=-1, dtype=np.int32))


def _bi_attention(
    packed: PackedModel, at: str, heads: tuple[Levels, Levels, Levels], real: Flags
) -> tuple[Levels, Integers]:
    """Bi-Attention (rule 6): a = bool(scores) without masked keys, and a ⊠ v = 2·popcount(a & v) - popcount(a)."""
    config = packed.config
    query, key, value = (_by_head(config, bits) for bits in heads)
    scores = config.head_size - 2 * _popcounts(pack_rows(query), pack_rows(key), np.bitwise_xor)
    least = packed.tensor(f"{at}.score_threshold")[:, None, None] if config.score_thresholds else 0
    attention: Flags = (scores >= least) & real[:, None, None, :]
    attended = pack_rows(attention)  # one bit per key, (B, H, T, W)
    channels = pack_rows(value.swapaxes(2, 3))  # one bit per key too, (B, H, D, W)
    context = 2 * _popcounts(attended, channels, np.bitwise_and) - _ones(attended)[..., None]
    return attention, context.swapaxes(1, 2).reshape(*real.shape, config.inner)


def _level_attention(
    packed: PackedModel, at: str, heads: tuple[Levels, Levels, Levels], real: Flags
) -> tuple[Levels, Floats]:
    """Attention on levels (rule 11): integer scores, weights by their distance from the greatest, one product last."""
    query, key, value = (_by_head(packed.config, levels).astype(np.float64) for levels in heads)  # exact for integers
    scores = np.where(real[:, None, None, :], query @ key.swapaxes(2, 3), -np.inf)
    distances = (scores.max(axis=-1, keepdims=True) - scores) / 2
    limits = packed.tensor(f"{at}.attention_threshold")[:, None, None, :]
    weights = (distances[..., None] <= limits).sum(axis=-1, dtype=np.int32)
    total = weights.sum(axis=-1, keepdims=True).astype(np.float32)
    context = (weights @ value).astype(np.float32) * (packed.tensor(f"{at}.value.step") / total)
    return weights, context.swapaxes(1, 2).reshape(*real.shape, packed.config.inner)


def _by_head(config: PackedConfig, levels: Levels) -> Levels:
    """(B, T, H · D) to (B, H, T, D)."""
    return levels.reshape(*levels.shape[:2], config.heads, config.head_size).swapaxes(1, 2)


def _layer_norm(packed: PackedModel, name: str, values: Floats) -> Floats:
    """LayerNorm with exact statistics (rule 7): integer sums on a grid, then float64, one rounding to float32.

    The sums fit in 64 bits: `packed.bounds` has checked it for every input that the model can have.
    """
    x = values.astype(np.float64)
    grid = np.rint(x * GRID).astype(np.int64)
    channels = grid.shape[-1]
    mean = grid.sum(axis=-1, keepdims=True) / channels
    variance = np.maximum((grid * grid).sum(axis=-1, keepdims=True) / channels - mean * mean, 0.0)
    inverse = 1.0 / np.sqrt(variance / GRID**2 + packed.config.norm_eps)
    weight, bias = (packed.tensor(f"{name}.{part}").astype(np.float64) for part in ("weight", "bias"))
    normed: Floats = (((x - mean / GRID) * inverse) * weight + bias).astype(np.float32)
    return normed


def _pool(packed: PackedModel, first: Floats) -> Floats:
    """The pooler, its tanh in float64 and rounded once (rule 7)."""
    inputs = _read(packed, "pooler_input", first)
    return _tanh(_linear(packed, "pooler", inputs).astype(np.float64)).astype(np.float32)


def _tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """A convergent of Lambert's fraction for a 32nd of x, then five doublings: basic operations only (rule 7)."""
    small = np.clip(x, -10.0, 10.0) / 32.0
    square = small * small
    value = small * (((square + 378.0) * square + 17325.0) * square + 135135.0)
    value = value / (((28.0 * square + 3150.0) * square + 62370.0) * square + 135135.0)
    for _ in range(5):
        value = (value + value) / (value * value + 1.0)
    return np.asarray(value)


def _classify(packed: PackedModel, pooled: Floats) -> Floats:
    """The classifier in float64, rounded once: one channel after the other, the bias last (rule 7).

    A product of two float32 is exact in float64, so only the order of the sum matters.
    """
    weight = packed.tensor("classifier.weight").astype(np.float64)
    total = np.zeros((len(pooled), len(weight)))
    for channel in range(weight.shape[1]):
        total += pooled[:, channel, None] * weight[:, channel]
    out: Floats = (total + packed.tensor("classifier.bias")).astype(np.float32)
    return out

"""The whole forward pass on packed bits in plain numpy: slow, and what the native engine is trusted against.

Every step is the numeric contract's: an integer from xor and popcount first, then the scale and the bias, each
rounded once to float32. Padding may be present: masked keys are ANDed away, so it never changes an answer. Files
are read in `packed.file`; `engine` computes the same bits fast.

Shapes: B batch, T tokens, C channels, H heads, D head size, W words of a row. Truth values stand for bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bibert.errors import EngineError, NumericError
from bibert.packed.bits import Words, pack_rows, unpack_rows
from bibert.packed.file import PackedModel
from bibert.packed.schema import GRID, LAYER_NORM_LIMIT

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class LayerTrace:
    """The inside of one block, (B, T, channels) but for the attention; what stands at a masked token has no meaning.

    Attributes:
        query: the bits of all heads side by side; key, value and context alike.
        key: see query.
        value: see query.
        attention: (B, H, T, T), which keys each query of a head attends to.
        context: see query.
        ffn_hidden: the bits that enter the second FFN layer.
        hidden: the hidden states that leave the block.
    """

    query: Flags
    key: Flags
    value: Flags
    attention: Flags
    context: Flags
    ffn_hidden: Flags
    hidden: Floats


@dataclass(frozen=True)
class Trace:
    """The inside of a whole pass: embedding (B, T, C), blocks, the pooled first token (B, C), logits (B, labels)."""

    embedding: Floats
    layers: tuple[LayerTrace, ...]
    pooled: Floats
    logits: Floats


def logits(
    packed: PackedModel,
    input_ids: ArrayLike,
    attention_mask: ArrayLike | None = None,
    token_type_ids: ArrayLike | None = None,
) -> Floats:
    """Token ids (B, T) to logits (B, labels).

    Args:
        packed: the model.
        input_ids: token ids; where the mask is 0 any number may stand.
        attention_mask: 1 for real tokens, 0 for padding; None for all real. The first token must be real.
        token_type_ids: 0 for the first text, 1 for the second; None for all 0.

    Raises:
        EngineError: a shape or an id does not fit the model, or a first token is masked.
        NumericError: a hidden state leaves the range of LayerNorm, or a logit is not finite: the model has diverged.
    """
    return trace(packed, input_ids, attention_mask, token_type_ids).logits


@np.errstate(over="ignore", invalid="ignore")  # infinity is compared or refused as in the engine, not warned of
def trace(
    packed: PackedModel,
    input_ids: ArrayLike,
    attention_mask: ArrayLike | None = None,
    token_type_ids: ArrayLike | None = None,
) -> Trace:
    """As `logits`, with what is computed on the way, for comparisons layer by layer."""
    batch = _check(packed, input_ids, attention_mask, token_type_ids)
    hidden = embedding = _embed(packed, batch)
    first = batch.real & (np.arange(batch.real.shape[1]) == 0)  # what the logits need of the last block
    layers: list[LayerTrace] = []
    for index in range(packed.config.layers):
        needed = first if index == packed.config.layers - 1 else batch.real
        layers.append(_block(packed, f"layers.{index}", hidden, batch.real, needed))
        hidden = layers[-1].hidden
    pooled = _pool(packed, hidden[:, 0])
    return Trace(embedding, tuple(layers), pooled, _classify(packed, pooled))


@dataclass(frozen=True)
class _Batch:
    """Checked input, (B, T) each; ids and types are 0 where a token is not real."""

    ids: Ids
    types: Ids
    real: Flags


def _check(packed: PackedModel, input_ids: ArrayLike, mask: ArrayLike | None, types: ArrayLike | None) -> _Batch:
    config, ids = packed.config, _integers("input_ids", input_ids)
    if ids.ndim != 2:
        raise EngineError(f"input_ids has shape {ids.shape}, must be (sequences, tokens)")
    if ids.shape[1] > config.positions:
        raise EngineError(f"input_ids has {ids.shape[1]} tokens a row, the model {config.positions} positions; cut it")
    real = np.ones(ids.shape, dtype=np.int64) if mask is None else _integers("attention_mask", mask)
    kinds = np.zeros(ids.shape, dtype=np.int64) if types is None else _integers("token_type_ids", types)
    for name, array in (("attention_mask", real), ("token_type_ids", kinds)):
        if array.shape != ids.shape:
            raise EngineError(f"{name} has shape {array.shape}, input_ids {ids.shape}; they must be equal")
    _check_range("attention_mask", real, 2)
    if not real[:, :1].any(axis=1).all():
        row = int(np.argmin(real[:, :1].any(axis=1)))
        raise EngineError(f"row {row}: its first token is missing or masked, but its answer is read from that token")
    ids, kinds = ids * real, kinds * real
    _check_range("input_ids", ids, config.vocabulary)
    _check_range("token_type_ids", kinds, config.token_types)
    return _Batch(ids, kinds, real == 1)


def _integers(name: str, values: ArrayLike) -> Ids:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise EngineError(f"{name}: rows differ in length; pad them and give attention_mask") from error
    if array.dtype.kind not in "biu":
        raise EngineError(f"{name} has type {array.dtype}, must be whole numbers")
    return array.astype(np.int64)


def _check_range(name: str, values: Ids, end: int) -> None:
    wrong = np.argwhere((values < 0) | (values >= end))
    if len(wrong):
        row, column = (int(number) for number in wrong[0])
        raise EngineError(f"{name}: row {row}, token {column} is {values[row, column]}, must be from 0 to {end - 1}")


def _embed(packed: PackedModel, batch: _Batch) -> Floats:
    """Word + token type + position, summed in this order, and LayerNorm."""
    ones = unpack_rows(packed.tensor("embeddings.word.bits")[batch.ids], packed.config.hidden)
    scale = packed.tensor("embeddings.word.scale")[batch.ids][..., None]
    rows = np.where(ones, scale, -scale) + packed.tensor("embeddings.token_type")[batch.types]
    rows = rows + packed.tensor("embeddings.position")[: batch.ids.shape[1]]
    return _layer_norm(packed, "embeddings.norm", rows, batch.real)


def _block(packed: PackedModel, at: str, hidden: Floats, real: Flags, needed: Flags) -> LayerTrace:
    """One block; only of `needed` tokens the range of LayerNorm is checked, as in the engine."""
    entering = _bits(packed, f"{at}.attention_input", hidden)
    query, key, value = (
        _bits(packed, f"{at}.{name}", _linear(packed, f"{at}.{name}", entering)) for name in ("query", "key", "value")
    )
    attention, sums = _bi_attention(packed, at, (query, key, value), real)
    context = _bits(packed, f"{at}.context", sums)
    mha = _linear(packed, f"{at}.attention_output", context)
    attended = _layer_norm(packed, f"{at}.attention_norm", mha + hidden, needed)
    wide = _linear(packed, f"{at}.intermediate", _bits(packed, f"{at}.ffn_input", attended))
    ffn_hidden = _bits(packed, f"{at}.ffn_hidden", wide)
    narrow = _linear(packed, f"{at}.output", ffn_hidden, packed.config.ffn_levels)
    leaving = _layer_norm(packed, f"{at}.output_norm", narrow + attended, needed)
    return LayerTrace(query, key, value, attention, context, ffn_hidden, leaving)


def _bits(packed: PackedModel, site: str, values: Floats | Integers) -> Flags:
    """The contract's sign: value ≥ 0, or ≥ the threshold of its channel where the model has one."""
    if site.rpartition(".")[-1] not in packed.config.thresholds:
        return values >= 0
    return values >= packed.tensor(f"{site}.threshold")


def _linear(packed: PackedModel, name: str, bits: Flags, levels: str = "sign") -> Floats:
    """The integer dot first, then alpha · dot + bias, the product and the sum each rounded to float32."""
    dot = DOTS[levels](bits, packed.tensor(f"{name}.bits"))
    value: Floats = packed.tensor(f"{name}.scale") * dot.astype(np.float32) + packed.tensor(f"{name}.bias")
    return value


def _dot_of_signs(bits: Flags, weight: Words) -> Integers:
    """The paper's ⊗, ±1 with ±1: n - 2·popcount(x ^ w)."""
    dot: Integers = bits.shape[-1] - 2 * _popcounts(pack_rows(bits), weight, np.bitwise_xor)
    return dot


def _dot_of_bools(bits: Flags, weight: Words) -> Integers:
    """{0, 1} with ±1: popcount(w) - popcount(x ^ w)."""
    return _ones(weight) - _popcounts(pack_rows(bits), weight, np.bitwise_xor)


DOTS = {"sign": _dot_of_signs, "bool": _dot_of_bools}  # by the levels of the input


def _popcounts(rows: Words, columns: Words, combine: Callable[[Words, Words], Words]) -> Integers:
    """How many bits are 1 in every row combined with every column: (..., m, W) and (..., n, W) to (..., m, n)."""
    lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    total = np.zeros((*lead, rows.shape[-2], columns.shape[-2]), dtype=np.int32)
    for word in range(rows.shape[-1]):
        total += np.bitwise_count(combine(rows[..., :, None, word], columns[..., None, :, word]))
    return total


def _ones(rows: Words) -> Integers:
    """How many bits are 1 in each row."""
    count: Integers = np.bitwise_count(rows).sum(axis=-1, dtype=np.int32)
    return count


def _bi_attention(
    packed: PackedModel, at: str, heads: tuple[Flags, Flags, Flags], real: Flags
) -> tuple[Flags, Integers]:
    """bool(scores), and it ⊠ values, (B, T, H · D): 2·popcount(a & v) - popcount(a), with masked keys out of a."""
    config = packed.config
    query, key, value = (bits.reshape(*real.shape, config.heads, config.head_size).swapaxes(1, 2) for bits in heads)
    scores = config.head_size - 2 * _popcounts(pack_rows(query), pack_rows(key), np.bitwise_xor)
    least = packed.tensor(f"{at}.score_threshold")[:, None, None] if config.score_thresholds else 0
    attention: Flags = (scores >= least) & real[:, None, None, :]
    attended = pack_rows(attention)  # one bit per key, (B, H, T, W)
    channels = pack_rows(value.swapaxes(2, 3))  # one bit per key too, (B, H, D, W)
    context = 2 * _popcounts(attended, channels, np.bitwise_and) - _ones(attended)[..., None]
    return attention, context.swapaxes(1, 2).reshape(*real.shape, config.inner)


def _layer_norm(packed: PackedModel, name: str, values: Floats, needed: Flags) -> Floats:
    """LayerNorm with exact statistics: integer sums on a grid, float64 after them, one rounding to float32."""
    inside = np.abs(values) < LAYER_NORM_LIMIT  # false for NaN
    if not inside[needed].all():
        size = np.abs(values[needed][~inside[needed]]).max()
        raise NumericError(
            f"{name}: an input reaches {size:g}, the fixed-point grid ends at {LAYER_NORM_LIMIT:g}; "
            "the model has diverged: train it with a lower learning rate"
        )
    x = np.where(inside, values, np.float32(0)).astype(np.float64)  # what is not needed must not raise anything
    grid = np.rint(x * GRID).astype(np.int64)
    channels = grid.shape[-1]
    mean = grid.sum(axis=-1, keepdims=True) / channels
    variance = np.maximum((grid * grid).sum(axis=-1, keepdims=True) / channels - mean * mean, 0.0)
    inverse = 1.0 / np.sqrt(variance / GRID**2 + packed.config.norm_eps)
    weight, bias = (packed.tensor(f"{name}.{part}").astype(np.float64) for part in ("weight", "bias"))
    normed: Floats = (((x - mean / GRID) * inverse) * weight + bias).astype(np.float32)
    return normed


def _pool(packed: PackedModel, first: Floats) -> Floats:
    """The pooler with its tanh in float64, rounded once.

    Libraries differ in the last float64 bit of tanh; that it shows after the rounding has odds of about 1e-8 a value.
    """
    bits = _bits(packed, "pooler_input", first)
    return np.tanh(_linear(packed, "pooler", bits).astype(np.float64)).astype(np.float32)


def _classify(packed: PackedModel, pooled: Floats) -> Floats:
    """The classifier in float64, rounded once: channel after channel from the first on, the bias last.

    A product of two float32 is exact in float64, so the order of the sum is all that is left to specify. A library
    that sums in another order, torch among them, differs in float32 with odds of about 1e-8 a value.
    """
    weight = packed.tensor("classifier.weight").astype(np.float64)
    total = np.zeros((len(pooled), len(weight)))
    for channel in range(weight.shape[1]):
        total += pooled[:, channel, None] * weight[:, channel]
    out: Floats = (total + packed.tensor("classifier.bias")).astype(np.float32)
    if not np.isfinite(out).all():
        raise NumericError("a logit is not finite; the model has diverged: train it with a lower learning rate")
    return out

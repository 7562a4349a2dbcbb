"""The numpy reference: each step against plain arithmetic. tests/parity compares it with torch."""

import numpy as np
import pytest

from bibert.packed.bits import pack_rows
from bibert.runtime import reference

DRAW = np.random.default_rng(0)
IDS = DRAW.integers(0, 60, (4, 18))
TYPES = DRAW.integers(0, 2, (4, 18))
MASK = (DRAW.random((4, 18)) < 0.7).astype(int)
MASK[:, 0] = 1


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype == np.float32 and found.tobytes() == expected.tobytes()


def plus_minus(bits: np.ndarray) -> np.ndarray:
    return np.where(bits, 1, -1)


@pytest.mark.parametrize("inputs", [1, 63, 64, 65, 130])
def test_a_dot_is_the_product_of_the_levels_with_plus_and_minus_ones(inputs):
    bits, weight = DRAW.random((5, inputs)) < 0.5, DRAW.random((7, inputs)) < 0.5
    for name, levels in {"sign": plus_minus(bits), "bool": bits.astype(int)}.items():
        np.testing.assert_array_equal(reference.DOTS[name](bits, pack_rows(weight)), levels @ plus_minus(weight).T)


def test_the_context_is_the_sum_of_the_values_of_real_keys_whose_score_reaches_the_threshold(new_packed, with_tensors):
    least = np.array([-2, 4], dtype=np.int32)
    plain = new_packed(layers=1)
    packed = with_tensors(plain, {"layers.0.score_threshold": least}, score_thresholds=True)
    layer = reference.trace(packed, IDS, MASK, TYPES).layers[0]
    heads = [plus_minus(bits).reshape(4, 18, 2, 20) for bits in (layer.query, layer.key, layer.value)]
    scores = np.einsum("bqhd,bkhd->bhqk", heads[0], heads[1])
    weights = (scores >= least[:, None, None]) & (MASK == 1)[:, None, None, :]
    context = np.einsum("bhqk,bkhd->bqhd", weights.astype(int), heads[2]).reshape(4, 18, 40)
    np.testing.assert_array_equal(layer.context, context >= 0)


def test_the_embedding_adds_the_token_type_before_the_position(new_packed, with_tensors):
    packed = new_packed()
    words, big = packed.config.vocabulary, 2.0**11
    changes = {
        "embeddings.word.bits": pack_rows(np.ones((words, 40), dtype=bool)),
        "embeddings.word.scale": np.full(words, big, dtype=np.float32),
        "embeddings.token_type": np.full((2, 40), -big, dtype=np.float32),
        "embeddings.position": np.eye(64, 40, dtype=np.float32) / 2**14,  # 2^11 + 2^-14 would be rounded to 2^11
        "embeddings.norm.weight": np.ones(40, dtype=np.float32),
        "embeddings.norm.bias": np.zeros(40, dtype=np.float32),
    }
    embedding = reference.trace(with_tensors(packed, changes), IDS[:, :3]).embedding
    np.testing.assert_array_equal(embedding[0].argmax(axis=-1), [0, 1, 2])
    assert embedding.max() > 6  # one channel of 40 stands out: √39


@pytest.mark.parametrize("value", [0.0, -0.0, 0.5, -511.75])
def test_layer_norm_of_a_constant_row_is_the_bias(new_packed, value):
    packed = new_packed()
    x = np.full((1, 1, 40), value, dtype=np.float32)
    found = reference._layer_norm(packed, "embeddings.norm", x)
    np.testing.assert_array_equal(found[0, 0], packed.tensor("embeddings.norm.bias"))


def test_a_value_that_equals_its_threshold_is_a_one(new_packed, with_tensors):
    packed = new_packed(layers=1, thresholds=("query",))
    changes = {
        "layers.0.query.scale": np.zeros(40, dtype=np.float32),
        "layers.0.query.bias": packed.tensor("layers.0.query.threshold"),
    }
    assert reference.trace(with_tensors(packed, changes), IDS).layers[0].query.all()
    above = np.nextafter(packed.tensor("layers.0.query.threshold"), np.float32(np.inf))
    missed = with_tensors(packed, {**changes, "layers.0.query.threshold": above})
    assert not reference.trace(missed, IDS).layers[0].query.any()


def test_a_negative_zero_is_a_one(new_packed, with_tensors):
    packed = new_packed(layers=1)
    changes = {
        "layers.0.value.scale": np.zeros(40, dtype=np.float32),
        "layers.0.value.bias": np.full(40, -0.0, dtype=np.float32),
    }
    assert reference.trace(with_tensors(packed, changes), IDS).layers[0].value.all()


def test_the_classifier_sums_channel_after_channel_and_adds_the_bias_last(new_packed, with_tensors):
    packed = new_packed()
    weight = np.zeros((3, 40), dtype=np.float32)
    weight[:, :3] = [[2.0**60, 1, -(2.0**60)], [2.0**60, -(2.0**60), 1], [1, 0, 0]]
    changes = {
        "pooler.scale": np.zeros(40, dtype=np.float32),
        "pooler.bias": np.full(40, 50, dtype=np.float32),  # tanh is exactly 1
        "classifier.weight": weight,
        "classifier.bias": np.array([2, 2, -1], dtype=np.float32),
    }
    found = reference.logits(with_tensors(packed, changes), IDS[:1])
    np.testing.assert_array_equal(found, [[2, 3, 0]])


def test_the_trace_ends_in_the_logits_and_has_every_layer(new_packed):
    packed = new_packed()
    trace = reference.trace(packed, IDS, MASK, TYPES)
    assert same_bits(trace.logits, reference.logits(packed, IDS, MASK, TYPES))
    assert trace.embedding.shape == (4, 18, 40)
    assert [layer.ffn_hidden.shape for layer in trace.layers] == [(4, 18, 70)] * 2
    assert trace.pooled.shape == (4, 40)
    assert np.abs(trace.pooled).max() <= 1

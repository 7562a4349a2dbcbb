"""The bounds of LayerNorm's inputs: they hold whatever a text is, and a model that could leave the range is refused."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibert.errors import ModelFileError
from bibert.packed.bounds import check, norm_bounds
from bibert.packed.file import PackedModel
from bibert.packed.schema import GRID, LAYER_NORM_LIMIT
from bibert.runtime import reference


def inputs_of(packed, monkeypatch, **batch):
    """What enters each LayerNorm for a batch, by its name: the greatest magnitude of each channel."""
    found, plain = {}, reference._layer_norm

    def recording(packed, name, values):
        found[name] = np.abs(values.reshape(-1, values.shape[-1])).max(axis=0)
        return plain(packed, name, values)

    with monkeypatch.context() as patch:
        patch.setattr(reference, "_layer_norm", recording)
        reference.logits(packed, **batch)
    return found


def batch_for(config, seed):
    random = np.random.default_rng(seed)
    shape = (16, config.positions)
    ids, types = random.integers(config.vocabulary, size=shape), random.integers(config.token_types, size=shape)
    return {"input_ids": ids, "token_type_ids": types}


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**31), flat=st.booleans())
def test_no_text_exceeds_the_bound_of_any_channel(data, seed, flat, make_model, small_configs):
    config = data.draw(small_configs)
    packed = make_model(config, seed)
    if flat:  # words that differ by less than a step of the grid: the variance is rounding, epsilon decides
        near = 1 + np.random.default_rng(seed).random(config.vocabulary, np.float32) / np.float32(2 * GRID)
        packed = with_values(packed, {"embeddings.word.scale": near, "embeddings.position": 100, "token_type": 0})
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = inputs_of(packed, monkeypatch, **batch_for(config, seed))
    bounds = {norm.name: norm for norm in norm_bounds(config, packed.tensor)}
    assert list(found) == list(bounds)
    for name, largest in found.items():
        assert (largest <= bounds[name].channels).all(), name
        assert bounds[name].length < LAYER_NORM_LIMIT


def with_values(packed, values):
    """The model with other numbers in the tensors whose names end like this."""
    tensors = {spec.name: packed.tensor(spec.name) for spec in packed.specs[:-1]}
    for ending, value in values.items():
        for name in [name for name in tensors if name.endswith(ending)]:
            tensors[name] = np.broadcast_to(np.asarray(value, tensors[name].dtype), tensors[name].shape)
    return PackedModel.from_tensors(packed.config, packed.labels, packed.max_length, tensors, packed.tokenizer, {})


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_bound_is_not_far_from_what_a_text_can_reach(make_model, make_levels, monkeypatch, bits):
    packed = make_model(ffn_levels="sign") if bits == 1 else make_levels(activation_bits=bits, layers=1)
    # Weights of one sign and a bias that sets all activations make the greatest dot of every channel.
    steady = {f"{part}.bias": 1e6 for part in ("query", "key", "value", "intermediate")}
    words = {spec.name: packed.tensor(spec.name) for spec in packed.specs if spec.dtype == "U64"}
    full = {name: np.bitwise_or.reduce(value.ravel()) | value for name, value in words.items()}
    packed = with_values(packed, steady | full)
    found = inputs_of(packed, monkeypatch, **batch_for(packed.config, 0))
    for norm in norm_bounds(packed.config, packed.tensor):
        assert np.linalg.norm(found[norm.name]) > 0.2 * norm.length, norm.name


def test_no_table_is_copied(make_model):
    packed = make_model(positions=8000, labels=8000)  # 640 KB each
    tracemalloc.start()
    check(packed.config, packed.tensor)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 300_000


REFUSED = {
    "embeddings.word.scale": (1e4, "'embeddings.norm'"),
    "embeddings.position": (-1e4, "'embeddings.norm'"),
    "layers.0.attention_output.scale": (3e38, "'layers.0.attention_norm'"),
    "layers.0.attention_norm.weight": (-1e4, "'layers.0.output_norm'"),
    "layers.0.output.bias": (1e4, "'layers.0.output_norm'"),
    "classifier.weight": (3e38, "'classifier': a logit .* 3.4"),
}


@pytest.mark.parametrize("tensor", REFUSED)
def test_a_model_that_could_leave_the_range_is_refused_with_the_layer_and_both_numbers(make_model, make_levels, tensor):
    value, says = REFUSED[tensor]
    limit = "" if tensor.startswith("classifier") else r".*length [\d.e+]+, .* below 32768"
    for packed in (make_model(), make_levels()):
        with pytest.raises(ModelFileError, match=f"^{says}{limit}"):
            with_values(packed, {tensor: value})


def test_an_epsilon_that_makes_rounding_errors_large_is_refused(make_model):
    with pytest.raises(ModelFileError, match=r"'layers\.0\.attention_norm': .* below 32768"):
        make_model(norm_eps=5e-324)

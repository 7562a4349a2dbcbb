"""The same tokens give the same bits: alone, in any batch, with any padding, on any number of threads."""

import numpy as np
import pytest
import torch

from bibert.export import SHIFTS
from bibert.runtime import reference
from bibert.runtime.engine import Engine, available_isas

LENGTHS = (3, 64, 1, 65, 17, 128, 2, 40, 63, 9)
SHAPE = {"hidden_size": 100, "num_attention_heads": 4, "intermediate_size": 130}


@pytest.fixture(scope="module", params=["bibert", "bibert_2", "bibert_4(attention_bits=2)"])
def pair(request, new_pair):
    return new_pair(21, scheme=request.param, **SHAPE)


@pytest.fixture(scope="module")
def batch(pair, new_batch):
    return new_batch(pair, LENGTHS, holes=True)


@pytest.fixture(scope="module")
def expected(pair, batch):
    return pair.expected(batch)


def test_a_row_alone_gives_the_bits_it_gives_in_a_batch(batch, pair, expected, assert_agree, assert_same_bits):
    for row, length in enumerate(LENGTHS):
        alone = {name: array[row : row + 1, :length] for name, array in batch.items()}
        assert_same_bits(assert_agree(pair, alone), expected[row : row + 1])


@pytest.mark.parametrize("seed", range(5))
def test_a_random_batch_gives_each_row_its_own_bits(seed, batch, pair, expected, assert_agree):
    random = np.random.default_rng(seed)
    rows = random.integers(len(LENGTHS), size=random.integers(1, 40))
    assert_agree(pair, {name: array[rows] for name, array in batch.items()}, expected[rows])


@pytest.mark.parametrize("surplus", [1, 5, 64, 384])
def test_padding_changes_nothing_whatever_it_holds(surplus, batch, pair, expected, assert_agree):
    junk = {"input_ids": 10**6, "token_type_ids": -7, "attention_mask": 0}
    padded = {name: np.pad(array, ((0, 0), (0, surplus)), constant_values=junk[name]) for name, array in batch.items()}
    assert_agree(pair, padded, expected)


@pytest.mark.parametrize("threads", range(1, 17))
def test_any_number_of_threads_gives_the_same_bits(threads, batch, pair, expected, assert_same_bits):
    for isa in available_isas():
        engine = Engine.from_packed(pair.packed, threads=threads, isa=isa)
        assert_same_bits(engine.logits(**batch), expected)
        one = {name: array[5:6] for name, array in batch.items()}  # a single long row: the threads share it
        assert_same_bits(engine.logits(**one), expected[5:6])


def test_every_layer_of_the_numpy_reference_has_the_bits_of_the_torch_trace(batch, pair):
    with torch.no_grad():
        theirs = pair.network(**{name: torch.from_numpy(array) for name, array in batch.items()}, trace=True).trace
    ours = reference.trace(pair.packed, **batch)
    real = batch["attention_mask"] == 1
    np.testing.assert_array_equal(ours.embedding[real], theirs.hidden_states[0].numpy()[real])
    for layer, (mine, other) in enumerate(zip(ours.layers, theirs.layers, strict=True)):
        has_levels = pair.packed.config.has_levels
        for name in ("query", "key", "value"):
            levels = getattr(other.levels, name).transpose(1, 2).flatten(2).numpy()
            np.testing.assert_array_equal(getattr(mine, name)[real], (levels if has_levels else levels > 0)[real])
        rows, weights = np.broadcast_to(real[:, None, :], mine.attention.shape[:3]), other.weights.numpy()
        if has_levels:
            weights = np.rint(weights / weights.max(axis=-1, keepdims=True) * mine.attention.max())
        np.testing.assert_array_equal(mine.attention[rows], weights[rows])
        read = pair.network.bert.encoder.layer[layer].get_submodule(SHIFTS["context"])(other.context)
        context = read.levels if has_levels else read >= 0
        np.testing.assert_array_equal(mine.context[real], context.detach().numpy()[real])
        np.testing.assert_array_equal(mine.hidden[real], theirs.hidden_states[layer + 1].numpy()[real])

"""Entropies: counted by hand on made-up bits, 0 for a binarized softmax, high where Bi-Attention is."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from bibert.errors import DataError
from bibert.lab.look import HEAD_WEIGHTS, HEADS, Inside, LayerInside, entropies, rounded
from bibert.lab.network import inside_of_network
from bibert.lab.theory import binary_entropy
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification

BATCH, HEADS_OF_A_LAYER, TOKENS, SIZE, WIDE = 2, 2, 3, 4, 6


def random_layer(seed: int) -> LayerInside:
    random = np.random.default_rng(seed)

    def bits(*shape: int) -> np.ndarray:
        return random.random(shape) < 0.3

    per_token = {name: bits(BATCH, HEADS_OF_A_LAYER, TOKENS, SIZE) for name in ("query", "key", "value", "context")}
    attended = bits(BATCH, HEADS_OF_A_LAYER, TOKENS, TOKENS)
    inner = HEADS_OF_A_LAYER * SIZE
    shapes = {"query": (inner, 8), "key": (inner, 8), "value": (inner, 8), "attention_output": (8, inner)}
    shapes |= {"intermediate": (WIDE, 8), "output": (8, WIDE)}
    matrices = {name: bits(*shape) for name, shape in shapes.items()}
    return LayerInside(
        **per_token,
        attention=attended.astype(np.float32),
        attended=attended,
        ffn_hidden=bits(BATCH, TOKENS, WIDE),
        weights=lambda: matrices,
    )


@pytest.fixture
def inside() -> Inside:
    """Two layers, two texts, of which the second has two tokens."""
    real = np.array([[True, True, True], [True, True, False]])
    return Inside(real, (random_layer(0), random_layer(1)))


def test_every_entropy_is_that_of_the_share_of_ones_without_padding(inside):
    found = entropies([inside])
    for index, layer in enumerate(inside.layers):
        for head in range(HEADS_OF_A_LAYER):
            kept = np.concatenate([layer.query[0, head].ravel(), layer.query[1, head, :2].ravel()])
            assert found["query"][index, head] == pytest.approx(binary_entropy(kept.mean()))
            pairs = np.concatenate([layer.attended[0, head].ravel(), layer.attended[1, head, :2, :2].ravel()])
            assert found["attention"][index, head] == pytest.approx(binary_entropy(pairs.mean()))
            rows = slice(head * SIZE, (head + 1) * SIZE)
            of_rows = layer.weights()["key"][rows].mean()
            assert found["weight of key"][index, head] == pytest.approx(binary_entropy(of_rows))
            of_columns = layer.weights()["attention_output"][:, rows].mean()
            assert found["weight of attention_output"][index, head] == pytest.approx(binary_entropy(of_columns))
        kept = np.concatenate([layer.ffn_hidden[0].ravel(), layer.ffn_hidden[1, :2].ravel()])
        assert found["ffn_hidden"][index] == pytest.approx(binary_entropy(kept.mean()))


def test_what_stands_in_the_padding_does_not_count(inside):
    before = rounded(entropies([inside]))
    for layer in inside.layers:
        for name in ("query", "key", "value", "context"):
            getattr(layer, name)[1, :, 2] ^= True
        layer.attended[1, :, 2, :] ^= True
        layer.attended[1, :, :, 2] ^= True
        layer.ffn_hidden[1, 2] ^= True
    assert rounded(entropies([inside])) == before


def test_no_batch_is_refused():
    with pytest.raises(DataError, match="at least one"):
        entropies([])


def test_batches_count_together(inside):
    halves = [Inside(inside.real[rows], tuple(_rows_of(layer, rows) for layer in inside.layers)) for rows in ([0], [1])]
    assert rounded(entropies(halves)) == rounded(entropies([inside]))


def _rows_of(layer: LayerInside, rows: list[int]) -> LayerInside:
    texts = {field.name: getattr(layer, field.name)[rows] for field in fields(layer) if field.name != "weights"}
    return LayerInside(**texts, weights=layer.weights)


def test_the_names_are_those_of_heads_and_layers(inside):
    found = entropies([inside])
    heads = {name for name, table in found.items() if table.shape == (2, HEADS_OF_A_LAYER)}
    assert heads == {*HEADS, *(f"weight of {name}" for name in HEAD_WEIGHTS)}
    layers = {name for name, table in found.items() if table.shape == (2,)}
    assert layers == {"ffn_hidden", "weight of intermediate", "weight of output"}


def test_a_binarized_softmax_has_no_entropy_and_bi_attention_has(random_networks):
    assert random_networks("baseline")["attention"].max() == 0
    assert random_networks("full_precision")["attention"].max() == 0
    assert random_networks("bibert")["attention"].mean() > 0.9
    assert random_networks("bibert")["query"].mean() > 0.9


@pytest.mark.parametrize(("scheme", "bits"), [("bibert_2(attention_bits=2)", 2), ("bibert_4", 4)])
def test_levels_have_an_entropy_up_to_their_bits(scheme, bits, random_networks):
    found = random_networks(scheme)
    for name in HEADS:
        assert bits / 2 - 1 < found[name].min()
        assert found[name].max() <= bits
    assert found["query"].mean() > bits - 1
    assert found["weight of query"].max() <= 1


@pytest.fixture
def random_networks():
    """A function that takes the entropies of a random network of a scheme on random texts."""

    def take(scheme: str):
        torch.manual_seed(0)
        shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
        config = BiBertConfig(vocab_size=100, **shape, scheme=scheme, initializer_range=0.2)
        ids = np.random.default_rng(0).integers(0, 100, (8, 20))
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return entropies([inside_of_network(BiBertForSequenceClassification(config), batch)])

    return take

"""The inside of a model: a network and its packed file show the same bits; entropies, counted by hand."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from bibert.data.examples import Split
from bibert.errors import DataError, SchemeError
from bibert.export import pack
from bibert.lab.look import (
    HEAD_WEIGHTS,
    HEADS,
    Inside,
    LayerInside,
    entropies,
    inside_of_packed,
    load_subject,
    padded,
    rounded,
)
from bibert.lab.network import inside_of_network
from bibert.lab.theory import binary_entropy
from bibert.nn.checkpoint import load_classifier
from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification
from bibert.nn.students import binarize

BATCH, HEADS_OF_A_LAYER, TOKENS, SIZE, WIDE = 2, 2, 3, 4, 6
TEXTS = ["a fine film", "dull", "one of the best films of the year , and of any other"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, save_untrained: Callable[..., Path]) -> Path:
    """A float model."""
    return save_untrained(tmp_path_factory.mktemp("float") / "model", TEXTS, max_position_embeddings=32)


@pytest.fixture(scope="module")
def student_of(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Callable[[str], Path]:
    """A function that saves the student of a scheme."""

    def save(scheme: str) -> Path:
        classifier = load_classifier(folder)
        place = tmp_path_factory.mktemp("student") / "model"
        binarize(classifier.model, scheme).save_pretrained(place)
        classifier.tokenizer.save_pretrained(place)
        return place

    return save


def batch_of(lengths: list[int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = random.integers(5, 12, mask.shape)
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}


def assert_same(mine: Inside, other: Inside) -> None:
    np.testing.assert_array_equal(mine.real, other.real)
    for ours, theirs in zip(mine.layers, other.layers, strict=True):
        for field in fields(ours):
            if field.name == "weights":
                matrices, others = ours.weights(), theirs.weights()
                assert matrices.keys() == others.keys()
                for name, bits in matrices.items():
                    np.testing.assert_array_equal(bits, others[name])
                continue
            a, b = getattr(ours, field.name), getattr(theirs, field.name)
            token = np.moveaxis(a, -2, 1), np.moveaxis(b, -2, 1)  # (B, T, ...): the token, or the query
            np.testing.assert_array_equal(token[0][mine.real], token[1][mine.real])


@pytest.mark.parametrize("scheme", ["bibert", "bibert_plus", "bibert_2", "bibert_4(attention_bits=2)"])
def test_a_network_and_its_packed_file_show_the_same_bits(scheme, student_of):
    classifier = load_classifier(student_of(scheme))
    packed = pack(classifier, Split(tuple(TEXTS), None, (0.0,) * 3, "texts"), max_length=16)
    batch = batch_of([7, 3, 12])
    assert_same(inside_of_packed(packed, batch), inside_of_network(classifier.model, batch))


def test_a_file_and_a_folder_read_texts_alike(student, packed_file):
    mine, other = load_subject(packed_file), load_subject(student, max_length=32)
    for row in ("dull", ("dull", "a film")):
        tokens = mine.read(row)[0]
        assert (tokens[0], tokens) == ("[CLS]", other.read(row)[0])
    for ours, theirs in zip(mine.insides(TEXTS), other.insides(TEXTS), strict=True):
        assert_same(ours, theirs)
    assert mine.scheme == other.scheme == "bibert"


def test_a_run_folder_stands_for_the_model_in_it(folder):
    assert load_subject(folder.parent).name == load_subject(folder).name == folder.parent.name


def test_a_float_model_is_seen_as_its_signs(folder):
    subject = load_subject(folder)
    inside = subject.look(padded(subject.encode(TEXTS)))
    layer, real = inside.layers[0], inside.real
    np.testing.assert_allclose(layer.attention.sum(axis=-1).swapaxes(1, 2)[real], 1, atol=1e-6)
    pairs = np.broadcast_to(real[:, None, None, :], layer.attended.shape)
    np.testing.assert_array_equal(layer.attended, pairs)  # a softmax is never below 0
    assert 0.2 < layer.query.mean() < 0.8


def test_the_weights_of_asym_are_ones_where_they_are_the_larger_of_the_two_values(student_of):
    subject = load_subject(student_of("baseline_asym"))
    inside = subject.look(padded(subject.encode(TEXTS)))
    for layer in inside.layers:
        for text, head, query in np.argwhere(np.broadcast_to(inside.real[:, None], layer.attended.shape[:3])):
            row, bits = layer.attention[text, head, query], layer.attended[text, head, query]
            keys = inside.real[text]
            np.testing.assert_array_equal(bits[keys], row[keys] == row[keys].max())
            assert not bits[~keys].any()


@pytest.mark.parametrize(
    ("scheme", "message"),
    [("ternarybert_2-2-8", "ternarybert_2-2-8.* 8 bits"), ("bibert(kept=mha)", "1 bits.*mha")],
)
def test_activations_of_several_bits_are_refused(student_of, scheme, message):
    with pytest.raises(SchemeError, match=message):
        load_subject(student_of(scheme)).read("dull")


@pytest.mark.parametrize("scheme", ["ternarybert_2-2-1", "binarybert_1-1-1"])
def test_weights_of_several_bits_or_of_two_parts_are_left_out(student_of, scheme):
    assert not load_subject(student_of(scheme)).read("dull")[1].layers[0].weights()


def test_texts_are_read_one_at_a_time(folder):
    sizes = [len(inside.real) for inside in load_subject(folder).insides(["dull"] * 70)]
    assert sizes == [1] * 70


def test_a_folder_cuts_where_it_is_told(folder):
    assert len(load_subject(folder, max_length=5).read(TEXTS[2])[0]) == 5


def test_no_text_is_refused(folder):
    for measure in (lambda: next(load_subject(folder).insides([])), lambda: entropies([])):
        with pytest.raises(DataError, match="at least one"):
            measure()


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

"""The inside of a model has one form: a network and its packed file show the same bits, padding or not."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from bibert.data.examples import Split
from bibert.errors import DataError, SchemeError
from bibert.export import pack
from bibert.lab.look import Inside, inside_of_packed, load_subject
from bibert.lab.network import inside_of_network
from bibert.nn.checkpoint import load_classifier
from bibert.nn.students import binarize

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
    [inside] = load_subject(folder).insides(TEXTS)
    layer, real = inside.layers[0], inside.real
    np.testing.assert_allclose(layer.attention.sum(axis=-1).swapaxes(1, 2)[real], 1, atol=1e-6)
    pairs = np.broadcast_to(real[:, None, None, :], layer.attended.shape)
    np.testing.assert_array_equal(layer.attended, pairs)  # a softmax is never below 0
    assert 0.2 < layer.query.mean() < 0.8


def test_the_weights_of_asym_are_ones_where_they_are_the_larger_of_the_two_values(student_of):
    [inside] = load_subject(student_of("baseline_asym")).insides(TEXTS)
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


def test_texts_are_read_some_at_a_time(folder):
    sizes = [len(inside.real) for inside in load_subject(folder).insides(["dull"] * 70)]
    assert sizes == [32, 32, 6]


def test_a_folder_cuts_where_it_is_told(folder):
    assert len(load_subject(folder, max_length=5).read(TEXTS[2])[0]) == 5


def test_no_text_is_refused(folder):
    with pytest.raises(DataError, match="at least one"):
        next(load_subject(folder).insides([]))

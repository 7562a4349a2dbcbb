"""Attention maps: from a torch model and from its packed file, what is a bit, titles, and the same tokens for all."""

import numpy as np
import pytest

from bibert.errors import BibertError, DataError
from bibert.lab.attention import attention_map, attention_maps, score_shares
from bibert.lab.look import Inside, LayerInside, Subject, by_title, load_subject, require_head
from bibert.runtime.engine import Encoded

TOKENS = ("[CLS]", "a", "film", "[SEP]")


def subject(attention, attended, name="model", scheme="bibert", tokens=TOKENS):
    """A model that reads any text as `tokens` and has these weights and bits, (L, H, T, T), inside."""
    nothing = np.zeros((1, 1, len(tokens), 1), bool)

    def layer(weights, bits):
        heads = dict.fromkeys(("query", "key", "value", "context", "ffn_hidden"), nothing)
        return LayerInside(**heads, attention=weights[None], attended=bits[None], weights=dict)

    def look(batch):
        return Inside(batch["attention_mask"] == 1, tuple(map(layer, attention, attended)))

    def encode(rows):
        return [Encoded(np.arange(len(tokens), dtype=np.int32), None) for _ in rows]

    logits = np.array([[0.0, np.log(3.0)]], np.float32)  # probabilities of 1/4 and 3/4
    labels = ("negative", "positive")
    return Subject(name, scheme, look, encode, lambda ids: [tokens[i] for i in ids], lambda _: logits, labels)


def softmax_subject(**names):
    scores = np.exp(np.random.default_rng(0).standard_normal((2, 3, 4, 4))).astype(np.float32)
    return subject(scores / scores.sum(-1, keepdims=True), np.ones((2, 3, 4, 4), bool), **names)


def bits_subject(values=(0.0, 1.0), **names):
    bits = np.random.default_rng(1).integers(0, 2, (2, 3, 4, 4)).astype(bool)
    return subject(np.where(bits, values[1], values[0]).astype(np.float32), bits, **names)


def test_weights_of_a_softmax_are_shown_as_they_are_and_scaled_by_the_largest_of_each_head():
    found = attention_map(softmax_subject(scheme="full_precision"), "a title", "a film")
    assert (found.title, found.scheme, found.tokens, found.is_bits) == ("a title", "full_precision", TOKENS, False)
    assert found.weights.shape[:2] == (2, 3)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(found.scaled.max(axis=(-2, -1)), np.ones((2, 3)))
    np.testing.assert_allclose(found.scaled * found.largest[..., None, None], found.weights, rtol=1e-6)


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 1.0), (0.1, 0.4)], ids=["bool", "sign", "asym"])
def test_weights_of_two_values_are_shown_as_bits_that_are_never_rescaled(values):
    one = bits_subject(values)
    found = attention_map(one, "bibert", "a film")
    bits = np.stack([layer.attended[0] for layer in one.read("a film")[1].layers])
    assert found.is_bits
    np.testing.assert_array_equal(found.weights, bits)
    np.testing.assert_array_equal(found.scaled, found.weights)


@pytest.mark.parametrize("bit", [1, 0], ids=["baseline", "a head that attends to nothing"])
def test_weights_that_are_all_the_same_bit_are_bits(bit):
    weights = np.full((2, 3, 4, 4), bit, np.float32)
    found = attention_map(subject(weights, weights.astype(bool)), "x", "a film")
    assert found.is_bits
    np.testing.assert_array_equal(found.scaled, weights)


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (0, 3), (-1, 0)])
def test_a_head_that_is_not_there_is_refused(layer, head):
    found = attention_map(bits_subject(), "bibert", "a film")
    with pytest.raises(BibertError, match=r"bibert:.*layers.*0 to 1.*heads 0 to 2"):
        require_head(found.title, found.weights.shape, layer, head)


def test_a_title_is_the_scheme_or_the_name_or_the_name_with_its_place():
    names = [("full_precision", "t"), ("bibert", "a"), ("bibert", "b"), ("bibert", "b")]
    models = [bits_subject(scheme=scheme, name=name) for scheme, name in names]
    assert list(by_title(models)) == ["full_precision", "a", "b (3)", "b (4)"]


def test_models_side_by_side_keep_their_order_and_there_is_at_least_one():
    maps = attention_maps({"full_precision": softmax_subject(), "bibert": bits_subject()}, "a film")
    assert [one.title for one in maps] == ["full_precision", "bibert"]
    assert [one.answer for one in maps] == ["positive 0.75"] * 2
    with pytest.raises(DataError, match="at least one"):
        attention_maps({}, "a film")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (("[CLS]", "a", "movie", "[SEP]"), r"token 2 .*'film'.*'movie'.*same tokenizer"),
        (("[CLS]", "[SEP]"), r"left.* 4 .*right.* 2.*at most 2 tokens"),
    ],
)
def test_models_that_read_other_tokens_are_refused_by_name(tokens, message):
    size = len(tokens)
    bits = np.zeros((2, 3, size, size), bool)
    other = subject(bits.astype(np.float32), bits, tokens=tokens)
    with pytest.raises(DataError, match=message):
        attention_maps({"left": bits_subject(), "right": other}, "a film")


def test_a_packed_file_has_the_attention_of_its_folder(student, packed_file):
    subjects = {"a folder": load_subject(student), "a file": load_subject(packed_file)}
    maps = attention_maps(subjects, ("a gorgeous, witty film", "two hours of my life"))
    assert all(one.is_bits for one in maps)
    assert set(np.unique(maps[0].weights)) == {0.0, 1.0}
    np.testing.assert_array_equal(maps[0].weights, maps[1].weights)


def test_a_full_precision_folder_shows_its_softmax(tmp_path, save_untrained):
    folder = save_untrained(tmp_path, ["a gorgeous, witty film"], scheme="full_precision")
    found = attention_map(load_subject(folder), "teacher", "a witty film")
    assert not found.is_bits
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)


def test_scores_are_counted_without_padding():
    random = np.random.default_rng(0)
    query, key = random.random((2, 2, 2, 3, 5)) < 0.5  # two texts, two heads, three tokens, five channels
    real = np.array([[True, True, True], [True, False, False]])
    nothing = np.zeros((2, 2, 3, 3), bool)
    layer = LayerInside(query, key, key, nothing.astype(np.float32), nothing, key, nothing[:, 0], dict)
    found: dict[int, int] = {}
    for text, tokens in ((0, 3), (1, 1)):
        for head in range(2):
            for i in range(tokens):
                for j in range(tokens):
                    same = int((query[text, head, i] == key[text, head, j]).sum())
                    found[2 * same - 5] = found.get(2 * same - 5, 0) + 1
    shares = score_shares([Inside(real, (layer,))])
    assert shares.shape == (1, 6)
    expected = [found.get(score, 0) / sum(found.values()) for score in range(-5, 6, 2)]
    np.testing.assert_allclose(shares[0], expected)
    np.testing.assert_allclose(score_shares([Inside(real, (layer,))] * 2), shares)

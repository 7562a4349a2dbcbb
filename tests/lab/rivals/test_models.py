"""Shapes and batches, random models that the engine accepts, and blueprints that survive the way to a child."""

from dataclasses import replace

import numpy as np
import pytest

from bibert.errors import BibertError, CheckpointError, SchemeError
from bibert.lab.rivals.alone import build_alone
from bibert.lab.rivals.engines import RIVALS
from bibert.lab.rivals.models import (
    CALIBRATION_BATCHES,
    Blueprint,
    Shape,
    random_batch,
    random_bert,
    random_packed,
    trained_bert,
)
from bibert.packed.schema import SITES
from bibert.runtime import reference

TEXTS = ["a fine film", "a bad film"]


def test_a_shape_is_read_as_it_is_written():
    assert Shape.parse("8x128") == Shape(8, 128)
    assert str(Shape(8, 128)) == "8x128"


@pytest.mark.parametrize("word", ["", "8", "x8", "8x", "0x8", "8x0", "-1x8", "8x8x8", "8X8", "8 x 8", "1e3x8", "٣x8"])
def test_any_other_shape_is_refused_with_an_example(word):
    with pytest.raises(BibertError, match="8x128"):
        Shape.parse(word)


def test_a_batch_holds_ids_of_the_vocabulary_without_padding_and_follows_its_seed():
    ids, mask = random_batch(Shape(4, 100), vocabulary=7)
    assert ids.shape == mask.shape == (4, 100)
    assert set(np.unique(ids)) == set(range(7))
    assert (mask == 1).all()
    np.testing.assert_array_equal(ids, random_batch(Shape(4, 100), 7)[0])
    assert (random_batch(Shape(4, 100), 7, seed=1)[0] != ids).any()


def test_a_random_packed_model_stays_inside_the_numeric_contract(tiny):
    config = replace(tiny, layers=12)
    logits = reference.logits(random_packed(config), *random_batch(Shape(3, 20), config.vocabulary))
    assert logits.shape == (3, 3)
    assert np.isfinite(logits).all()
    assert (logits != logits[0]).any()  # it depends on its input


def test_a_random_packed_model_may_have_every_optional_part_and_follows_its_seed(tiny):
    packed = random_packed(replace(tiny, thresholds=SITES, score_thresholds=True, ffn_levels="bool"))
    assert packed.tensor("layers.1.score_threshold").shape == (2,)
    assert packed.tensor("layers.0.ffn_hidden.threshold").shape == (48,)
    assert random_packed(tiny).digest == random_packed(tiny).digest != random_packed(tiny, seed=1).digest


def test_a_random_bert_has_the_shape_of_the_packed_model(tiny):
    bert = random_bert(tiny)
    weights = {name: tuple(tensor.shape) for name, tensor in bert.state_dict().items()}
    assert weights["bert.embeddings.word_embeddings.weight"] == (50, 32)
    assert weights["bert.embeddings.position_embeddings.weight"] == (24, 32)
    assert weights["bert.encoder.layer.1.intermediate.dense.weight"] == (48, 32)
    assert weights["classifier.weight"] == (3, 32)
    assert "bert.encoder.layer.2.output.dense.weight" not in weights
    assert bert.config.num_attention_heads == 2
    assert bert.config._attn_implementation == "sdpa"
    assert not bert.training


def test_a_shape_that_no_rival_can_have_is_refused_with_both_numbers(tiny):
    with pytest.raises(BibertError, match=r"64 channels.* needs 32"):
        random_bert(replace(tiny, heads=4))


def test_a_trained_bert_computes_the_same_as_our_own_network(save_untrained, tmp_path):
    import torch

    from bibert.nn.checkpoint import load_classifier

    folder = save_untrained(tmp_path / "model", TEXTS, hidden_act="relu", layer_norm_eps=1e-6)
    ours, theirs = load_classifier(folder).model.eval(), trained_bert(folder)
    ids, mask = map(torch.from_numpy, random_batch(Shape(3, 9), ours.config.vocab_size))
    mask[1, 5:] = 0
    with torch.inference_mode():
        wanted, found = (model(input_ids=ids, attention_mask=mask).logits for model in (ours, theirs))
    assert torch.allclose(found, wanted, atol=1e-6)  # fused attention adds in another order
    assert not theirs.training
    config = Blueprint.of_classifier(folder, []).config
    assert (config.hidden, config.layers, config.norm_eps) == (32, 2, 1e-6)


def test_a_classifier_that_is_quantized_or_missing_is_refused(save_untrained, tmp_path):
    folder = save_untrained(tmp_path / "model", TEXTS, scheme="bibert")
    with pytest.raises(SchemeError, match=r"model: .*'bibert'.* teacher"):
        trained_bert(folder)
    with pytest.raises(CheckpointError, match=r"nothing"):
        Blueprint.of_classifier(tmp_path / "nothing", [])


def test_int8_is_calibrated_with_the_given_texts_or_random_ids_of_several_lengths(tiny):
    batches = list(Blueprint(tiny, texts=((2, 7, 3), (2, 3))).calibration())
    assert [ids.tolist() for ids, _ in batches] == [[[2, 7, 3]], [[2, 3]]]
    assert [mask.tolist() for _, mask in batches] == [[[1, 1, 1]], [[1, 1]]]
    batches = list(Blueprint(tiny).calibration())
    assert len(batches) == CALIBRATION_BATCHES
    assert {ids.shape for ids, _ in batches} == {(1, 24), (1, 16), (1, 8)}  # the model takes 24 tokens
    assert all(ids.max() < tiny.vocabulary for ids, _ in batches)


@pytest.mark.parametrize("name", ["torch-fp32", "torch-int8"])
@pytest.mark.filterwarnings("ignore")
def test_a_child_builds_a_rival_with_the_weights_of_a_folder(name, save_untrained, tmp_path):
    batch, found = (np.array([[2, 5, 3]]), np.ones((1, 3), dtype=np.int64)), []
    for spread in (0.02, 0.5):
        folder = tmp_path / f"built-{spread}"
        folder.mkdir()
        weights = save_untrained(tmp_path / f"model-{spread}", TEXTS, initializer_range=spread)
        path = build_alone(name, Blueprint.of_classifier(weights, []), folder)
        found.append(RIVALS[name].load(path, 1)(*batch))
    assert np.abs(found[0] - found[1]).max() > 1e-3

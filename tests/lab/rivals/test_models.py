"""Random models have the shape that was asked for and values that the engine accepts."""

from dataclasses import replace

import numpy as np
import pytest

from bibert.errors import BibertError, SchemeError
from bibert.lab.rivals.inputs import Shape, random_batch
from bibert.lab.rivals.models import random_bert, random_packed, shape_of, trained_bert
from bibert.packed.schema import SITES
from bibert.runtime import reference


def test_a_random_packed_model_stays_inside_the_numeric_contract(tiny):
    config = replace(tiny, layers=12)
    logits = reference.logits(random_packed(config), *random_batch(Shape(3, 20), config.vocabulary))
    assert logits.shape == (3, 3)
    assert np.isfinite(logits).all()
    assert (logits != logits[0]).any()  # it does look at its input


def test_a_random_packed_model_may_have_every_optional_part(tiny):
    config = replace(tiny, thresholds=SITES, score_thresholds=True, ffn_levels="bool")
    packed = random_packed(config)
    assert packed.tensor("layers.1.score_threshold").shape == (2,)
    assert packed.tensor("layers.0.ffn_hidden.threshold").shape == (48,)


def test_the_seed_decides_the_packed_model(tiny):
    assert random_packed(tiny).digest == random_packed(tiny).digest
    assert random_packed(tiny).digest != random_packed(tiny, seed=1).digest


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


def test_a_shape_that_no_rival_can_have_is_refused_with_the_two_numbers(tiny):
    with pytest.raises(BibertError, match=r"make 64 channels.* needs 32"):
        random_bert(replace(tiny, heads=4))


def test_a_trained_bert_computes_what_our_own_network_does(save_untrained, tmp_path):
    import torch

    from bibert.nn.checkpoint import load_classifier

    folder = save_untrained(tmp_path / "model", ["a fine film", "a bad film"], hidden_act="relu", layer_norm_eps=1e-6)
    ours, theirs = load_classifier(folder).model.eval(), trained_bert(folder)
    batch = random_batch(Shape(3, 9), ours.config.vocab_size)
    ids, mask = map(torch.from_numpy, batch)
    mask[1, 5:] = 0
    with torch.inference_mode():
        wanted, found = (model(input_ids=ids, attention_mask=mask).logits for model in (ours, theirs))
    assert torch.allclose(found, wanted, atol=1e-6)  # fused attention adds in another order
    assert not theirs.training
    assert (shape_of(theirs).hidden, shape_of(theirs).layers, shape_of(theirs).norm_eps) == (32, 2, 1e-6)


def test_a_quantized_classifier_is_no_start_for_a_rival(save_untrained, tmp_path):
    folder = save_untrained(tmp_path / "model", ["a fine film"], scheme="bibert")
    with pytest.raises(SchemeError, match=r"model: is quantized by scheme 'bibert'.* give the teacher"):
        trained_bert(folder)

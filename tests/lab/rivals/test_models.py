"""Shapes, random batches, and the random BERT of the rivals."""

from dataclasses import replace

import numpy as np
import pytest

from bibert.errors import BibertError
from bibert.lab.architecture import count_parameters
from bibert.lab.rivals.engines import CALIBRATION_BATCHES, Blueprint, Shape, random_batch
from bibert.nn.packable import packed_config


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


def test_a_random_bert_has_the_shape_of_the_packed_model_or_is_refused_with_both_numbers(tiny):
    bert = Blueprint(tiny).bert()
    assert packed_config(bert.config.to_dict()) == tiny
    assert sum(weight.numel() for weight in bert.parameters()) == sum(count_parameters(tiny).values())
    assert bert.config._attn_implementation == "sdpa"
    assert not bert.training
    with pytest.raises(BibertError, match=r"64 channels.* needs 32"):
        Blueprint(replace(tiny, heads=4)).bert()


def test_int8_is_calibrated_with_random_ids_of_several_lengths(tiny):
    batches = list(Blueprint(tiny).calibration())
    assert len(batches) == CALIBRATION_BATCHES
    assert {ids.shape for ids, _ in batches} == {(1, 24), (1, 16), (1, 8)}  # the model takes 24 tokens
    assert all(ids.max() < tiny.vocabulary for ids, _ in batches)

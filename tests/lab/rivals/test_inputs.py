"""Shapes as words, and the batches every engine gets."""

import numpy as np
import pytest

from bibert.errors import BibertError
from bibert.lab.rivals.inputs import Shape, random_batch


def test_a_shape_is_read_as_it_is_written():
    assert Shape.parse("8x128") == Shape(8, 128)
    assert str(Shape(8, 128)) == "8x128"


@pytest.mark.parametrize("word", ["", "8", "x8", "8x", "0x8", "8x0", "-1x8", "8x8x8", "8X8", "8 x 8", "1e3x8", "٣x8"])
def test_anything_else_is_refused_with_an_example(word):
    with pytest.raises(BibertError, match="such as 8x128"):
        Shape.parse(word)


def test_a_batch_holds_ids_of_the_vocabulary_and_no_padding():
    ids, mask = random_batch(Shape(4, 100), vocabulary=7)
    assert ids.shape == mask.shape == (4, 100)
    assert set(np.unique(ids)) == set(range(7))
    assert (mask == 1).all()


def test_the_same_seed_gives_the_same_batch_and_another_seed_another():
    shape = Shape(2, 30)
    np.testing.assert_array_equal(random_batch(shape, 100)[0], random_batch(shape, 100)[0])
    assert (random_batch(shape, 100, seed=1)[0] != random_batch(shape, 100)[0]).any()

"""Random packed models that the engines accept."""

from dataclasses import replace

import numpy as np
from random_models import random_packed

from bibert.lab.rivals.engines import Shape, random_batch
from bibert.packed.schema import SITES, PackedConfig
from bibert.runtime import reference

SIZES = {"layers": 2, "hidden": 32, "heads": 2, "head_size": 16, "intermediate": 48}
TINY = PackedConfig(**SIZES, vocabulary=50, positions=24, token_types=2, labels=3)


def test_a_random_packed_model_stays_inside_the_numeric_contract():
    config = replace(TINY, layers=12)
    logits = reference.logits(random_packed(config), *random_batch(Shape(3, 20), config.vocabulary))
    assert logits.shape == (3, 3)
    assert np.isfinite(logits).all()
    assert (logits != logits[0]).any()  # it depends on its input


def test_a_random_packed_model_may_have_every_optional_part_and_follows_its_seed():
    packed = random_packed(replace(TINY, thresholds=SITES, score_thresholds=True, ffn_levels="bool"))
    assert packed.tensor("layers.1.score_threshold").shape == (2,)
    assert random_packed(TINY).digest == random_packed(TINY).digest != random_packed(TINY, seed=1).digest

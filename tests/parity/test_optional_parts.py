"""Optional parts of a scheme: thresholds, {0, 1} into the second FFN layer, learned scales."""

from itertools import combinations

import numpy as np
import pytest

from bibert.packed.schema import SITES
from bibert.runtime import reference

ALONE = {site: {"thresholds": (site,)} for site in SITES} | {
    "score thresholds": {"score_thresholds": True},
    "bool": {"ffn_hidden": "bool", "ffn_activation": "linear"},
    "gain per layer": {"gain": "layer"},
    "gain per row": {"gain": "row"},
}
PARTS = ALONE | {
    "all together": {"thresholds": SITES, "score_thresholds": True, **ALONE["bool"], **ALONE["gain per row"]},
    "a wider gradient window of the context": {"scaled_context": True, "thresholds": ("context",)},
}
SHAPES = [
    {"hidden_size": 100, "num_attention_heads": 4, "intermediate_size": 130},
    {"hidden_size": 312, "num_attention_heads": 12, "intermediate_size": 600},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape["hidden_size"]))
@pytest.mark.parametrize("name", PARTS)
def test_optional_parts_give_the_bits_of_the_torch_graph(name, shape, new_pair, new_batch, assert_agree):
    pair = new_pair(11, PARTS[name], **shape)
    batch = new_batch(pair, (1, 40, 65, 7), holes=True)
    assert_agree(pair, batch)


@pytest.mark.parametrize("name", ALONE)
def test_each_optional_part_changes_the_answer(name, new_pair, new_batch):
    plain, changed = new_pair(11), new_pair(11, ALONE[name])
    batch = new_batch(plain, (20, 30))
    assert not np.array_equal(reference.logits(plain.packed, **batch), reference.logits(changed.packed, **batch))


@pytest.mark.parametrize("sites", [*combinations(SITES, 2)], ids="+".join)
def test_any_two_thresholds_give_the_bits_of_the_torch_graph(sites, new_pair, new_batch, assert_agree):
    pair = new_pair(12, {"thresholds": sites}, num_hidden_layers=1, type_vocab_size=1)
    batch = new_batch(pair, (5, 17))
    assert_agree(pair, batch)

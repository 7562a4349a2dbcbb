"""A value outside the range of LayerNorm is refused by every runtime, if the result depends on it, or by none."""

import numpy as np
import pytest
import torch

from bibert.errors import NumericError
from bibert.nn.layers import LayerNorm

LENGTHS = (5, 9)
by_scheme = pytest.mark.parametrize("scheme", ["bibert", "bibert_2", "bibert_4"])


@pytest.fixture
def outcome(runtimes, assert_agree):
    """Whether a batch is answered or refused, after checking that the torch graph and all runtimes agree."""

    def find(pair, batch):
        try:
            expected = pair.expected(batch)
        except NumericError:
            for logits in runtimes(pair.packed).values():
                with pytest.raises(NumericError):
                    logits(**batch)
            return "refused"
        assert_agree(pair, batch, expected)
        return "answered"

    return find


@by_scheme
@torch.no_grad()
def test_only_the_first_token_of_the_last_block_must_be_in_range(scheme, new_pair, new_batch, outcome):
    pair, largest, found = new_pair(3, scheme=scheme), [], set()
    batch = new_batch(pair, LENGTHS)
    for module in pair.network.modules():
        if isinstance(module, LayerNorm):
            module.register_forward_pre_hook(lambda _, inputs: largest.append(float(inputs[0].abs().amax())))
    for weight in np.geomspace(50, 600, 30).tolist():
        pair.network.bert.encoder.layer[-1].attention.output.LayerNorm.weight.fill_(weight)
        largest.clear()
        found.add((outcome(pair.packed_again(), batch), max(largest) < 512))
    assert found == {("answered", True), ("answered", False), ("refused", False)}


@by_scheme
@torch.no_grad()
def test_padding_may_be_out_of_range(scheme, new_pair, new_batch, outcome):
    pair = new_pair(3, scheme=scheme)
    pair.network.bert.embeddings.position_embeddings.weight[LENGTHS[0]] = 600
    batch = new_batch(pair, LENGTHS)
    assert outcome(pair.packed_again(), {name: rows[:1] for name, rows in batch.items()}) == "answered"
    assert outcome(pair.packed_again(), batch) == "refused"  # the second text has a token there

"""A network either answers every text, with the same bits in every runtime, or cannot be packed."""

import numpy as np
import pytest
import torch

from bibert.errors import ModelFileError
from bibert.nn.layers import LayerNorm

LENGTHS = (5, 9)


@pytest.mark.parametrize("scheme", ["bibert", "bibert_2", "bibert_4"])
@torch.no_grad()
def test_all_runtimes_agree_up_to_the_end_of_the_range(scheme, new_pair, new_batch, assert_agree):
    pair, lengths, refused = new_pair(3, scheme=scheme), [], 0
    batch = new_batch(pair, LENGTHS)
    for module in pair.network.modules():
        if isinstance(module, LayerNorm):
            module.register_forward_pre_hook(lambda _, inputs: lengths.append(float(inputs[0].norm(dim=-1).amax())))
    for weight in np.geomspace(1, 2000, 30).tolist():
        pair.network.bert.encoder.layer[-1].attention.output.LayerNorm.weight.fill_(weight)
        try:
            pair = pair.packed_again()
        except ModelFileError as error:
            assert "'layers.1.output_norm'" in str(error)  # noqa: PT017
            refused += 1
            continue
        assert refused == 0  # a smaller weight was not refused
        assert_agree(pair, batch)
    assert 0 < refused < 30
    assert max(lengths) > 1500  # a bound allows for every channel at its worst at once, which no row is


@torch.no_grad()
def test_one_channel_may_take_all_of_the_range(new_pair, new_batch, assert_agree):
    pair = new_pair(3)
    pair.network.bert.embeddings.position_embeddings.weight[:, 7] = 32_000
    pair.network.bert.encoder.layer[0].output.dense.bias[3] = -32_000
    assert_agree(pair.packed_again(), new_batch(pair, LENGTHS))

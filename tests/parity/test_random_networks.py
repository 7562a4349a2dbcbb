"""The torch graph, the numpy reference and the engine give the same bits, whatever the shape of the network."""

import os

import numpy as np
import pytest

from bibert.nn.schemes import VALUES
from bibert.packed.schema import SITES
from bibert.runtime import reference

ROUNDS, SEED = int(os.environ.get("BIBERT_ROUNDS", "6")), int(os.environ.get("BIBERT_SEED", "0"))  # random shapes
DIAL = ("bibert", "bibert_2(attention_bits=2)", "bibert_2", "bibert_4(attention_bits=2)", "bibert_4")
by_scheme = pytest.mark.parametrize("scheme", DIAL)
# hidden, layers, heads, head size, intermediate: the paper's shapes, and those where a word of 64 bits ends badly
SHAPES = {
    "bert base": (768, 1, 12, 64, 3072),
    "minilm": (384, 2, 12, 32, 1536),
    "tinybert": (312, 2, 12, 26, 1200),
    "one word": (64, 3, 2, 32, 64),
    "one bit more than a word": (65, 2, 5, 13, 65),
    "heads across words": (100, 2, 4, 25, 130),
    "heads of 63": (126, 1, 2, 63, 200),
    "heads of one channel": (70, 2, 7, 1, 33),
    "heads narrower than the hidden states": (128, 2, 3, 21, 127),
    "one head of a word": (96, 2, 1, 64, 192),
    "twelve layers": (64, 12, 4, 16, 128),
}


def bert(hidden: int, layers: int, heads: int, head_size: int, intermediate: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "attention_head_size": head_size,
        "intermediate_size": intermediate,
    }


@pytest.mark.parametrize("scheme", ["bibert", "bibert_2", "bibert_4"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_runtime_gives_the_bits_of_the_torch_graph(name, scheme, new_pair, new_batch, assert_agree):
    pair = new_pair(len(name), scheme=scheme, **bert(*SHAPES[name]))
    batch = new_batch(pair, (1, 2, 9, 64, 33, 65), holes=True)
    expected = assert_agree(pair, batch)
    assert len(np.unique(expected, axis=0)) > 3  # the answer depends on the tokens


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 129, 511, 512])
@pytest.mark.parametrize("scheme", ["bibert", "bibert_2(attention_bits=2)", "bibert_4"])
def test_every_length_gives_the_bits_of_the_torch_graph(length, scheme, new_pair, new_batch, assert_agree):
    pair = new_pair(7, scheme=scheme, **bert(100, 2, 4, 25, 130))
    for holes in (False, True):
        assert_agree(pair, new_batch(pair, (length,), seed=length, holes=holes))


@by_scheme
@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_random_shapes_give_the_bits_of_the_torch_graph(seed, scheme, new_pair, new_batch, assert_agree):
    random = np.random.default_rng([seed, 1])
    heads, head_size = int(random.integers(1, 13)), int(random.choice([26, 32, 64, random.integers(1, 65)]))
    layers = int(random.choice([1, 1, 2, 3, random.integers(4, 13)]))
    hidden = int(random.integers(64, 769)) if layers < 4 else int(random.integers(64, 200))
    shape = bert(hidden, layers, heads, head_size, int(random.integers(1, 4 * hidden)))
    shape |= {"num_labels": int(random.integers(1, 6)), "type_vocab_size": int(random.integers(1, 4))}
    gain = {"gain": str(random.choice(VALUES["gain"]))}
    one_bit = {
        "thresholds": tuple(site for site in SITES if random.integers(2)),
        "score_thresholds": bool(random.integers(2)),
        **({"ffn_hidden": "bool", "ffn_activation": "linear"} if random.integers(2) else {}),
    }
    parts = gain | one_bit if scheme == "bibert" else gain
    pair = new_pair(seed, parts if random.integers(2) else {}, scheme, **shape)
    longest = int(random.choice([16, 70, 200]))
    lengths = tuple(int(length) for length in random.integers(1, longest + 1, size=random.integers(1, 6)))
    assert_agree(pair, new_batch(pair, lengths, seed, holes=bool(random.integers(2))))


def test_the_mask_and_the_token_types_may_be_left_out(new_pair, new_batch, assert_agree):
    pair = new_pair(3)
    assert_agree(pair, {"input_ids": new_batch(pair, (12, 12))["input_ids"]})


@by_scheme
def test_the_random_networks_are_not_degenerate(scheme, new_pair, new_batch):
    pair = new_pair(5, scheme=scheme, **bert(312, 4, 12, 26, 1200))
    trace = reference.trace(pair.packed, **new_batch(pair, (64,) * 4))
    for layer in trace.layers:
        for levels in (layer.query, layer.key, layer.value, layer.context, layer.ffn_hidden):
            assert 0.2 < (levels > 0).mean() < 0.8
            varies = levels.min(axis=(0, 1)) < levels.max(axis=(0, 1))
            assert varies.mean() > (0.3 if scheme == "bibert" else 0.2)
        assert ((layer.hidden == 0).mean(axis=(0, 1)) == 1).any()  # a channel that is exactly 0 in front of a sign

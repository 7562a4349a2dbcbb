"""The attention forms of the tables: which keys get which weight, with masks and with dropout."""

import math

import pytest
import torch

from bibert.nn.attention import BertAttention, BertSelfAttention, BiAttention, SoftmaxAttention
from bibert.nn.config import BiBertConfig
from bibert.nn.functional import sign
from bibert.nn.schemes import SCHEMES, baseline_quantile

LENGTHS = (9, 6, 1)
MASK = (torch.arange(9) < torch.tensor(LENGTHS)[:, None]).float()[:, None, None]
ONE_BIT = [row for row in SCHEMES.values() if row.activation == "sign"] + [baseline_quantile(30)]


def config_of(scheme):
    return BiBertConfig(hidden_size=32, num_attention_heads=4, scheme=scheme.to_dict())


def heads(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 4, 9, 8, generator=generator) for _ in range(3)]


def attend(scheme, dropout=0.0, seed=0):
    module = {"softmax": SoftmaxAttention, "none": BiAttention}[scheme.normalizer](config_of(scheme)).eval()
    return module(*heads(seed), MASK, dropout)


def by_name(schemes):
    return pytest.mark.parametrize("scheme", schemes, ids=lambda scheme: scheme.name)


@by_name([*SCHEMES.values(), baseline_quantile(30)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_masked_keys_have_weight_zero(scheme, dropout):
    torch.manual_seed(0)
    result = attend(scheme, dropout)
    assert (result.weights * (1 - MASK) == 0).all()
    assert result.weights.abs().sum() > 0
    assert torch.isfinite(result.context).all()


@by_name(ONE_BIT)
def test_one_bit_scores_are_integers_over_the_root_of_the_head_size(scheme):
    query, key, _ = heads()
    integers = sign(query) @ sign(key).transpose(-1, -2)
    assert torch.equal(attend(scheme).scores, integers / math.sqrt(8))


@by_name([SCHEMES[name] for name in ("baseline", "baseline+dmd", "attention_sign", "attention_bool")])
def test_sign_or_bool_of_a_softmax_attends_to_every_real_key(scheme):
    result = attend(scheme)
    assert torch.equal(result.weights, MASK.expand_as(result.weights))
    assert torch.equal(result.context, MASK.expand(-1, 4, 9, -1) @ sign(heads()[2]))


def expected_weights(scores):
    """The one-bit attention weights of each scheme, from the scores of one row over its real keys."""
    shares = torch.softmax(scores.double(), dim=-1)
    middle = (shares.max() + shares.min()) / 2
    order = shares.sort().values
    return {
        "bibert": (scores >= 0).double(),
        "attention_sign_max_entropy": torch.where(scores >= 0, 1.0, -1.0).double(),
        "baseline_asym": torch.where(shares >= middle, shares.max(), shares.min()),
        "baseline_mu": (shares >= 1 / len(scores) - 1e-12).double(),
        "baseline_50": (shares >= order[math.ceil((len(scores) - 1) / 2)]).double(),
        "baseline_quantile(30)": (shares >= order[math.ceil(0.3 * (len(scores) - 1))]).double(),
    }


@by_name([row for row in ONE_BIT if row.name in expected_weights(torch.zeros(3))])
def test_attention_weights_are_those_of_the_formula_over_real_keys(scheme):
    result = attend(scheme)
    for row, length in enumerate(LENGTHS):
        for scores, weights in zip(result.scores[row].flatten(0, 1), result.weights[row].flatten(0, 1), strict=True):
            expected = expected_weights(scores[:length])[scheme.name]
            assert torch.equal(weights[:length], expected.float())  # a softmax is rounded once, from float64


def test_full_precision_is_the_usual_attention():
    query, key, value = heads()
    usual = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=MASK.bool())
    torch.testing.assert_close(attend(SCHEMES["full_precision"]).context, usual, atol=1e-6, rtol=0)


def test_a_dropped_weight_of_bi_attention_is_a_masked_key():
    torch.manual_seed(1)
    whole, dropped = attend(SCHEMES["bibert"]), attend(SCHEMES["bibert"], 0.25)
    assert set(dropped.weights.unique().tolist()) == {0.0, 1.0}  # not rescaled: training sees the levels of eval mode
    assert ((whole.weights - dropped.weights) >= 0).all()
    share = dropped.weights.sum() / whole.weights.sum()
    assert 0.65 < share < 0.85
    assert torch.equal(dropped.context, dropped.weights @ sign(heads()[2]))


def test_dropout_of_attention_acts_in_training_only():
    torch.manual_seed(2)
    config = BiBertConfig(hidden_size=32, num_attention_heads=4, attention_probs_dropout_prob=0.5, scheme="bibert")
    block, hidden = BertSelfAttention(config), torch.randn(3, 9, 32)
    still = block.eval()(hidden, MASK)
    assert torch.equal(block(hidden, MASK).weights, still.weights)
    assert block.train()(hidden, MASK).weights.sum() < 0.8 * still.weights.sum()


@by_name([SCHEMES["bibert"], SCHEMES["full_precision"]])
def test_a_block_leaves_a_trace_of_named_tensors(scheme):
    torch.manual_seed(3)
    block, hidden = BertAttention(config_of(scheme)).eval(), torch.randn(3, 9, 32)
    out, trace = block(hidden, MASK)
    assert out.shape == hidden.shape
    for name in ("query", "key", "value"):
        projected = getattr(block.self, name)(hidden)
        assert torch.equal(getattr(trace, name), projected.view(3, 9, 4, 8).transpose(1, 2))
    assert (trace.scores.shape, trace.weights.shape) == ((3, 4, 9, 9), (3, 4, 9, 9))
    assert torch.equal(trace.mha, block.output.dense(trace.context))
    assert torch.equal(out, block.output.LayerNorm(trace.mha + hidden))


def test_heads_may_be_narrower_than_the_hidden_size():
    config = BiBertConfig(hidden_size=32, num_attention_heads=2, attention_head_size=8, scheme="bibert")
    out, trace = BertAttention(config).eval()(torch.randn(3, 9, 32), MASK)
    assert (out.shape, trace.context.shape) == ((3, 9, 32), (3, 9, 16))

"""Linear, embedding, LayerNorm and every form of attention: torch's names and shapes, the contract's arithmetic."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bibert.errors import NumericError
from bibert.nn.functional import binarize_rows, exact_layer_norm, sign
from bibert.nn.layers import (
    BertAttention,
    BertSelfAttention,
    BiAttention,
    BiBertConfig,
    LayerNorm,
    QuantEmbedding,
    QuantLinear,
    SoftmaxAttention,
)
from bibert.nn.products import Quantized, bi_linear
from bibert.nn.schemes import SCHEMES, baseline_quantile

EPS = 1e-12
rows = npst.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(2, 70)),
    elements=st.floats(-511, 511, width=32, allow_subnormal=False),
)


def in_numpy(x, weight, bias, eps):
    """The contract's LayerNorm once more: int64 sums on a grid of 2^-16, float64 after that, rounded once."""
    grid = np.rint(x.astype(np.float64) * 65536).astype(np.int64)
    mean = grid.sum(-1, keepdims=True).astype(np.float64) / x.shape[-1]
    square = (grid * grid).sum(-1, keepdims=True).astype(np.float64) / x.shape[-1]
    variance = np.maximum(square - mean * mean, 0.0) / 2.0**32
    inverse = 1.0 / np.sqrt(variance + eps)
    normal = (x.astype(np.float64) - mean / 65536) * inverse
    return (normal * weight.astype(np.float64) + bias.astype(np.float64)).astype(np.float32)


def affine(channels, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(1, 0.2, channels).astype(np.float32), generator.normal(0, 0.3, channels).astype(np.float32)


def run(x, weight, bias, eps=EPS):
    return exact_layer_norm(*map(torch.from_numpy, (x, weight, bias)), eps).numpy()


@given(rows)
def test_layer_norm_is_the_integer_computation_bit_for_bit(x):
    weight, bias = affine(x.shape[-1])
    assert np.array_equal(run(x, weight, bias), in_numpy(x, weight, bias, EPS))


@pytest.mark.parametrize("spread", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("channels", [32, 312, 768])
def test_layer_norm_is_close_to_the_usual_one(spread, channels):
    x = spread * torch.randn(50, channels, generator=torch.Generator().manual_seed(0)) + 0.3
    weight, bias = map(torch.from_numpy, affine(channels))
    usual = torch.nn.functional.layer_norm(x, (channels,), weight, bias, EPS)
    torch.testing.assert_close(exact_layer_norm(x, weight, bias, EPS), usual, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("value", "shown"), [(32768.0, "32768"), (-40000.5, "40000.5"), (float("inf"), "inf"), (float("nan"), "nan")]
)
def test_a_row_that_is_too_long_is_an_error_with_both_numbers(value, shown):
    x = torch.zeros(2, 4)
    x[1, 2] = value
    with pytest.raises(NumericError, match=f"LayerNorm: .*{shown}.*32768.*learning rate"):
        exact_layer_norm(x, torch.ones(4), torch.zeros(4), EPS)


@pytest.mark.parametrize("channels", [1, 4, 384, 4096])
def test_the_longest_rows_do_not_overflow(channels):
    longest = float(np.float32(32760) / np.sqrt(np.float32(channels)))
    x = np.full((1, channels), longest, np.float32)
    x[0, ::2] *= -1
    weight, bias = affine(channels)
    assert np.array_equal(run(x, weight, bias), in_numpy(x, weight, bias, EPS))
    if channels > 1:
        np.testing.assert_allclose(run(x, np.ones_like(weight), np.zeros_like(bias)), np.sign(x), rtol=1e-6)


def test_only_a_quantized_model_in_eval_mode_pays_for_exact_statistics():
    x = torch.randn(3, 16)
    exact, usual_norm = (LayerNorm(BiBertConfig(hidden_size=16, scheme=name)) for name in ("bibert", "full_precision"))
    usual = torch.nn.functional.layer_norm(x, (16,), exact.weight, exact.bias, EPS)
    assert torch.equal(exact.train()(x), usual)
    assert torch.equal(exact.eval()(x), exact_layer_norm(x, exact.weight, exact.bias, EPS))
    assert torch.equal(usual_norm.eval()(x), usual)


def test_a_linear_layer_under_sign_is_bi_linear_plus_bias_bit_for_bit():
    torch.manual_seed(2)
    layer = QuantLinear(100, 37, SCHEMES["bibert"]).eval()
    x = torch.randn(4, 5, 100)
    found = layer(x).detach()
    assert torch.equal(found, bi_linear(Quantized(sign(x)), binarize_rows(layer.weight)) + layer.bias)
    assert torch.equal(found[2, 3], layer(x[2, 3]))


def test_a_split_layer_is_the_sum_of_its_two_binary_layers():
    torch.manual_seed(3)
    layer = QuantLinear(16, 5, SCHEMES["binarybert_1-1-1"]).eval()
    torch.nn.init.normal_(layer.twin_weight)
    x = torch.randn(3, 16)
    inputs = sign(x) * x.abs().mean(-1, keepdim=True)
    weight = sum(w.abs().mean() * sign(w) for w in (layer.weight, layer.twin_weight))
    torch.testing.assert_close(layer(x), inputs @ weight.T + layer.bias)


def test_an_embedding_row_is_its_signs_times_alpha_wherever_it_stands():
    torch.manual_seed(4)
    layer = QuantEmbedding(30, 26, SCHEMES["bibert"], padding_id=0)
    ids = torch.randint(0, 30, (5, 7))
    table = binarize_rows(layer.weight)
    assert torch.equal(layer(ids), (table.levels * table.scale)[ids])
    assert torch.equal(layer(ids[2:3, 4:5])[0, 0], layer(ids)[2, 4])


def test_an_embedding_teaches_the_rows_it_looked_up_but_not_the_padding():
    torch.manual_seed(5)
    layer = QuantEmbedding(6, 8, SCHEMES["bibert"], padding_id=0)
    torch.nn.init.normal_(layer.weight, std=0.1)  # as in a BERT: all inside the window
    upstream = torch.randn(1, 3, 8)
    layer(torch.tensor([[0, 2, 5]])).backward(upstream)
    gradient = layer.weight.grad
    assert (gradient[[0, 1, 3, 4]] == 0).all()
    torch.testing.assert_close(gradient[5], upstream[0, 2] - upstream[0, 2].mean())


# ---------------------------------------------------------------------------------------------- attention

LENGTHS = (9, 6, 1)
MASK = (torch.arange(9) < torch.tensor(LENGTHS)[:, None]).float()[:, None, None]
ONE_BIT = [row for row in SCHEMES.values() if row.activation == "sign"] + [baseline_quantile(30)]


def heads(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 4, 9, 8, generator=generator) for _ in range(3)]


def attend(scheme, dropout=0.0, seed=0):
    module = SoftmaxAttention(scheme) if scheme.normalizer == "softmax" else BiAttention(scheme, 4)
    return module.eval()(*heads(seed), MASK, dropout)


def by_name(schemes):
    return pytest.mark.parametrize("scheme", schemes, ids=lambda scheme: scheme.name)


@by_name([*(row for row in SCHEMES.values() if not row.attention_bits), baseline_quantile(30)])
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
    config = BiBertConfig(hidden_size=32, num_attention_heads=4, scheme=scheme.to_dict())
    block, hidden = BertAttention(config).eval(), torch.randn(3, 9, 32)
    out, trace = block(hidden, MASK)
    assert out.shape == hidden.shape
    for name in ("query", "key", "value"):
        projected = getattr(block.self, name)(hidden)
        assert torch.equal(getattr(trace, name), projected.view(3, 9, 4, 8).transpose(1, 2))
    assert (trace.scores.shape, trace.weights.shape) == ((3, 4, 9, 9), (3, 4, 9, 9))
    assert torch.equal(trace.mha, block.output.dense(trace.context))
    assert torch.equal(out, block.output.LayerNorm(trace.mha + hidden))

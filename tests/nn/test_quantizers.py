"""Each quantizer against its definition: levels, scale, gradient, and independence of padding."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bibert.nn.functional import dequantize, sign
from bibert.nn.quantizers import (
    STATELESS,
    EmaSymmetric,
    LearnedStep,
    Scope,
    activation_quantizer,
    affine,
    asym,
    bwn,
    group_affine,
    mean_threshold,
    quantile,
    quantize_weight,
    symmetric,
    twn,
)
from bibert.nn.schemes import QUANTIZERS

MASK = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0, 0.0]])


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def probabilities(*shape, seed=0):
    return torch.softmax(2 * normal(*shape, seed=seed), dim=-1)


def gradient_of(function, x):
    x = x.clone().requires_grad_()
    upstream = normal(*x.shape, seed=9)
    function(x).levels.backward(upstream)
    return x.grad, upstream


def test_bwn_is_sign_times_mean_size_and_twn_sets_values_below_seven_tenths_of_it_to_zero():
    x = normal(3, 8)
    quantized = bwn(x, Scope(1))
    assert torch.equal(quantized.levels, sign(x))
    torch.testing.assert_close(quantized.scale, x.abs().mean(1, keepdim=True))
    x = torch.tensor([[0.1, -0.2, 1.0, -2.0, 0.5]])  # mean size 0.76, threshold 0.532
    quantized = twn(x, Scope(2))
    assert quantized.levels.tolist() == [[0, 0, 1, -1, 0]]
    assert quantized.scale.item() == pytest.approx(1.5)


def test_symmetric_levels_are_integers_and_the_largest_value_is_the_last_level():
    x = normal(5, 40)
    quantized = symmetric(x, Scope(8))
    assert torch.equal(quantized.levels, quantized.levels.round())
    assert torch.equal(quantized.levels.abs().amax(1), torch.full((5,), 127.0))
    torch.testing.assert_close(dequantize(quantized), x, atol=float(quantized.scale.max()) / 2 + 1e-6, rtol=0)


def test_padding_that_is_larger_than_every_real_value_stays_within_the_levels():
    x = torch.tensor([[0.1, -0.2, 0.3, 0.1, 2.0, -2.0]])
    quantized = symmetric(x, Scope(8, mask=MASK))
    assert quantized.scale.item() == pytest.approx(0.3 / 127)
    assert quantized.levels.abs().max() == 127


@pytest.mark.parametrize("function", [symmetric, affine])
def test_clipped_values_get_no_gradient(function):
    x = torch.tensor([[-3.0, -2.5, 0.0, 2.5, 2.6]])
    found, upstream = gradient_of(lambda v: function(v, Scope(8, clip=2.5)), x)
    assert torch.equal(found, upstream * torch.tensor([[0.0, 1.0, 1.0, 1.0, 0.0]]))
    assert dequantize(function(x, Scope(8, clip=2.5))).abs().max() <= 2.5 + 1e-6


def test_affine_levels_are_even_and_reach_from_minimum_to_maximum():
    x = normal(4, 500)
    values = affine(x, Scope(2)).levels
    for row, source in zip(values, x, strict=True):
        levels = row.unique()
        assert len(levels) == 4
        torch.testing.assert_close(levels[[0, -1]], torch.stack([source.min(), source.max()]))
        torch.testing.assert_close(levels.diff(), levels.diff()[:1].expand(3))


def test_groups_of_rows_have_ranges_of_their_own():
    weight = normal(256, 10) * torch.linspace(0.1, 1, 256)[:, None]
    levels = group_affine(weight, Scope(2)).levels
    groups = levels.view(128, -1)
    assert all(len(group.unique()) <= 4 for group in groups)
    assert len(levels.unique()) > 100
    assert levels.view(128, -1).amax(1)[-1] > levels.view(128, -1).amax(1)[0]


def test_a_weight_whose_rows_do_not_divide_by_128_is_grouped_as_finely_as_they_allow():
    levels = group_affine(normal(30, 40), Scope(2)).levels
    assert [len(row.unique()) for row in levels] == [4] * 30


def test_asym_takes_maximum_and_minimum_of_the_row():
    x = torch.tensor([[0.1, 0.5, 0.3, 0.1]])
    assert asym(x, Scope(1)).levels.tolist() == [pytest.approx([0.1, 0.5, 0.5, 0.1])]  # threshold 0.3


def test_the_mean_threshold_is_one_over_the_number_of_real_keys():
    x = torch.tensor([[0.3, 0.25, 0.24, 0.21, 0.0, 0.0]])
    assert mean_threshold(x, Scope(1, mask=MASK)).levels.tolist() == [[1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("keys", [1, 2, 3, 7, 49, 128, 511])
def test_equal_attention_reaches_its_own_mean(keys):
    x = torch.softmax(torch.zeros(1, keys, dtype=torch.float64), dim=-1).float()
    assert (mean_threshold(x, Scope(1)).levels == 1).all()


@given(st.integers(1, 200), st.floats(0.01, 0.99))
def test_a_quantile_passes_the_values_that_numpys_does(keys, share):
    x = torch.from_numpy(np.random.default_rng(keys).permutation(keys)[None].astype(np.float32))
    threshold = np.quantile(x.numpy(), share)
    clear = np.abs(x.numpy() - threshold) > 1e-6 * keys
    found = quantile(x, Scope(1), share).levels.numpy()
    assert np.array_equal(found[clear], (x.numpy() >= threshold).astype(np.float32)[clear])


@pytest.mark.parametrize("percent", range(10, 100, 10))
def test_the_share_of_zeros_is_the_quantile_over_real_keys(percent):
    x = probabilities(3, 101)
    x = torch.cat([x, torch.zeros(3, 20)], dim=1)
    mask = (torch.arange(121) < 101).float()
    levels = quantile(x, Scope(1, mask=mask), percent / 100).levels * mask
    assert (levels[:, :101] == 0).sum(1).tolist() == [percent] * 3


@pytest.mark.parametrize("function", [bwn, twn, asym, mean_threshold, partial(quantile, share=0.3)])
def test_the_gradient_of_a_quantizer_without_a_clip_passes_everywhere(function):
    for x in (5 * normal(3, 8), probabilities(3, 8)):
        found, upstream = gradient_of(lambda values: function(values, Scope(1)), x)
        assert torch.equal(found, upstream)


@pytest.mark.parametrize("name", sorted(QUANTIZERS.keys() & STATELESS.keys() - {"group_affine"}))
def test_a_scale_measured_at_run_time_does_not_depend_on_padding(name):
    quantizer = activation_quantizer(name, QUANTIZERS[name].bits[-1], 0.5 if name == "quantile" else None)
    x = probabilities(2, 4, seed=3)
    padded = torch.cat([x, torch.tensor([[5.0, -7.0], [0.0, 1e-9]])], dim=1)
    alone, wide = quantizer(x, Scope(1)), quantizer(padded, Scope(1, mask=MASK))
    torch.testing.assert_close(dequantize(wide)[:, :4], dequantize(alone))


def test_a_moving_range_is_updated_in_training_only():
    site = EmaSymmetric(8)
    site.eval()(torch.full((3,), 100.0))
    assert site.range == 4.0
    site.train()(torch.tensor([1.0, -2.0]))
    assert site.range.item() == pytest.approx(0.9999 * 4.0 + 0.0001 * 2.0)
    site.calibrating = True
    site.eval()(torch.tensor([[3.0, 9.0]]), Scope(8, mask=torch.tensor([[1.0, 0.0]])))
    assert site.range == 3.0


def test_a_moving_range_cuts_levels_and_lets_the_gradient_pass():
    site = EmaSymmetric(8).eval()
    x = torch.tensor([[-5.0, -4.0, 0.0, 1.0, 4.1]])
    quantized = site(x)
    assert quantized.levels.tolist() == [[-127, -127, 0, 32, 127]]
    found, upstream = gradient_of(site, x)
    assert torch.equal(found, upstream)


@pytest.mark.parametrize("unsigned", [False, True])
def test_a_learned_step_gets_the_gradient_of_lsq(unsigned):
    site = LearnedStep(4, unsigned=unsigned)
    low, high = (0, 15) if unsigned else (-8, 7)
    x = (3 * normal(50)).requires_grad_()
    upstream = normal(50, seed=1)
    quantized = site(x)
    quantized.levels.backward(upstream)
    step, ratio = site.step.item(), x.detach() / site.step.detach()
    assert torch.equal(quantized.levels, ratio.round().clamp(low, high))
    inside = (ratio >= low) & (ratio <= high)
    assert 0 < inside.sum() < 50
    assert torch.equal(x.grad, upstream * inside)
    slope = torch.where(inside, ratio.round() - ratio, ratio.clamp(low, high).round())
    assert site.step.grad.item() == pytest.approx((upstream * slope).sum().item() / (50 * high) ** 0.5, rel=1e-4)
    assert step > 0


def test_a_learned_step_starts_from_the_size_of_real_values():
    site = LearnedStep(4)
    site.calibrating = True
    site(torch.tensor([[1.0, -3.0, 100.0]]), Scope(4, mask=torch.tensor([[1.0, 1.0, 0.0]])))
    assert site.step.item() == pytest.approx(2 * 2.0 / 7**0.5)


@pytest.mark.parametrize(
    ("name", "bits"),
    [(name, bits) for name, row in QUANTIZERS.items() if name not in ("none", "levels") for bits in row.bits],
)
def test_a_quantizer_has_no_more_levels_than_its_bits_allow(name, bits):
    quantizer = activation_quantizer(name, bits, 0.5 if name == "quantile" else None)
    levels = quantizer(torch.linspace(-2, 2, 3000)[None], Scope(bits)).levels
    assert levels.isfinite().all()
    assert len(levels.unique()) <= 2**bits
    if len(QUANTIZERS[name].bits) == 1:
        assert len(levels.unique()) > 2 ** (bits - 1)


@pytest.mark.parametrize(
    ("name", "scales"), [("sign", (5, 1)), ("bwn", (1, 1)), ("twn", (1, 1)), ("symmetric", (1, 1))]
)
def test_a_weight_has_one_scale_per_row_or_per_tensor(name, scales):
    assert quantize_weight(name, normal(5, 8), 2).scale.shape == scales
    assert quantize_weight(name, normal(2, 5, 8), 2, dims=(-1,)).scale.shape == (2, 5, 1)

"""Sign, bool, row binarization, products and Bi-Attention against their definitions, forward and backward."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bibert.errors import NumericError
from bibert.nn import functional as fn
from bibert.nn import products
from bibert.nn.products import Quantized

BELOW, ABOVE = float(np.nextafter(np.float32(1), np.float32(0))), float(np.nextafter(np.float32(1), np.float32(2)))
# Both zeros, denormal numbers, both sides of the window, values at which GELU underflows to 0, the largest ones.
EDGES = np.array([edge * way for edge in (0.0, 1e-45, 1e-39, BELOW, 1.0, ABOVE, 6.0, 100.0, 3e38) for way in (1, -1)])
finite_floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def random_signs(*shape, seed=0):
    return fn.signs(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def gradient_of(function, x, upstream):
    x = x.clone().requires_grad_()
    function(x).backward(upstream)
    return x.grad


@given(npst.arrays(np.float32, npst.array_shapes(max_dims=3, max_side=6), elements=finite_floats))
@example(EDGES.astype(np.float32))
def test_values_and_gradients_of_sign_and_bool_follow_the_definition_everywhere(values):
    x = torch.from_numpy(values)
    upstream = torch.arange(1.0, x.numel() + 1).view(x.shape)
    assert np.array_equal(fn.sign(x).numpy(), np.where(values >= 0, 1, -1))
    assert np.array_equal(fn.bool_(x).numpy(), np.where(values >= 0, 1, 0))
    window = (np.abs(values) <= 1).astype(np.float32)
    assert torch.equal(fn.gelu_sign(x), fn.sign(x))
    for function in (fn.sign, fn.bool_):
        assert np.array_equal(gradient_of(function, x, upstream).numpy(), upstream.numpy() * window)


def test_sign_keeps_type_and_layout_of_a_transposed_tensor():
    x = torch.randn(4, 3, 5).transpose(0, 2)
    assert torch.equal(fn.sign(x), torch.where(x >= 0, 1.0, -1.0))
    assert fn.sign(x.double()).dtype == torch.float64


def test_gradient_of_gelu_sign_equals_that_of_sign_after_gelu():
    x = torch.linspace(-5, 3, 999)
    upstream = torch.randn(999)
    composed = gradient_of(lambda v: fn.sign(torch.nn.functional.gelu(v)), x, upstream)
    assert torch.equal(gradient_of(fn.gelu_sign, x, upstream), composed)


NORMAL = torch.randn(7, 33, generator=torch.Generator().manual_seed(1)) + 0.2
EDGE = torch.tensor([1.0, -1.0, 2.0, -2.0] * 8 + [0.0]).expand(7, 33)
WEIGHTS = {"inside the window": 0.05 * NORMAL, "partly outside": 1.5 * NORMAL, "on its edge": EDGE}
WEIGHTS |= {"all equal": torch.full((7, 33), -0.25)}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_rows_are_binarized_around_their_mean_and_alpha_takes_no_gradient(weight):
    quantized = fn.binarize_rows(weight)
    exact = weight.double().numpy()
    assert quantized.scale.shape == (7, 1)
    np.testing.assert_allclose(quantized.scale[:, 0].numpy(), np.abs(exact).mean(1), rtol=1e-6)
    assert np.array_equal(quantized.levels.numpy(), np.where(exact - exact.mean(1, keepdims=True) >= 0, 1, -1))
    assert not fn.binarize_rows(weight.clone().requires_grad_()).scale.requires_grad
    upstream = torch.randn(7, 33, generator=torch.Generator().manual_seed(2))
    found = gradient_of(lambda w: fn.dequantize(fn.binarize_rows(w)), weight, upstream)
    inside = ((weight - weight.mean(1, keepdim=True)).abs() <= 1).float()
    assert inside.all() == (weight.abs().max() <= 1)
    expected = inside * upstream - (inside * upstream).mean(1, keepdim=True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(1), torch.zeros(7), atol=1e-5, rtol=0)


def test_bi_linear_is_the_integer_product_then_alpha_bit_for_bit():
    generator = torch.Generator().manual_seed(3)
    x, weight = torch.randn(5, 11, 768, generator=generator), 0.05 * torch.randn(64, 768, generator=generator)
    quantized = fn.binarize_rows(weight)
    integers = np.where(x.numpy() >= 0, 1, -1) @ quantized.levels.numpy().astype(np.int64).T
    expected = integers.astype(np.float32) * quantized.scale.numpy()[:, 0]
    assert expected.dtype == np.float32
    assert np.array_equal(products.bi_linear(Quantized(fn.sign(x)), quantized).numpy(), expected)
    folded = fn.sign(x) @ fn.dequantize(quantized).T  # alpha inside the product, which the contract forbids
    assert not np.array_equal(folded.numpy(), expected)


def test_bi_linear_returns_the_gradients_of_both_operands():
    generator = torch.Generator().manual_seed(4)
    x = (1.5 * torch.randn(6, 9, generator=generator)).requires_grad_()
    weight = (0.2 * torch.randn(5, 9, generator=generator)).requires_grad_()
    upstream = torch.randn(6, 5, generator=generator)
    products.bi_linear(Quantized(fn.sign(x)), fn.binarize_rows(weight)).backward(upstream)
    alpha, signs = weight.detach().abs().mean(1), fn.binarize_rows(weight.detach()).levels
    torch.testing.assert_close(x.grad, (upstream * alpha) @ signs * (x.detach().abs() <= 1))
    of_scaled = upstream.T @ fn.sign(x.detach())
    torch.testing.assert_close(weight.grad, of_scaled - of_scaled.mean(1, keepdim=True))


def test_the_product_of_rows_is_xnor_and_popcount():
    a, b = random_signs(7, 100, seed=5), random_signs(9, 100, seed=6)
    differing = (a[:, None] != b[None]).sum(-1)
    assert torch.equal(products.rows_product(Quantized(a), Quantized(b)), (100 - 2 * differing).float())


def test_straight_through_gives_levels_forward_and_the_gradient_to_its_source():
    x, levels = torch.randn(4).requires_grad_(), torch.tensor([1.0, 2.0, 3.0, 4.0])
    out = fn.straight_through(x, levels, torch.tensor([True, False, True, False]))
    out.backward(torch.tensor([5.0, 6.0, 7.0, 8.0]))
    assert out.tolist() == levels.tolist()
    assert x.grad.tolist() == [5.0, 0.0, 7.0, 0.0]


attention_bits = st.integers(1, 12).flatmap(
    lambda keys: st.tuples(
        npst.arrays(np.int64, (4, keys), elements=st.integers(0, 1)),
        npst.arrays(np.int64, (keys, 3), elements=st.sampled_from([-1, 1])),
        npst.arrays(np.int64, (keys,), elements=st.integers(0, 1)),
    )
)


@given(attention_bits)
def test_bamm_is_its_three_integer_forms_with_masked_keys_too(case):
    attended, value, mask = case
    a = attended * mask  # a masked key is 0, stored as -1
    stored = 2 * a - 1
    shifted = (stored @ value + np.ones_like(stored) @ value) >> 1
    counted = 2 * (a[:, :, None] & (value == 1)[None]).sum(1) - a.sum(1, keepdims=True)
    found = fn.bamm(Quantized(torch.from_numpy(a).float()), Quantized(torch.from_numpy(value).float()))
    assert np.array_equal(found.numpy(), a @ value)
    assert np.array_equal(shifted, a @ value)
    assert np.array_equal(counted, a @ value)


@pytest.mark.parametrize("binarize", [fn.bool_, fn.sign])
def test_the_forward_pass_of_bi_attention_does_not_depend_on_its_scale(binarize):
    generator = torch.Generator().manual_seed(7)
    query, key, value = (torch.randn(2, 3, 9, 16, generator=generator) for _ in range(3))
    mask = torch.tensor([[1.0] * 9, [1.0] * 5 + [0.0] * 4])[:, None, None]
    found = fn.bi_attention(query, key, value, mask, binarize)
    integers = fn.sign(query) @ fn.sign(key).transpose(-1, -2)
    for scale in (1.0, 0.25, 1 / math.sqrt(26), 1e-3):
        weights = binarize(integers * scale) * mask
        assert torch.equal(found.weights, weights)
        assert torch.equal(found.context, weights @ fn.sign(value))
    assert (found.weights[1, :, :, 5:] == 0).all()


def test_the_scale_of_bi_attention_is_the_window_of_its_gradient():
    query, key = torch.ones(1, 1, 1, 16), torch.ones(1, 1, 7, 16)
    for row in range(7):
        key[0, 0, row, : row + 5] = -1  # integer scores 6, 4, 2, 0, -2, -4, -6; a quarter of them after 1/√16
    scores = fn.attention_scores(Quantized(query), Quantized(key)).requires_grad_()
    fn.bool_(scores).sum().backward()
    assert (4 * scores.detach()).flatten().tolist() == [6, 4, 2, 0, -2, -4, -6]
    assert scores.grad.flatten().tolist() == [0, 1, 1, 1, 1, 1, 0]


@given(npst.arrays(np.float32, (5,), elements=finite_floats))
def test_dequantize_multiplies_once(values):
    assume(np.all(np.abs(values) < 1e18))
    levels = torch.tensor([[-1.0, 0.0, 1.0]]).expand(5, 3)
    scale = torch.from_numpy(values)[:, None]
    assert torch.equal(fn.dequantize(Quantized(levels, scale)), levels * scale)


def test_the_gradients_of_a_product_are_computed_in_the_type_of_its_forward_pass():
    a, b = torch.randn(3, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
    upstream = torch.randn(3, 4)
    with torch.autocast("cpu", torch.float16):  # bfloat16 would be the default
        products.rows_product(Quantized(a), Quantized(b)).backward(upstream)
    assert torch.equal(a.grad, (upstream.half() @ b.detach().half()).float())
    assert torch.equal(b.grad, (upstream.T.half() @ a.detach().half()).float())


@pytest.mark.parametrize(
    ("precision", "error"), [(lambda: torch.autocast("cpu", torch.bfloat16), 2**-5), (products.in_int8, 2**-3)]
)
def test_in_fewer_bits_a_product_has_the_same_integers_and_nearly_the_same_gradients(precision, error):
    rows, weight = random_signs(7, 192), random_signs(5, 192, seed=1)
    scale, upstream = torch.rand(5, 1) + 0.5, torch.randn(7, 5)
    found = []
    for inside in (nullcontext, precision):
        a, b = rows.clone().requires_grad_(), weight.clone().requires_grad_()
        with inside():
            product = products.rows_product(Quantized(a, whole=True), Quantized(b, scale, whole=True))
        product.backward(upstream)
        found.append((product, a.grad, b.grad))
    (exact, *exact_gradients), (product, *gradients) = found
    assert torch.equal(product, exact)
    for gradient, expected in zip(gradients, exact_gradients, strict=True):
        assert gradient.dtype == torch.float32
        assert not torch.equal(gradient, expected)  # it was computed in fewer bits
        torch.testing.assert_close(gradient, expected, rtol=2**-6, atol=error)


def test_a_row_that_is_not_finite_is_not_finite_in_int8_and_a_row_of_zeros_is_zero():
    for bad in (math.nan, math.inf):
        rows = products.nearest_int8(torch.tensor([[1.0, bad], [0.0, 0.0], [3.0, -1.5]]))
        values = rows.levels * rows.scale
        assert not values[0].isfinite().all()
        torch.testing.assert_close(values[1:], torch.tensor([[0.0, 0.0], [3.0, -1.5]]), rtol=0, atol=1.5 / 127)


def test_the_exact_tanh_is_the_tanh_rounded_once():
    sizes = np.random.default_rng(7).uniform(-45, 1.3, 200_000)
    x = torch.from_numpy(np.concatenate([10.0**sizes, -(10.0**sizes), EDGES]).astype(np.float32))
    assert torch.equal(fn.exact_tanh(x), x.double().tanh().float())
    assert fn.exact_tanh(torch.tensor([math.inf, -math.inf])).tolist() == [1.0, -1.0]


def test_an_exact_linear_layer_sums_channel_by_channel_in_float64():
    x, weight = torch.tensor([[1.0, 2.0**60, -(2.0**60), 3.0]]), torch.ones(2, 4)
    assert fn.exact_linear(x, weight, torch.tensor([0.0, 0.5])).tolist() == [[3.0, 3.5]]  # 1 is lost, 3 is not
    with pytest.raises(NumericError, match="logit"):
        fn.exact_linear(x, weight, torch.tensor([0.0, math.inf]))

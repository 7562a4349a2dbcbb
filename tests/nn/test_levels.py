"""Levels of 2 and 4 bits: the rule and its gradient, and attention whose eval mode has integers only."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from bibert.errors import SchemeError
from bibert.nn.levels import LevelAttention, Levels, weight_distances
from bibert.nn.products import Quantized
from bibert.nn.schemes import get_scheme

BITS = (2, 4)
by_bits = pytest.mark.parametrize("bits", BITS)
by_sign = pytest.mark.parametrize("signed", [True, False])


def site(bits: int, signed: bool, step: float = 0.25, channels: int = 6) -> Levels:
    made = Levels(channels, bits, signed=signed)
    with torch.no_grad():
        made.step.fill_(step)
        made.threshold.copy_(torch.linspace(-0.3, 0.3, channels))
    return made


@by_bits
@by_sign
def test_a_value_gets_the_nearest_level_of_its_site(bits, signed):
    made, top = site(bits, signed), 2**bits - 1
    levels = torch.arange(-top, top + 1, 2) if signed else torch.arange(top + 1)
    x = torch.randn(500, 6, generator=torch.Generator().manual_seed(0)) * 2
    centred = (x - made.threshold.detach()) / 0.25
    nearest = levels[(centred[..., None] - levels).abs().argmin(dim=-1)]
    assert torch.equal(made(x).levels, nearest.to(x.dtype))
    assert made(x).scale.item() == 0.25


@by_bits
def test_a_signed_site_has_no_level_at_zero_and_both_zeros_count_as_positive(bits):
    made = Levels(1, bits)
    x = torch.tensor([[0.0], [-0.0], [-1e-3], [1e9], [-1e9]])
    top = 2**bits - 1
    assert made(x).levels.flatten().tolist() == [1, 1, -1, top, -top]


@by_bits
@by_sign
def test_the_gradient_passes_inside_the_range_and_the_step_gets_that_of_lsq(bits, signed):
    made, top = site(bits, signed), 2**bits - 1
    x = (torch.randn(40, 6, generator=torch.Generator().manual_seed(1)) * 3).requires_grad_()
    upstream = torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
    (made(x).levels * upstream).sum().backward()
    centred = (x - made.threshold).detach() / 0.25
    inside = (centred.abs() < top + 1) if signed else (centred > -0.5) & (centred < top + 0.5)
    assert 0 < inside.sum() < inside.numel()
    assert torch.equal(x.grad, upstream * inside)
    assert torch.allclose(made.threshold.grad, -(upstream * inside).sum(0), atol=1e-5)
    slope = made(x).levels.detach() - centred * inside
    expected = (upstream * slope).sum() / math.sqrt(x.numel() * top)
    assert made.step.grad.item() == pytest.approx(expected.item(), rel=1e-4)


@by_bits
def test_calibration_starts_from_the_size_of_the_values(bits):
    made = Levels(2, bits)
    made.calibrating = True
    made(torch.tensor([[1.0, -3.0]]))
    assert made.step.item() == pytest.approx(2 * made.start)


@by_bits
@pytest.mark.parametrize("scale", [1e-9, 0.003, 0.05, 2.0])
def test_the_limits_of_a_weight_are_those_of_a_rounded_exponential(bits, scale):
    top = 2**bits - 1
    limits = weight_distances(scale, bits, head_size=8)
    farthest = 8 * top**2
    assert all(near >= far >= 0 for near, far in pairwise(limits))
    for distance in {0, 1, 2, farthest, *limits, *(min(limit + 1, farthest) for limit in limits)}:
        weight = math.floor(top * math.exp(-2 * scale * distance) + 0.5)
        assert sum(distance <= limit for limit in limits) == weight


def heads(bits: int, seed: int) -> tuple[Quantized, ...]:
    random = torch.Generator().manual_seed(seed)
    levels = [torch.randint(0, 2**bits, (2, 3, 9, 8), generator=random) * 2.0 - (2**bits - 1) for _ in range(3)]
    return tuple(Quantized(level.requires_grad_(), torch.full((1, 1, 1, 1), 0.1)) for level in levels)


MASK = torch.ones(2, 1, 1, 9)
MASK[1, ..., 5:] = 0


@by_bits
def test_training_and_eval_mode_attend_alike(bits):
    attention = LevelAttention(bits)
    trained, exact = (attention.train(mode)(*heads(bits, 0), MASK, 0.0) for mode in (True, False))
    assert torch.allclose(trained.weights, exact.weights, atol=1e-6)
    assert torch.allclose(trained.context, exact.context, atol=1e-5)
    assert torch.allclose(trained.scores, exact.scores, atol=1e-5)
    assert (exact.weights * (1 - MASK) == 0).all()
    assert torch.allclose(exact.weights.sum(-1), torch.ones(2, 3, 9))


@pytest.mark.parametrize("step", [0.1, 0.3, 1 / 3, 0.0217, 7e-5])
def test_the_context_is_an_integer_times_one_rounded_quotient(step):
    query, key, value = heads(4, 3)
    exact = LevelAttention(4).eval()(query, key, value._replace(scale=torch.full((1, 1, 1, 1), step)), MASK, 0.0)
    weights = (exact.weights * 15 / exact.weights.amax(dim=-1, keepdim=True)).round().detach().numpy()
    sums = (weights @ value.levels.detach().numpy()).astype(np.float32)
    quotients = np.float32(step) / weights.sum(axis=-1, keepdims=True, dtype=np.float32)
    assert np.array_equal(exact.context.detach().numpy(), sums * quotients)


def test_the_gradient_of_attention_is_that_of_softmax():
    query, key, value = heads(4, 1)
    LevelAttention(4).train()(query, key, value, MASK, 0.0).scores.sum().backward()
    through_scores = query.levels.grad.clone()
    query.levels.grad = None
    result = LevelAttention(4).train()(query, key, value, MASK, 0.0)
    upstream = torch.randn_like(result.weights)
    (result.weights * upstream).sum().backward()
    soft = [part.levels.detach().requires_grad_() for part in (query, key)]
    scores = (0.1 * soft[0]) @ (0.1 * soft[1]).transpose(-1, -2) / math.sqrt(8)
    (torch.softmax(scores.masked_fill(MASK == 0, -1e30), -1) * upstream).sum().backward()
    assert torch.allclose(query.levels.grad * 0.1, soft[0].grad, atol=1e-5)
    assert through_scores.abs().sum() > 0


@pytest.mark.parametrize(
    "changes",
    [
        "attention_bits=0",
        "attention=lsq_unsigned",
        "ffn_activation=gelu",
        "ffn_hidden=twn",
        "activation=twn",
        "thresholds=query",
    ],
)
def test_levels_are_for_all_activations_or_none(changes):
    with pytest.raises(SchemeError, match=r"levels|attention_bits"):
        get_scheme(f"bibert_2({changes})")

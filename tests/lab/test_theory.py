"""The paper's theorems: closed forms against simulation, and against what the paper prints."""

import math

import numpy as np
import pytest

from bibert.lab import theory
from bibert.lab.paper import DIRECTION_ERROR, DIRECTION_ERROR_SAMPLES, QUANTILES


def test_entropy_is_that_of_the_quantile_sweep():
    for row in QUANTILES.rows:
        share = float(row.scheme.removeprefix("baseline_quantile(").removesuffix(")")) / 100
        assert f"{theory.binary_entropy(share):.2f}" == str(row.entropy)
    assert theory.binary_entropy(0.0) == theory.binary_entropy(1.0) == 0.0
    assert math.copysign(1, theory.binary_entropy(0.0)) == math.copysign(1, theory.binary_entropy(1.0)) == 1
    assert theory.binary_entropy(0.5) == 1.0


def test_a_sign_has_most_entropy_at_mean_zero():
    entropies = [theory.sign_entropy(mean, 2.0) for mean in (0.0, 0.1, -0.5, 1.0, -4.0, 20.0)]
    assert entropies[0] == 1.0
    assert entropies == sorted(entropies, reverse=True)
    assert theory.sign_entropy(1.0, 2.0) == theory.sign_entropy(-1.0, 2.0)


def test_the_best_threshold_of_a_softmax_falls_with_its_length():
    results = theory.softmax_thresholds((2, 8, 32, 128, 512), rows=2000)
    thresholds = [result["threshold"] for result in results]
    assert thresholds == sorted(thresholds, reverse=True)
    assert all(result["entropy"] == pytest.approx(1.0, abs=1e-4) for result in results)
    assert results[-1]["entropy_of_first"] < 0.01  # the threshold of two keys lets nothing through among 512
    assert 512 * results[-1]["threshold"] == pytest.approx(math.exp(-0.5), rel=0.02)


def test_no_threshold_on_a_grid_has_more_entropy_than_the_median():
    (result,) = theory.softmax_thresholds((16,), rows=500)
    weights = theory._softmax(theory._score_samples(16, 500, 0))
    grid = np.linspace(weights.min(), weights.max(), 1000)
    assert max(theory.binary_entropy(float(np.mean(weights >= tau))) for tau in grid) <= result["entropy"]


@pytest.mark.parametrize("size", [1, 2, 26, 32, 64])
def test_scores_of_random_bits_are_binomial(size):
    probabilities = theory.score_probabilities(size)
    scores = np.arange(-size, size + 1, 2)
    assert probabilities.sum() == pytest.approx(1.0)
    assert (probabilities * scores).sum() == pytest.approx(0.0, abs=1e-12)
    assert (probabilities * scores**2).sum() == pytest.approx(size)  # the variance of N(0, D)
    bits = np.random.default_rng(0).choice([-1, 1], size=(2, 20_000, size))
    seen = np.bincount(((bits[0] * bits[1]).sum(axis=1) + size) // 2, minlength=size + 1) / 20_000
    assert np.abs(seen - probabilities).max() < 0.02


def test_the_gaussian_comes_closer_with_the_size_of_a_head():
    gaps = [
        np.abs(theory.gaussian_probabilities(size) - theory.score_probabilities(size)).sum() / 2
        for size in (4, 16, 64, 256)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-2] < 0.005


def test_a_score_of_zero_makes_bi_attention_attend_to_more_than_half():
    shares = {bits: theory.share_attended_to(theory.score_probabilities(bits)) for bits in (25, 64)}
    assert shares[64] == pytest.approx(0.5 + math.comb(64, 32) / 2**65)
    assert shares[64] == pytest.approx(0.5497, abs=1e-4)
    assert shares[25] == pytest.approx(0.5)  # an odd number of bits has no score 0


@pytest.mark.parametrize("bits", range(1, 9))
def test_simulation_and_the_papers_table_lie_within_the_sampling_error_of_the_direction_error(bits):
    exact, samples = theory.direction_error(bits), 400_000
    counted, printed = theory.simulated_direction_error(bits, samples), DIRECTION_ERROR[bits - 1] / 100
    assert counted == pytest.approx(exact, abs=4 * theory.sampling_error(exact, samples))
    assert printed == pytest.approx(exact, abs=2 * theory.sampling_error(exact, DIRECTION_ERROR_SAMPLES))


def test_fewer_bits_turn_more_directions_and_saturation_is_left_over():
    errors = [theory.direction_error(bits) for bits in range(1, 13)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(theory.clipping_error(), rel=0.01)
    assert [round(100 * error, 2) for error in errors[:8]] == [14.17, 6.47, 4.21, 3.31, 2.9, 2.71, 2.61, 2.56]


def test_the_best_limit_of_one_bit_is_the_quartile():
    best = theory.STANDARD.inv_cdf(0.75)
    assert theory.direction_error(1, best) == pytest.approx(0.125)
    assert all(theory.direction_error(1, limit) > 0.125 for limit in (0.5, best - 0.01, best + 0.01, 1.0, 2.0))


def test_a_threshold_of_the_softmax_is_a_threshold_of_the_scores_another_one_in_every_row():
    short, long = theory.softmax_shifts([8, 512], rows=400)
    assert (short["bits_unequal"], long["bits_unequal"]) == (0, 0)
    assert short["entropy"] == pytest.approx(1, abs=1e-6)
    assert long["entropy_at_0"] == pytest.approx(1, abs=1e-3)  # Bi-Attention keeps the entropy,
    assert short["percent_unequal_at_0"] > 5 * long["percent_unequal_at_0"] > 0  # not the bits of short rows
    assert short["deviation_of_phi"] > 5 * long["deviation_of_phi"]
    assert long["mean_phi"] == pytest.approx(0, abs=0.02)

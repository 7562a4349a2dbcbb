"""The paper's statements about bits and directions, computed: by simulation, and exactly where a closed form exists.

`statements` sets all of them beside the figures that the paper prints; paper.toml says what each is about.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.lab.paper import DIRECTION_ERROR, DIRECTION_ERROR_SAMPLES, QUANTILES, zeros_percent

STANDARD = NormalDist()
CHUNK = 1 << 20  # numbers drawn at a time: memory does not grow with the number of samples
KEYS = (8, 16, 32, 64, 128, 256, 512)
HEAD_SIZES = (26, 32, 64)  # TinyBERT-4L, MiniLM, BERT-base
MEANS = (0.0, 0.25, 0.5, 1.0, 2.0)

Floats = NDArray[np.float64]
Statements = dict[str, list[dict[str, Any]]]


def statements(shares: Mapping[str, Floats], samples: int, rows: int, seed: int) -> Statements:
    """Every statement as a table of named values; `shares` are the scores of trained models, (layers, D + 1) each."""
    random = {("random bits", size): score_probabilities(size) for size in HEAD_SIZES}
    trained = {(title, table.shape[1] - 1): table.mean(axis=0) for title, table in shares.items()}
    thresholds = softmax_thresholds(KEYS, rows, seed)
    return {
        "theorem_1": [line | {"keys_times_threshold": line["keys"] * line["threshold"]} for line in thresholds],
        "theorem_2": [_scores(title, size, table) for (title, size), table in (random | trained).items()],
        "theorem_3": [_direction(bits, samples, seed) for bits in range(1, len(DIRECTION_ERROR) + 1)],
        "proposition_2": softmax_shifts(KEYS, rows, seed),
        "proposition_1": [{"mean_in_deviations": mean, "entropy": sign_entropy(mean)} for mean in MEANS],
        "quantiles": [
            {
                "zeros_percent": zeros_percent(row),
                "entropy": binary_entropy(zeros_percent(row) / 100),
                "paper": float(row.entropy or 0),
            }
            for row in QUANTILES.rows
        ],
    }


def _scores(title: str, size: int, probabilities: Floats) -> dict[str, Any]:
    normal = gaussian_probabilities(size)
    return {
        "scores_of": title,
        "head_size": size,
        "probability_of_0": float(probabilities[size // 2]) if size % 2 == 0 else 0.0,
        "gaussian_at_0": float(normal[size // 2]),
        "distance_to_gaussian": float(abs(probabilities - normal).sum() / 2),
        "share_of_0_or_more": share_attended_to(probabilities),
    }


def _direction(bits: int, samples: int, seed: int) -> dict[str, Any]:
    exact, printed = direction_error(bits), DIRECTION_ERROR[bits - 1]
    deviation = 100 * sampling_error(exact, DIRECTION_ERROR_SAMPLES)
    return {
        "bits": bits,
        "exact": 100 * exact,
        "simulated": 100 * simulated_direction_error(bits, samples, seed=seed),
        "paper": printed,
        "papers_deviations_from_exact": (printed - 100 * exact) / deviation,
        "of_it_saturation": 100 * clipping_error(),
    }


def binary_entropy(probability: float) -> float:
    """The entropy of a bit that is 1 with this probability, in bits (the paper's definition of H, with log2)."""
    return sum(-p * math.log2(p) for p in (probability, 1 - probability) if 0 < p < 1)  # an empty sum is +0


def sign_entropy(mean: float, deviation: float = 1.0) -> float:
    """The entropy of sign(X) for a normal X: 1 at mean 0, less elsewhere (Proposition 1)."""
    return binary_entropy(STANDARD.cdf(mean / deviation))


def softmax_thresholds(lengths: Sequence[int], rows: int, seed: int = 0) -> list[dict[str, Any]]:
    """Theorem 1 by simulation: the threshold τ with the most entropy of sign(softmax(A) - τ), for normal rows A.

    It is the median of the softmax. `entropy_of_first` is the entropy at the threshold of the first length: a fixed τ
    loses entropy. For long rows k · τ approaches exp(-1/2), because the sum of a row approaches k times its mean.
    """
    results: list[dict[str, Any]] = []
    for keys in lengths:
        weights = _softmax(_score_samples(keys, rows, seed))
        threshold = float(np.median(weights))
        first = results[0]["threshold"] if results else threshold
        best, fixed = (binary_entropy(float(np.mean(weights >= tau))) for tau in (threshold, first))
        results.append({"keys": keys, "threshold": threshold, "entropy": best, "entropy_of_first": fixed})
    return results


def softmax_shifts(lengths: Sequence[int], rows: int, seed: int = 0) -> list[dict[str, Any]]:
    """Proposition 2 by simulation: sign(softmax(A) - τ) = sign(A - φ), and what becomes of φ = 0 (Bi-Attention).

    softmax(a) ≥ τ is a ≥ φ with φ(τ, A) = ln τ + logsumexp(A): each row has a φ of its own. At the τ of Theorem 1 the
    φ of long rows approach 0, the median of the scores. `bits_unequal` counts bits in which both sides differ, all of
    them scores within a rounding of φ; `percent_unequal_at_0` the bits that one φ = 0 for all rows changes.
    """
    results = []
    for keys in lengths:
        scores = _score_samples(keys, rows, seed)
        weights = _softmax(scores)
        threshold = float(np.median(weights))
        phi = math.log(threshold) + np.log(np.exp(scores).sum(axis=1, keepdims=True))
        bits, shifted, fixed = weights >= threshold, scores >= phi, scores >= 0
        unequal = (bits != shifted) & ~np.isclose(scores, phi, rtol=0, atol=1e-12)
        results.append(
            {
                "keys": keys,
                "threshold": threshold,
                "mean_phi": float(phi.mean()),
                "deviation_of_phi": float(phi.std()),
                "bits_unequal": int(np.count_nonzero(unequal)),
                "entropy": binary_entropy(float(np.mean(shifted))),
                "entropy_at_0": binary_entropy(float(np.mean(fixed))),
                "percent_unequal_at_0": 100 * float(np.mean(bits != fixed)),
            }
        )
    return results


def _score_samples(keys: int, rows: int, seed: int) -> Floats:
    return np.random.default_rng([seed, keys]).normal(size=(rows, keys))


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def score_probabilities(size: int) -> Floats:
    """Theorem 2: the probabilities of the scores -D, -D + 2, ..., D of two rows of D random bits, C(D, i) / 2^D."""
    return np.array([math.comb(size, ones) / 2**size for ones in range(size + 1)])


def gaussian_probabilities(size: int) -> Floats:
    """The Gaussian N(0, D) that Theorem 2 approaches, as probabilities of the same scores, two apart."""
    scores = np.arange(-size, size + 1, 2)
    return np.asarray(2 * np.exp(-(scores**2) / (2 * size)) / math.sqrt(2 * math.pi * size))


def share_attended_to(probabilities: Floats) -> float:
    """P(score ≥ 0), which Bi-Attention attends to; more than half for random bits, since 0 counts."""
    return float(probabilities[len(probabilities) // 2 :].sum())


def quantization_edges(bits: int, limit: float = 1.0) -> tuple[list[float], list[float]]:
    """The 2^Q levels from -limit to limit and the thresholds between them, as in Theorem 3's table."""
    step = 2 * limit / (2**bits - 1)
    levels = [-limit + step * index for index in range(2**bits)]
    return levels, [(low + high) / 2 for low, high in pairwise(levels)]


def direction_error(bits: int, limit: float = 1.0) -> float:
    """Theorem 3, exactly: P(sign(X - X_T) ≠ sign(quantize(X) - X_T)) for two independent standard normals.

    Given X the probability is |Φ(X) - Φ(q(X))|. Between two neighbours of all levels and thresholds q is constant and
    Φ(q) is the value at one of the two ends, so the mean over X is half the square of the step of Φ; summed over
    the steps, with the two tails: ½ Σ (Φ(e_{i+1}) - Φ(e_i))².
    """
    levels, thresholds = quantization_edges(bits, limit)
    values = [0.0, *(STANDARD.cdf(edge) for edge in sorted([*levels, *thresholds])), 1.0]
    return sum((high - low) ** 2 for low, high in pairwise(values)) / 2


def simulated_direction_error(bits: int, samples: int, limit: float = 1.0, seed: int = 0) -> float:
    """Theorem 3 by Monte-Carlo, as in the paper, whose table has 10,000 samples."""
    levels, thresholds = quantization_edges(bits, limit)
    random, wrong = np.random.default_rng([seed, bits]), 0
    for start in range(0, samples, CHUNK):
        x, teacher = random.normal(size=(2, min(CHUNK, samples - start)))
        quantized = np.array(levels)[np.searchsorted(thresholds, x, side="right")]
        wrong += int(np.count_nonzero((x >= teacher) != (quantized >= teacher)))
    return wrong / samples


def clipping_error(limit: float = 1.0) -> float:
    """The direction error that remains with infinitely many bits: saturation outside ±limit, (1 - Φ(limit))²."""
    return (1 - STANDARD.cdf(limit)) ** 2


def sampling_error(probability: float, samples: int) -> float:
    """The standard deviation of a share counted in `samples` samples."""
    return math.sqrt(probability * (1 - probability) / samples)

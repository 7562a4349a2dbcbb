"""Attention maps that need no model, and the scripts of benchmarks/ by name."""

import sys
from pathlib import Path

import numpy as np
import pytest

from bibert.lab.attention import AttentionMap

# With import mode `importlib` tests cannot import their neighbours by name.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="session")
def make_maps():
    """A function from tokens to the maps of a float model, of one whose bits are all 1, and of one with bits."""

    def make(tokens, layers=2, heads=3):
        shape = (layers, heads, len(tokens), len(tokens))
        random = np.random.default_rng(0)
        scores = np.exp(2 * random.standard_normal(shape)).astype(np.float32)
        bits = random.integers(0, 2, shape).astype(np.float32)
        return (
            AttentionMap("full_precision", "full_precision", tokens, scores / scores.sum(-1, keepdims=True), False),
            AttentionMap("baseline", "baseline", tokens, np.ones(shape, np.float32), True),
            AttentionMap("bibert", "bibert", tokens, bits, True),
        )

    return make

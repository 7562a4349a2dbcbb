"""A real browser for the tests of pages, attention maps that need no model, and the scripts of benchmarks/ by name."""

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from bibert.lab.attention import AttentionMap

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def _load_client():
    """The module beside this file; with import mode `importlib` tests cannot import their neighbours by name."""
    spec = importlib.util.spec_from_file_location("chromium", Path(__file__).with_name("chromium.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium; `browser.open(path)` gives a page, see chromium.py."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"put one of {', '.join(PROGRAMS)} on the PATH to run this")
    chromium = _load_client().Chromium(program, tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


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

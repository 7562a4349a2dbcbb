"""Small valid models with random values, of any shape, and the reader of the npm package."""

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import strategies as st

from bibert.packed.file import PackedModel
from bibert.packed.schema import DIAL, FFN_LEVELS, SITES, PackedConfig

# Every optional part, and no row that fills its last word.
SIZES = {"layers": 1, "hidden": 20, "heads": 2, "head_size": 10, "intermediate": 33, "vocabulary": 12, "positions": 8}
PARTS = {"thresholds": ("query", "context", "pooler_input"), "score_thresholds": True, "ffn_levels": "bool"}
SMALL = PackedConfig(**SIZES, token_types=2, labels=2, **PARTS)
LEVELS = {"thresholds": (), "score_thresholds": False, "ffn_levels": "bool"}  # what more than one bit goes with
TOKENIZER = b'{"version":"1.0"}'


@pytest.fixture(scope="session")
def make_model(tensors_of):
    """A function that makes a model; what it is not given is small and random."""

    def make(config=SMALL, seed=0, tokenizer=TOKENIZER, about=None, **changes):
        config = dataclasses.replace(config, **changes)
        labels = [f"label {number}" for number in range(config.labels)]
        tensors = tensors_of(config, seed)
        return PackedModel.from_tensors(config, labels, config.positions, tensors, tokenizer, about or {"seed": seed})

    return make


@pytest.fixture(scope="session")
def make_levels(make_model):
    """The same for a model with 2-bit activations and 4-bit attention."""
    return lambda **changes: make_model(**LEVELS | {"activation_bits": 2, "attention_bits": 4} | changes)


@pytest.fixture(scope="session")
def small_configs():
    """A hypothesis strategy: configs of every kind, with few channels so that files stay small."""
    one_bit = st.builds(
        PackedConfig,
        layers=st.integers(1, 3),
        hidden=st.integers(1, 130),
        heads=st.integers(1, 4),
        head_size=st.integers(1, 64),
        intermediate=st.integers(1, 130),
        vocabulary=st.integers(1, 70),
        positions=st.integers(1, 20),
        token_types=st.integers(1, 3),
        labels=st.integers(1, 5),
        norm_eps=st.floats(1e-12, 1.0),
        thresholds=st.sets(st.sampled_from(SITES)).map(lambda some: tuple(site for site in SITES if site in some)),
        score_thresholds=st.booleans(),
        ffn_levels=st.sampled_from(FFN_LEVELS),
    )
    bits = st.fixed_dictionaries(dict.fromkeys(("activation_bits", "attention_bits"), st.sampled_from(DIAL)))
    return one_bit | st.builds(lambda config, bits: dataclasses.replace(config, **LEVELS, **bits), one_bit, bits)


@pytest.fixture
def check_in_javascript(tmp_path):
    """A function that checks that the npm package reads good files and refuses bad ones with the messages of Python."""
    js, node = Path(__file__).parents[2] / "js", shutil.which("node")
    if node is None or not (js / "dist" / "file.js").exists():
        pytest.skip("needs node, and js/dist from make wasm")

    def check(good, bad, tokenizers=()):
        listed = [{"file": str(path), "message": message} for path, message in bad.items()]
        files = tmp_path / "files.json"
        files.write_text(json.dumps({"good": list(map(str, good)), "bad": listed, "tokenizers": tokenizers}))
        command = [node, "--test", js / "test" / "bad_files.test.mjs"]
        environment = os.environ | {"BIBERT_FILES": str(files)}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert run.returncode == 0, run.stdout
        assert "# skipped 0" in run.stdout

    return check

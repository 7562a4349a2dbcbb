"""The npm package in Node: the tests in js/test, and the same tokens and bits as in Python.

Needs node, and js/dist and js/bibert.wasm from `make wasm`. benchmarks/browser/parity.py compares more texts, and runs
them in Chromium too.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bibert
from bibert.models import find_file
from bibert.packed.file import load
from bibert.runtime import reference

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None or not all((ROOT / "js" / name).exists() for name in ("bibert.wasm", "dist/index.js")),
    reason="needs node, and js/dist and js/bibert.wasm from make wasm",
)


def test_the_tests_of_the_package_pass():
    command = [NODE, "--test", ROOT / "js" / "test"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_python_and_javascript_give_the_same_tokens_and_bits():
    script = ROOT / "benchmarks" / "browser" / "parity.py"
    command = [sys.executable, script, "sst2", "2", "sentiment_4", "--count", "60"]
    run = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count('"different_tokens": 0, "different_logits": 0') == 3


@pytest.mark.parametrize("name", ["sst2", "sentiment_4"])
def test_attention_weights_are_those_of_the_reference(name):
    script = f"process.stdout.write((await (await import('{ROOT}/js/dist/index.js')).load('{find_file(name)}'))"
    script += ".attention('not a gorgeous, witty film').weights)"
    found = subprocess.run([NODE, "--input-type=module", "-e", script], stdout=subprocess.PIPE, check=True).stdout
    ids = bibert.load(name).encoder.encode(["not a gorgeous, witty film"])[0].ids
    layers = reference.trace(load(find_file(name)), ids[None]).layers
    assert found == b"".join(layer.attention[0].astype("u1").tobytes() for layer in layers)


def test_the_tables_of_the_tokenizer_are_those_of_the_library_in_python():
    spec = importlib.util.spec_from_file_location("make_unicode", ROOT / "js" / "make_unicode.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text("utf-8") == module.contents()

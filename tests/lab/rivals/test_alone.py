"""The child process: its answers, its last words, and what libraries print on the way."""

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from bibert.lab.rivals.alone import ChildError, build_alone, peak_memory_alone
from bibert.lab.rivals.engines import OURS, Blueprint, Shape


def test_the_memory_of_our_engine_is_that_of_a_process_without_torch(tiny, tiny_file):
    held = bytearray(400_000_000)
    held[::4096] = b"x" * len(held[::4096])  # what this process has must not count
    peak = peak_memory_alone(OURS, tiny_file, 1, Shape(2, 8), tiny.vocabulary)
    assert 10_000_000 < peak < 120_000_000


def test_the_last_words_of_a_child_are_the_message(tiny, tmp_path):
    with pytest.raises(ChildError, match=r"ModelFileError: .*missing\.bibert: no such file"):
        peak_memory_alone(OURS, tmp_path / "missing.bibert", 1, Shape(2, 8), tiny.vocabulary)


def test_a_shape_that_a_rival_cannot_have_is_its_own_failure(tiny, tmp_path):
    with pytest.raises(ChildError, match="64 channels"):
        build_alone("torch-fp32", Blueprint(replace(tiny, heads=4)), tmp_path)


def test_a_child_that_dies_without_a_word_is_named_by_its_code(monkeypatch, tiny, tmp_path):
    silent = subprocess.CompletedProcess([], -9, stdout=b"", stderr=b"\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: silent)
    with pytest.raises(ChildError, match="ended with code -9"):
        build_alone("torch-fp32", Blueprint(tiny), tmp_path)


def test_what_a_library_prints_does_not_spoil_the_answer(tmp_path):
    code = (
        "from bibert.lab.rivals import alone\n"
        "from types import SimpleNamespace\n"
        "def noisy(*_): print('noise', flush=True); return {'answer': 42}\n"
        "alone.RIVALS = {'a': SimpleNamespace(build=noisy)}\n"
        "alone._answer()"
    )
    task = pickle.dumps(("build", "a", None, tmp_path))
    done = subprocess.run([sys.executable, "-c", code], input=task, capture_output=True, check=True, timeout=60)
    assert pickle.loads(done.stdout) == {"answer": 42}
    assert done.stderr == b"noise\n"

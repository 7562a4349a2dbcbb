"""The native tests with few rounds: kernels and models of every instruction set, bad input, threads, lack of memory.

`make test-native` runs them with more rounds, `make test-sanitizers` with sanitizers.
"""

import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "native" / "tests"
ROUNDS = {
    "api_test": (),
    "kernels_test": ("20",),
    "levels_test": ("20",),
    "memory_test": (),
    "model_test": ("12",),
    "reader_test": (),
    "threads_test": ("1000",),
}


def test_every_native_test_is_run():
    assert sorted(ROUNDS) == sorted(path.stem for path in SOURCES.glob("*_test.cpp"))


@pytest.mark.slow  # the first one builds them all
@pytest.mark.parametrize("name", ROUNDS)
def test_a_native_test_passes(name, native_build):
    done = subprocess.run(
        [native_build / "native" / "tests" / name, *ROUNDS[name]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout

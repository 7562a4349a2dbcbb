"""The native tests with few rounds: kernels and models of every instruction set, bad input, threads, lack of memory.

`make test-native` runs them with more rounds, `make test-sanitizers` with sanitizers.
"""

import importlib.util
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


@pytest.mark.slow
def test_the_native_tests_pass_on_webassembly(build, tool):
    node, zig = tool("node"), importlib.util.find_spec("ziglang")
    if zig is None:
        pytest.skip("needs ziglang: make wasm installs it")
    compiler = Path(zig.submodule_search_locations[0]) / "zig"
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=native/cmake/wasm.cmake"
    folder = build("wasm-tests", toolchain, f"-DBIBERT_ZIG={compiler}", "-DBIBERT_TESTS=ON")
    runner = Path(__file__).parents[2] / "native" / "wasm" / "run.mjs"
    for name, rounds in {
        "api_test": "",
        "reader_test": "",
        "kernels_test": "5",
        "levels_test": "5",
        "model_test": "2",
    }.items():
        command = [node, "--no-warnings", runner, folder / "native" / "tests" / name, *rounds.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 failures" in done.stdout

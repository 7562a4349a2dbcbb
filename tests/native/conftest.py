"""Builds of the engine for tests, and the C examples linked with the installed library."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bibert.packed.file import PackedModel, save
from bibert.packed.schema import SITES, PackedConfig
from bibert.runtime.native import library

ROOT = Path(__file__).parents[2]
BUILDS = ROOT / "build"
EXAMPLES = ROOT / "native" / "examples"
PARTS = {"norm_eps": 1e-5, "thresholds": SITES, "score_thresholds": True, "ffn_levels": "bool"}
CONFIG = PackedConfig(2, 64, 2, 32, 128, vocabulary=50, positions=24, token_types=2, labels=3, **PARTS)


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """A function that finds a program next to Python or on the PATH; the test is skipped if it is missing."""

    def find(name: str) -> str:
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        found = shutil.which(name, path=places)
        if found is None:
            pytest.skip(f"needs {name}")
        return found

    return find


@pytest.fixture(scope="session")
def build(tool: Callable[[str], str]) -> Callable[..., Path]:
    """A function that builds the engine in a folder of `build/`, which is kept to make the next run short."""

    def run_cmake(name: str, *options: str, targets: Sequence[str] = ("all",)) -> Path:
        cmake, folder = tool("cmake"), BUILDS / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:  # tests run in several processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            run(cmake, "-G", "Ninja", "-S", ROOT, "-B", folder, f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", *options)
            run(cmake, "--build", folder, "--target", *targets)
        return folder

    return run_cmake


@pytest.fixture(scope="session")
def native_build(build: Callable[..., Path], tool: Callable[[str], str]) -> Path:
    """A folder with the library, its objects and the native tests."""
    tool("c++")
    return build("native-tests", "-DBIBERT_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release")


@pytest.fixture(scope="session")
def example(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that builds an example with the header and the library of the Python package."""

    def compile_example(name: str) -> Path:
        program, native = tmp_path_factory.mktemp("example") / name, Path(library()._name).resolve()
        strict = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
        include = f"-I{native.parent / 'include'}"
        run(tool("cc"), *strict, include, EXAMPLES / f"{name}.c", native, f"-Wl,-rpath,{native.parent}", "-o", program)
        return program

    return compile_example


@pytest.fixture(scope="session")
def classify(example: Callable[[str], Path]) -> Path:
    """The example that runs any packed file."""
    return example("classify")


@pytest.fixture(scope="session")
def new_model(tensors_of) -> Callable[..., PackedModel]:
    """A function that makes a random model with every optional part; its arguments change the config."""

    def make(**changes: object) -> PackedModel:
        config = replace(CONFIG, **changes)
        labels = ["query", "key", "pooler_input"][: config.labels]  # names that also occur in a config
        return PackedModel.from_tensors(config, labels, config.positions, tensors_of(config), b"{}", {"hidden": 7})

    return make


@pytest.fixture(scope="session")
def model_file(new_model: Callable[..., PackedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.bibert"
    save(new_model(), path)
    return path


def run(*command: object) -> str:
    """The output of a program; if it fails, the test fails with that output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""What may import what: the contracts of pyproject.toml, and what a light start really loads."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bibert
from bibert.cli.app import COMMANDS

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "datasets", "accelerate", "matplotlib", "sklearn", "scipy", "pandas", "pyarrow"}
LIGHT_MODULES = [
    "bibert",
    "bibert.cli",
    "bibert.cli.console",
    "bibert.errors",
    "bibert.files",
    "bibert.lab.cost",
    "bibert.data.examples",
    "bibert.data.glue",
    "bibert.data.metrics",
    "bibert.data.tables",
    "bibert.nn",
    "bibert.nn.schemes",
    "bibert.packed.file",
    "bibert.lab.rivals.benchmark",
    "bibert.runtime.classifier",
    "bibert.runtime.tables",
    "bibert.serving.run",
]


def modules_loaded_by(code: str) -> set[str]:
    """The names in `sys.modules` after `code` has run in a fresh interpreter."""
    report = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import atexit\natexit.register(lambda: exec({report!r}))\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_a_light_module_loads_nothing_heavy(module):
    assert modules_loaded_by(f"import {module}") & HEAVY == set()


def test_the_help_of_the_program_loads_nothing_heavy():
    loaded = modules_loaded_by("import sys; sys.argv = ['bibert', '--help']; from bibert.cli import main; main()")
    assert "typer" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_nothing_heavy(command):
    loaded = modules_loaded_by(
        f"import sys; sys.argv = ['bibert', {command!r}, '--help']; from bibert.cli import main; main()"
    )
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("words", [["predict", "a film"], ["evaluate", "rows.csv", "--model", "sst2"]])
def test_running_a_packed_file_loads_nothing_heavy(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text,label\na fine film,positive\ndull,negative\n", encoding="utf-8")
    loaded = modules_loaded_by(f"import sys; sys.argv = ['bibert', *{words}]; from bibert.cli import main; main()")
    assert loaded & HEAVY == set()


@pytest.mark.slow
@pytest.mark.parametrize(("command", "most"), [("predict", 25), ("train", 55), ("pack", 39)])
def test_a_command_imports_only_what_it_uses(command, most, tmp_path, start, student):
    (tmp_path / "data.csv").write_text("text,label\n" + "one good,p\ntwo bad,n\n" * 20, encoding="utf-8")
    short = ["--epochs", "1", "--max-length", "16"]
    words = {
        "predict": ["a good film"],
        "train": [f"{tmp_path}/data.csv", "--checkpoint", f"{start}", "-o", f"{tmp_path}/run", *short],
        "pack": [f"{student}", "-o", f"{tmp_path}/student.bibert", "--max-length", "32"],
    }[command]
    code = f"import sys; sys.argv = ['bibert', {command!r}, *{words}]; from bibert.cli import main; main()"
    ours = [name for name in modules_loaded_by(code) if name.partition(".")[0] == "bibert"]
    assert len(ours) <= most, sorted(ours)


@pytest.mark.parametrize("name", [name for name in bibert.__all__ if name != "__version__"])
def test_every_public_name_is_the_object_of_its_own_module(name):
    assert getattr(bibert, name) is getattr(importlib.import_module(bibert._HOME_OF[name]), name)


def test_every_public_name_has_a_home():
    assert {*bibert._HOME_OF, "__version__"} == set(bibert.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'bibert' has no attribute 'binarise'"):
        _ = bibert.binarise


def test_imports_point_down_only():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout

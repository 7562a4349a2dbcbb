"""What a results file says about the machine, the versions and the commit."""

import subprocess
import sys

import numpy as np
import pytest

import bibert
from bibert import machine


def test_the_processor_has_a_name():
    assert machine.cpu_name()


def test_peak_memory_counts_what_was_used_and_stays_after_it_is_freed():
    code = (
        "from bibert.machine import peak_memory_bytes as peak\n"
        "before = peak()\n"
        "b'x' * 100_000_000\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert 90_000_000 < int(done.stdout) < 130_000_000


def test_versions_are_those_of_installed_packages():
    versions = machine.about(["numpy", "a-package-that-nobody-has", "numpy"])["versions"]
    assert versions == {"bibert": bibert.__version__, "numpy": np.__version__}


def git(folder, *words):
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package inside a fresh checkout, not yet known to git."""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "start")
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.setattr(machine, "PACKAGE", folder)
    return folder


@pytest.mark.usefixtures("package")
def test_a_package_installed_inside_somebody_elses_checkout_has_no_commit():
    assert machine.commit() is None
    assert machine.about([])["commit"] is None


def test_a_checkout_has_its_commit_and_a_plus_for_changes(package):
    git(package, "add", ".")
    git(package, "commit", "--quiet", "-m", "add")
    assert machine.commit() == git(package, "rev-parse", "--short", "HEAD")
    (package / "__init__.py").write_text("changed = True\n")
    assert machine.commit() == git(package, "rev-parse", "--short", "HEAD") + "+"


def test_without_git_there_is_no_commit(package, monkeypatch):
    git(package, "add", ".")
    monkeypatch.setenv("PATH", "")
    assert machine.commit() is None

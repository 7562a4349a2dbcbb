"""Commands of the laboratory: what they print as JSON, how they refuse, and labelled rows for them."""

import json

import pytest


@pytest.fixture
def as_json(bibert, capsys):
    """What a command prints with --json."""

    def run(*words):
        capsys.readouterr()
        assert bibert(*words, "--json") == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def refused(bibert, capsys):
    """The error of a command that is refused, which is one line."""

    def run(*words):
        capsys.readouterr()
        assert bibert(*words) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return run


@pytest.fixture
def rows(tmp_path):
    """Labelled rows in a file."""
    path = tmp_path / "dev.csv"
    path.write_text("text,label\na fine film,positive\na dull film,negative\na film,positive\n")
    return path

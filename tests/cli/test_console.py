"""Output of commands: results on stdout as they are, progress on stderr alone."""

import json

import pytest
from rich.table import Table

from bibert.cli import console


def test_json_goes_to_stdout_and_comes_back_as_it_was(capsys):
    value = [{"name": "bibert", "note": "µ ≥ 0", "score": 0.5}]
    console.print_json(value)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == value
    assert shown.out.endswith("]\n")
    assert shown.err == ""


def test_json_refuses_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        console.print_json({"score": float("nan")})


def test_a_table_in_a_file_has_120_columns_and_loses_nothing(capsys):
    table = Table("scheme", "note")
    table.add_row("bibert", "x" * 300)
    console.print_table(table)
    out = capsys.readouterr().out
    assert out.count("x") == 300
    assert max(map(len, out.splitlines())) == 120


def test_progress_leaves_stdout_alone(capsys):
    with console.progress() as bar:
        bar.update(bar.add_task("augment", total=2), advance=2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2/2" in shown.err

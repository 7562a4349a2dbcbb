"""`bibert recipes`: every preset is listed, and one that is printed is a recipe file that says the same."""

import json
import sys

import pytest

from bibert.cli.recipes import USE
from bibert.training.recipe import load_recipe, presets


def test_every_preset_is_in_the_table(bibert, capsys):
    assert bibert("recipes") == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in presets())


def test_a_narrow_terminal_shows_every_name_whole(bibert, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert bibert("recipes") == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in presets())
    assert "…" not in shown


@pytest.mark.parametrize("name", ["student", "teacher", "released-mnli"])
def test_a_printed_preset_is_a_file_that_says_the_same(name, bibert, tmp_path, capsys):
    assert bibert("recipes", name) == 0
    file = tmp_path / "mine.toml"
    file.write_text(capsys.readouterr().out)
    assert load_recipe(file) == load_recipe(name)


def test_json_has_every_setting(bibert, capsys):
    assert bibert("recipes", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["flagship"] == load_recipe("flagship").to_dict()
    assert bibert("recipes", "student", "--json") == 0
    assert json.loads(capsys.readouterr().out) == load_recipe("student").to_dict()


def test_an_unknown_preset_is_one_line(bibert, capsys):
    assert bibert("recipes", "studnet") == 2
    assert "studnet" in capsys.readouterr().err


def test_every_preset_says_what_it_is_for():
    assert all(name in USE or name.partition("-")[0] in USE for name in presets())

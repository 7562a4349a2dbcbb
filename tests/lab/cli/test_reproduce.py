"""`bibert reproduce` on the command line; what it runs is tested in tests/training/test_reproduction.py."""

import pytest

from bibert.lab.cli.reproduce import split_words
from bibert.lab.paper import BOTTLENECKS
from bibert.nn.schemes import SCHEMES, STRUCTURES

REFUSED = {
    "table": (["--table", "7"], "'7'"),
    "task": (["--tasks", "sst-2,sst3", "-c", "x"], "'sst3'"),
    "scheme": (["--schemes", "bibret", "--tasks", "sst-2", "-c", "x"], "'bibret'"),
    "seed": (["--seeds", "1,two", "-c", "x"], "'two'"),
    "checkpoint": (["--tasks", "sst-2"], "--checkpoint"),
    "recipe": (["--tasks", "sst-2", "-c", "x", "--set", "epoch=2"], "'epoch'"),
    "seed as a change": (["--tasks", "sst-2", "-c", "x", "--set", "seed=7"], "--seeds"),
    "a teacher's recipe": (["--tasks", "sst-2", "--teacher-recipe", "teacher"], "without --checkpoint"),
    "plain texts": (["--table", "3", "--tasks", "sst-2", "-c", "x"], "--train-file"),
}


@pytest.mark.parametrize(("words", "says"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_one_line_and_leaves_nothing(words, says, refused, tmp_path):
    assert says in refused("reproduce", tmp_path, *words, "-o", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_runs_has_nothing_to_collect(refused, tmp_path):
    assert f"{tmp_path}/runs: " in refused("reproduce", "collect", "-o", tmp_path / "runs")


def test_a_scheme_with_changed_fields_is_one_word():
    assert split_words("bibert, bibert(gain=row,scaled_context=true),,baseline") == (
        "bibert",
        "bibert(gain=row,scaled_context=true)",
        "baseline",
    )


def test_the_bottlenecks_are_the_baseline_every_structure_kept_and_every_term_left_out():
    assert BOTTLENECKS.schemes == (
        "baseline",
        *(f"baseline(kept={structure})" for structure in STRUCTURES),
        *(f"baseline(without={term})" for term in SCHEMES["baseline"].schedule[0].weights),
    )

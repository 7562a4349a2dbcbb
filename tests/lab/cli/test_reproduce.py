"""`bibert reproduce` on the command line; what it runs is tested in tests/training/test_reproduction.py."""

import pytest

from bibert.lab.cli.reproduce import _schemes_of, _words
from bibert.lab.paper import BOTTLENECKS
from bibert.nn.schemes import SCHEMES, STRUCTURES

REFUSED = {
    "table": (["--table", "7"], "there is no table '7'"),
    "task": (["--tasks", "sst-2,sst3", "-c", "x"], "there is no GLUE task 'sst3'"),
    "scheme": (["--schemes", "bibret", "--tasks", "sst-2", "-c", "x"], "there is no scheme 'bibret'"),
    "seed": (["--seeds", "1,two", "-c", "x"], "'two' is not a whole number"),
    "checkpoint": (["--tasks", "sst-2"], "holds no finished teacher, and there is no checkpoint"),
    "recipe": (["--tasks", "sst-2", "-c", "x", "--set", "epoch=2"], "unknown key 'epoch'"),
    "seed as a change": (["--tasks", "sst-2", "-c", "x", "--set", "seed=7"], "are given with --seeds"),
    "a part to collect": (["--collect", "--tasks", "sst-2"], "so --tasks has no effect; leave it out"),
    "seeds to collect": (["--collect", "--seeds", "42"], "so --seeds has no effect; leave it out"),
    "data to collect": (["--collect"], "so the folder of GLUE has no effect; leave it out"),
    "a teacher's recipe": (["--tasks", "sst-2", "--teacher-recipe", "teacher"], "has no effect without --checkpoint"),
    "plain texts": (
        ["--table", "3", "--tasks", "sst-2", "-c", "x"],
        "learns from augmented texts; make a file of them",
    ),
}


@pytest.mark.parametrize(("words", "says"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_one_line_and_leaves_nothing(words, says, bibert, tmp_path, capsys):
    assert bibert("reproduce", tmp_path, *words, "-o", tmp_path / "runs") != 0
    assert says in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_runs_has_nothing_to_collect(bibert, tmp_path, capsys):
    assert bibert("reproduce", "--collect", "-o", tmp_path / "runs") != 0
    assert "holds no finished run" in capsys.readouterr().err


def test_a_scheme_with_changed_fields_is_one_word():
    assert _words("bibert, bibert(gain=row,scaled_context=true),,baseline") == (
        "bibert",
        "bibert(gain=row,scaled_context=true)",
        "baseline",
    )


def test_the_bottlenecks_are_the_baseline_every_structure_kept_and_every_term_left_out():
    assert _schemes_of(BOTTLENECKS) == (
        "baseline",
        *(f"baseline(kept={structure})" for structure in STRUCTURES),
        *(f"baseline(without={term})" for term in SCHEMES["baseline"].schedule[0].terms),
    )

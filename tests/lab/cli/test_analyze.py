"""`bibert analyze theory` and `bottleneck`, and the list of analyses."""

import json
from dataclasses import replace

import pytest

from bibert.lab.tables import Cell, load_cells, save_cells

ACCURACIES = {
    "full_precision": 0.91,
    "baseline": 0.80,
    "baseline(kept=mha)": 0.87,
    "baseline(without=attention)": 0.81,
}


def test_theory_prints_the_papers_figures_beside_ours(bibert, capsys):
    assert bibert("analyze", "theory", "--samples", 1000, "--rows", 50) == 0
    shown = capsys.readouterr().out
    for figure in ("14.36", "14.169", "0.099347", "0.88129"):
        assert figure in shown


def test_theory_as_json_has_every_statement(bibert, capsys):
    assert bibert("analyze", "theory", "--samples", 100_000, "--rows", 200, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts.keys() == {"theorem_1", "theorem_2", "theorem_3", "proposition_1", "quantiles"}
    thresholds = [line["threshold"] for line in facts["theorem_1"]]
    assert thresholds == sorted(thresholds, reverse=True)
    for line in facts["theorem_3"]:
        assert line["simulated"] == pytest.approx(line["exact"], abs=0.5)
        assert abs(line["papers_deviations_from_exact"]) < 1
    assert all(line["entropy"] == pytest.approx(line["paper"], abs=0.005) for line in facts["quantiles"])


def test_the_list_of_analyses_is_shown_without_one(bibert, capsys):
    bibert("analyze")
    shown = capsys.readouterr()
    for name in ("theory", "entropy", "direction", "attention", "bottleneck", "cost", "report"):
        assert name in shown.out + shown.err


def test_the_scores_of_models_stand_beside_those_of_random_bits(bibert, student, packed_file, tmp_path, capsys):
    figure = tmp_path / "theory.svg"
    words = ("--text", "a fine film of the year", "--samples", 100, "--rows", 20, "-o", figure, "--json")
    assert bibert("analyze", "theory", packed_file, student, *words) == 0
    lines = json.loads(capsys.readouterr().out)["theorem_2"]
    assert [line["scores_of"] for line in lines[:3]] == ["random bits"] * 3
    mine, other = lines[3:]
    assert mine["head_size"] == 16
    assert {**mine, "scores_of": ""} == {**other, "scores_of": ""}
    assert 0 < mine["probability_of_0"] < 0.5
    assert figure.read_text().startswith("<?xml")
    assert bibert("analyze", "theory", packed_file) == 2  # without texts
    assert "go together" in capsys.readouterr().err


def cell(scheme, accuracy, seed=1, task="sst2", **recipe):
    metrics, recipe = {"dev_accuracy": accuracy}, {"seed": seed, "epochs": 1, **recipe}
    shape = {"layers": 2, "hidden": 32, "heads": 2}
    return Cell(task, scheme, False, metrics, 5, [(5, accuracy)], recipe, shape, {"bits": "1-1-1"})


@pytest.fixture
def results(tmp_path):
    """A results file with two seeds of every student."""
    cells = [cell(scheme, share + 0.01 * seed, seed) for scheme, share in ACCURACIES.items() for seed in (0, 1)]
    save_cells(tmp_path / "results.json", cells, {})
    return tmp_path / "results.json"


def test_the_table_has_ours_and_the_papers_beside_each_other(bibert, results, capsys):
    assert bibert("analyze", "bottleneck", results.parent) == 0  # the folder stands for its results.json
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "baseline 80.50 77.60" in lines
    assert "in full precision mha 87.50 +7.00 ± 1.75 89.09 +11.49 ± 1.76" in lines
    assert "not distilled attention 81.50 +1.00 ± 1.88 78.41 +0.81 ± 1.98" in lines


def test_other_schemes_in_the_file_do_not_matter(bibert, results, tmp_path, capsys):
    other = replace(cell("binarybert_1-1-1", 0.7), backbone={"layers": 2, "hidden": 32, "heads": 1})
    save_cells(tmp_path / "results.json", [*load_cells(results), other], {})
    assert bibert("analyze", "bottleneck", results) == 0
    assert "binarybert" not in capsys.readouterr().out


def test_json_has_every_change(bibert, results, capsys):
    assert bibert("analyze", "bottleneck", results, "--json") == 0
    (task,) = json.loads(capsys.readouterr().out).values()
    assert task["texts"] == 872
    assert task["baseline"] == {"ours": pytest.approx(80.5), "paper": 77.6}
    changes = {change["scheme"]: change for change in task["changes"]}
    assert changes["baseline(kept=mha)"]["ours"]["points"] == pytest.approx(7.0)
    assert changes["baseline(kept=output)"]["ours"] is None


def test_the_figure_is_drawn(bibert, results, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")
    assert bibert("analyze", "bottleneck", results, "-o", tmp_path / "figure.svg") == 0
    assert "figure.svg: written" in capsys.readouterr().err
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
    assert bibert("analyze", "bottleneck", results, "-o", tmp_path / "figure.jpg") == 2
    assert ".svg, .pdf, .png" in capsys.readouterr().err


def test_what_cannot_be_shown_is_one_line(bibert, tmp_path, capsys):
    save_cells(tmp_path / "alone.json", [cell("baseline", 0.8)], {})
    save_cells(tmp_path / "mixed.json", [cell("baseline", 0.8), cell("baseline(kept=mha)", 0.9, epochs=9)], {})
    (tmp_path / "odd.json").write_text("[]")
    cases = {
        "no.json": "no.json",
        "odd.json": "odd.json",
        "alone.json": "--table bottlenecks",
        "mixed.json": "epochs = 1, baseline(kept=mha) with 9",
    }
    for name, says in cases.items():
        assert bibert("analyze", "bottleneck", tmp_path / name) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert says in error

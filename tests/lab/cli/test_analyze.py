"""`bibert analyze ...` on the command line; the figures are tested in tests/analysis."""

import json

import pytest


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


def test_models_without_texts_are_refused(bibert, packed_file, capsys):
    assert bibert("analyze", "theory", packed_file) == 2
    assert "go together" in capsys.readouterr().err

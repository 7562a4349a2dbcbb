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
    assert "theory" in shown.out + shown.err

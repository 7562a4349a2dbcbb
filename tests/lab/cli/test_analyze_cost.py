"""`bibert analyze cost`: every printed figure with its rule and its verdict, and the bytes of real files."""

import json

import pytest

from bibert.lab.cost import RULES
from bibert.nn.schemes import SCHEMES


@pytest.fixture
def shown(bibert, capsys):
    """What the command prints as JSON."""

    def values(*words):
        assert bibert("analyze", "cost", *words, "--json") == 0
        return json.loads(capsys.readouterr().out)

    return values


def rows(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_printed_figures_stand_beside_the_rules_that_give_them(bibert, capsys):
    assert bibert("analyze", "cost") == 0
    lines = rows(capsys.readouterr().out)
    for row in (
        "size, MB 418 417.65 reproduced bits_plus_float full_precision",
        "28.0 27.96 reproduced bits_plus_float ternarybert_2-2-8, ternarybert_2-2-2, ternarybert_2-2-1",
        "43.0 42.98 reproduced q_bert_tables q_bert, q2bert",
        "FLOPs, G 22.5 22.426 close flops full_precision: TinyBERT's count; the products are 22.35 G",
        "0.4 0.423 reproduced flops bibert",
        "0.2 0.212 reproduced flops bibert",
        "0.03 0.029 reproduced flops bibert",
    ):
        assert row in lines
    text = " ".join(lines)
    assert "13.4 14.97 not bits_plus_float baseline, bibert, baseline_50: derivable only by leaving" in text
    assert "6.8 9.68 not bits_plus_float bibert: not derivable" in text
    assert "4.4 2.37 not bits_plus_float bibert: not derivable" in text
    assert "of 41 that the paper prints" in text
    assert "17 are reproduced" in text
    for rule in RULES.values():
        assert rule in text


def test_json_has_every_figure_with_rule_verdict_and_reason(shown):
    values = shown()
    assert values["printed"] == {"equal": 17, "close": 9, "different": 15}
    assert {figure["architecture"] for figure in values["figures"]} == {"bert-base", "6L", "4L"}
    for figure in values["figures"]:
        assert figure["rule"] in values["rules"]
        assert bool(figure["paper"]["reason"]) == (figure["paper"]["verdict"] != "equal")
    assert values["readings_of_13_4_mib"]["bits alone"] == pytest.approx(12.99, abs=0.005)
    assert values["packed"] == {}


def test_a_shape_that_is_asked_for_has_every_scheme(shown, student):
    found = [figure for figure in shown("-a", student)["figures"] if figure["architecture"] == str(student)]
    assert {name for figure in found for name in figure["schemes"]} == set(SCHEMES)
    assert all(figure["paper"] is None for figure in found)
    papers = [figure for figure in shown("-a", "4L")["figures"] if figure["architecture"] == "4L"]
    assert [figure["paper"]["printed"] for figure in papers if figure["paper"]] == [55.6, 4.4, 1.2, 0.03]


def test_the_bytes_of_a_file_add_up_to_its_size(shown, packed_file, bibert, capsys):
    parts = shown("--packed", packed_file)["packed"][str(packed_file)]
    assert sum(part["in_file"] for part in parts) == packed_file.stat().st_size
    assert bibert("analyze", "cost", "--packed", packed_file) == 0
    out = capsys.readouterr().out
    assert f"{packed_file.stat().st_size:,}" in out
    assert "every row ends at a whole 64-bit word" in out


def test_what_is_not_there_is_one_line(bibert, tmp_path, capsys):
    for words in (("-a", "bert-huge"), ("--packed", tmp_path / "no.bibert")):
        assert bibert("analyze", "cost", *words) == 2
        assert capsys.readouterr().err.count("\n") == 1

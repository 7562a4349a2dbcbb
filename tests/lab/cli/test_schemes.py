"""`bibert schemes` and `bibert analyze cost`: tables at each width, JSON, rules, verdicts, and how bad input leaves."""

import json
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from bibert.lab.architecture import ARCHITECTURES
from bibert.lab.cli import schemes as command
from bibert.lab.cost import RULES, cost_of, readings_of_13_4
from bibert.nn.schemes import SCHEMES


@pytest.fixture
def costs(as_json):
    """What `bibert analyze cost` prints as JSON."""
    return partial(as_json, "analyze", "cost")


@pytest.fixture
def printed(bibert, capsys):
    """What `bibert schemes` prints."""

    def run(*words):
        assert bibert("schemes", *words) == 0
        return capsys.readouterr().out

    return run


def lines_of(architecture):
    return [cost_of(ARCHITECTURES[architecture], scheme) for scheme in SCHEMES.values()]


def rendered(architecture, width):
    """The table and its footnotes as they look in a terminal of `width` columns."""
    out = StringIO()
    console = Console(file=out, width=width, highlight=False)
    lines = lines_of(architecture)
    console.print(command.scheme_table(lines, width))
    console.print(command.footnotes(lines, width))
    return out.getvalue()


def row_of(text, scheme):
    return next(line for line in text.splitlines() if line.split()[:1] == [scheme])


def test_some_schemes_and_variants_can_be_asked_for(printed):
    shown = printed("baseline", "bibert(gain=row,thresholds=context)")
    assert row_of(shown, "baseline")
    assert row_of(shown, "bibert(gain=row,thresholds=context)").split()[1] == "1-1-1"
    assert "full_precision" not in shown


def test_the_table_shows_every_scheme_with_our_figures_beside_the_papers(printed):
    shown = printed()
    assert "109,483,778 parameters" in shown
    for name in SCHEMES:
        assert row_of(shown, name)
    assert row_of(shown, "bibert").split()[-8:] == ["dmd", "14.97", "!=", "13.4", "0.423", "=", "0.4", "2"]
    assert row_of(shown, "full_precision").split()[-7:] == ["417.6", "=", "418", "22.426", "~", "22.5", "1"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_nothing_is_cut_at_common_widths(architecture, width):
    shown = rendered(architecture, width)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    for name, scheme in SCHEMES.items():
        assert row_of(shown, name).split()[1] == str(scheme.bits)


def test_a_narrow_terminal_drops_whole_columns_and_says_so():
    narrow, wide = rendered("bert-base", 80), rendered("bert-base", 120)
    assert "quantizers" in wide.splitlines()[0]
    assert "quantizers" not in narrow.splitlines()[0]
    assert "120 columns show quantizers" in " ".join(narrow.split())
    assert row_of(narrow, "bibert").split()[1:] == ["1-1-1", "14.97", "!=", "13.4", "0.423", "=", "0.4", "2"]


def test_thresholds_notes_and_losses_have_lines_of_their_own_in_a_wide_table():
    table = rendered("bert-base", 120)
    assert table.partition(row_of(table, "baseline_mu"))[2].splitlines()[1].split() == ["+0.075", "~", "0.076"]
    shown = " ".join(table.split())
    reasons = {reason for cost in lines_of("bert-base") for reason in cost.reasons}
    assert len(reasons) == 8
    for reason in reasons:
        assert reason in shown
    assert "dmd dmd_query + dmd_key + dmd_value + hidden_direction + prediction" in shown
    assert "4 stages ternary-layers: attention + hidden, ternary-logits: prediction" in shown


def test_schedules_of_one_name_and_different_losses_are_told_apart(bibert, capsys):
    assert bibert("schemes", "baseline", "baseline(without=mha)", "baseline+bi_attention") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "vanilla attention + mha + hidden + prediction vanilla (2) attention + hidden + prediction" in shown
    assert "vanilla (3)" not in shown


def test_json_is_all_of_stdout_and_holds_every_part(as_json):
    found = as_json("schemes", "--architecture", "4L")
    assert found["architecture"]["name"] == "4L"
    assert found["parameters"]["total"] == 14_350_874
    assert [row["name"] for row in found["schemes"]] == list(SCHEMES)
    bibert = next(row for row in found["schemes"] if row["name"] == "bibert")
    assert bibert["bits"] == {"weight": 1, "embedding": 1, "activation": 1}
    assert bibert["size"]["mib"] == pytest.approx(sum(bibert["size"]["bytes"].values()) / 2**20)
    assert bibert["paper"]["size"]["verdict"] == "different"
    assert bibert["paper"]["size"]["printed"] == 4.4
    assert bibert["paper"]["flops"]["verdict"] == "equal"
    assert any("18.8x" in note for note in bibert["notes"])


def test_another_length_changes_flops_and_takes_the_papers_away(as_json):
    found = as_json("schemes", "--tokens", "64")
    bibert = next(row for row in found["schemes"] if row["name"] == "bibert")
    assert found["tokens"] == 64
    assert bibert["flops"]["products"] < 0.349e9 / 2
    assert list(bibert["paper"]) == ["size"]


def test_a_folder_with_a_config_is_an_architecture(tmp_path, printed):
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 256}
    config |= {"vocab_size": 1000, "max_position_embeddings": 128, "type_vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert printed("-a", tmp_path).startswith("BERT (2 x 64, 2 heads, FFN 256)")


def test_the_printed_figures_stand_beside_the_rules_that_give_them(bibert, capsys):
    assert bibert("analyze", "cost") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
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
    assert "of 41 that the paper prints" in text
    assert "17 are reproduced" in text
    for rule in RULES.values():
        assert rule in text


def test_the_json_of_costs_has_every_figure_with_rule_verdict_and_reason(costs):
    values = costs()
    assert values["printed"] == {"equal": 17, "close": 9, "different": 15}
    assert {figure["architecture"] for figure in values["figures"]} == {"bert-base", "6L", "4L"}
    for figure in values["figures"]:
        assert figure["rule"] in values["rules"]
        assert bool(figure["paper"]["reason"]) == (figure["paper"]["verdict"] != "equal")
    assert values["readings_of_13_4_mib"]["bits alone"] == readings_of_13_4()["bits alone"]
    assert values["packed"] == {}


def test_a_shape_that_is_asked_for_has_every_scheme(costs, student):
    found = [figure for figure in costs("-a", student)["figures"] if figure["architecture"] == str(student)]
    assert {name for figure in found for name in figure["schemes"]} == set(SCHEMES)
    assert all(figure["paper"] is None for figure in found)
    papers = [figure for figure in costs("-a", "4L")["figures"] if figure["architecture"] == "4L"]
    assert [figure["paper"]["printed"] for figure in papers if figure["paper"]] == [55.6, 4.4, 1.2, 0.03]


def test_the_bytes_of_a_file_add_up_to_its_size(costs, packed_file, bibert, capsys):
    parts = costs("--packed", packed_file)["packed"][str(packed_file)]
    assert sum(part["in_file"] for part in parts) == packed_file.stat().st_size
    assert bibert("analyze", "cost", "--packed", packed_file) == 0
    out = capsys.readouterr().out
    assert f"{packed_file.stat().st_size:,}" in out
    assert "every row ends at a whole 64-bit word" in out


NOT_THERE = ("schemes bibrt", "schemes -a bert-huge", "schemes --tokens 513", "analyze cost -a bert-huge")


@pytest.mark.parametrize("command", [*NOT_THERE, "analyze cost --packed no.bibert"])
def test_what_is_not_there_is_one_line(command, refused):
    assert command.split()[-1] in refused(*command.split())

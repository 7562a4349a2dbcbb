"""`bibert schemes`: what the table shows at each width, what JSON holds, and how bad input leaves."""

import json
from io import StringIO

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from bibert.errors import BibertError, CheckpointError, SchemeError
from bibert.lab.architecture import ARCHITECTURES
from bibert.lab.cli import schemes as command
from bibert.lab.comparison import cost_of
from bibert.nn.schemes import SCHEMES

app = typer.Typer()
app.command()(command.schemes)


def run(*args):
    return CliRunner().invoke(app, list(args))


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


def test_some_schemes_and_variants_can_be_asked_for():
    done = run("baseline", "bibert(gain=row,thresholds=context)")
    assert done.exit_code == 0, done.output
    assert row_of(done.output, "baseline")
    assert row_of(done.output, "bibert(gain=row,thresholds=context)").split()[1] == "1-1-1"
    assert "full_precision" not in done.output


def test_the_table_shows_every_scheme_with_our_figures_beside_the_papers():
    done = run()
    assert done.exit_code == 0, done.output
    assert "109,483,778 parameters" in done.output
    for name in SCHEMES:
        assert row_of(done.output, name)
    assert row_of(done.output, "bibert").split()[-8:] == ["dmd", "14.97", "!=", "13.4", "0.423", "=", "0.4", "2"]
    assert row_of(done.output, "full_precision").split()[-7:] == ["417.6", "=", "418", "22.426", "~", "22.5", "1"]


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


def test_json_is_all_of_stdout_and_holds_every_part():
    done = run("--json", "--architecture", "4L")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
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


def test_another_length_changes_flops_and_takes_the_papers_away():
    found = json.loads(run("--json", "--tokens", "64").stdout)
    bibert = next(row for row in found["schemes"] if row["name"] == "bibert")
    assert found["tokens"] == 64
    assert bibert["flops"]["products"] < 0.349e9 / 2
    assert list(bibert["paper"]) == ["size"]


def test_a_folder_with_a_config_is_an_architecture(tmp_path):
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 256}
    config |= {"vocab_size": 1000, "max_position_embeddings": 128, "type_vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("-a", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert done.output.startswith("BERT (2 x 64, 2 heads, FFN 256)")


def test_bad_input_raises_what_the_program_turns_into_one_line():
    assert isinstance(run("bibrt").exception, SchemeError)
    assert isinstance(run("-a", "bert-huge").exception, CheckpointError)
    assert isinstance(run("--tokens", "513").exception, BibertError)
    assert run("--tokens", "0").exit_code == 2

"""`bibert inspect`: every byte of a file in a table or as JSON, and what a folder would take."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from bibert.errors import EngineError
from bibert.lab.architecture import ARCHITECTURES, read_architecture
from bibert.lab.cli import inspect as command
from bibert.lab.cost import flops
from bibert.lab.parts import summarize
from bibert.nn.schemes import SCHEMES, get_scheme
from bibert.nn.students import half_width_ternary
from bibert.packed.file import load, save
from bibert.packed.header import Description


@pytest.fixture
def shown(as_json):
    """What the command prints as JSON."""
    return partial(as_json, "inspect")


def changed(student, folder, **values):
    """A copy of a model folder with other values in its config.json; its weights are never read."""
    shutil.copytree(student, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))
    return folder


def test_json_has_what_the_file_says_of_itself(packed_file, shown):
    values, packed = shown(packed_file, "--tokens", 16), load(packed_file)
    assert values["bytes"] == sum(part["nbytes"] for part in values["parts"]) == packed_file.stat().st_size
    assert values["sha256"] == packed.digest
    assert values["labels"] == ["negative", "positive"]
    assert values["config"] == packed.config.to_dict()
    assert values["about"] == packed.about
    assert values["max_length"] == 32
    assert values["temperature"] == 1
    assert values["tokens"] == 16
    assert values["isa"]


def test_the_flops_are_those_of_bibert_schemes_and_a_file_without_a_gelu_counts_none(student, shown):
    values = shown(student, "--tokens", 20)
    assert values["flops"] == flops(read_architecture(student), SCHEMES["bibert"], 20).total
    values = shown("sst2", "--tokens", 20)
    assert values["flops"] == flops(ARCHITECTURES["minilm-l6"], SCHEMES["bibert_plus"], 20).total


def test_the_table_shows_every_layer_and_the_total(bibert, packed_file, capsys):
    assert bibert("inspect", packed_file, "--tokens", 16) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert f"{packed_file.stat().st_size:,}" in rows["total"]
    assert {"layers.0", "layers.1", "embeddings.word", "tokenizer", "header"} <= rows.keys()
    assert rows["labels"] == ["negative,", "positive"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_table_fits_an_ordinary_terminal(name):
    summary, out = summarize(Description(ARCHITECTURES[name], ("no", "yes"), 128, {}), 466_000, 128), StringIO()
    Console(file=out, width=80, highlight=False).print(command.parts_table(summary))
    assert "…" not in out.getvalue()
    assert f"{summary.total.bits:,}" in out.getvalue()


def test_a_label_that_looks_like_markup_is_shown_as_it_is(student, tmp_path, bibert, capsys):
    folder = changed(student, tmp_path / "odd", id2label={"0": "[red]", "1": "[/b]"})
    assert bibert("inspect", folder, "--tokens", 8) == 0
    assert "[red], [/b]" in capsys.readouterr().out


def test_the_origin_of_a_file_sends_no_sequences_to_the_terminal(packed_file, tmp_path, bibert, capsys):
    about = {"scheme": "\x1b]0;owned\x07", "\x9b2J": ["\x1b[2J"], "start": {"scheme": "\x1b[1m"}}
    save(replace(load(packed_file), about=about), tmp_path / "odd.bibert")
    assert bibert("inspect", tmp_path / "odd.bibert", "--tokens", 8) == 0
    out = capsys.readouterr().out
    assert "\ufffd]0;owned\ufffd" in out
    assert not {"\x1b", "\x07", "\x9b"} & set(out)


def test_a_folder_shows_what_the_file_will_take(student, packed_file, shown):
    values, packed = shown(student, "--tokens", 8), shown(packed_file, "--tokens", 8)
    assert values["can_be_packed"].startswith("yes")
    assert values["config"] == packed["config"]
    about = {part["name"]: part["nbytes"] for part in values["parts"]}
    exact = {part["name"]: part["nbytes"] for part in packed["parts"]}
    for name in about.keys() - {"header", "tokenizer"}:  # these two depend on how it is packed
        assert about[name] == exact[name]
    assert about["tokenizer"] == pytest.approx(exact["tokenizer"], rel=0.05)


HALF = {"num_attention_heads": 1, "attention_head_size": 16, "intermediate_size": 32, "kept_heads": [[0], [1]]}


@pytest.mark.parametrize(
    ("scheme", "changes", "reason", "counted"),
    [
        (SCHEMES["ternarybert_2-2-8"], {}, "2-2-8 bits, .* signs; distill", {"parameters", "mib_by_rule"}),
        (get_scheme("bibert(kept=mha+pooler)"), {}, "keeps mha and pooler", {"parameters"}),
        (SCHEMES["binarybert_1-1-1"], HALF, "sum of two", set()),  # the rules count no such shape
        (half_width_ternary(SCHEMES["binarybert_1-1-2"]), HALF, "2-2-2 bits", set()),
    ],
)
def test_a_folder_of_another_scheme_says_why_it_cannot_be_packed(
    scheme, changes, reason, counted, student, tmp_path, shown, bibert, capsys
):
    folder = changed(student, tmp_path / "other", scheme=scheme.to_dict(), **changes)
    values = shown(folder)
    assert (values["scheme"], values["bits"]) == (scheme.name, str(scheme.bits))
    assert re.match(f"no: .*{reason}", values["can_be_packed"])
    assert values.keys() - {"folder", "scheme", "bits", "can_be_packed"} == counted
    assert bibert("inspect", folder) == 0
    assert "can be packed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "bibert(ffn_activation=relu,thresholds=ffn_hidden)",
        "bibert(ffn_hidden=bool,ffn_activation=linear)",
        "bibert(ffn_activation=linear)",
        "bibert_plus(ffn_hidden=,ffn_activation=gelu)",
        *(name for name in SCHEMES if name != "full_precision"),  # which must be distilled first
    ],
)
def test_the_folder_and_pack_say_the_same(name, student, tmp_path, shown):
    from bibert.errors import SchemeError
    from bibert.export import config_of
    from bibert.nn.layers import BiBertConfig

    folder = changed(student, tmp_path / "other", scheme=name)
    values, config = shown(folder), BiBertConfig.from_pretrained(folder)
    try:
        assert config_of(config).to_dict() == values["config"]
        says = "yes, with bibert pack"
    except SchemeError as error:
        says = "no: " + str(error).partition("cannot be packed: ")[2].partition("; ")[0]
    assert values["can_be_packed"].startswith(says)


def test_a_plain_bert_shows_what_its_student_would_take(student, tmp_path, shown):
    folder = changed(student, tmp_path / "bert", scheme=None, model_type="bert")
    (folder / "tokenizer.json").unlink()
    values = shown(folder, "--tokens", 8)
    assert values["can_be_packed"].startswith("once it is distilled")
    assert next(part for part in values["parts"] if part["name"] == "tokenizer")["nbytes"] == 0


def test_a_run_folder_and_a_folder_with_one_packed_file_are_their_model(student, packed_file, shown, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(student)
    assert shown(tmp_path / "run") == shown(tmp_path / "run" / "model")
    assert shown(packed_file.parent, "--tokens", 8) == shown(packed_file, "--tokens", 8)


def test_a_run_folder_has_the_notes_of_its_run(student, shown, tmp_path):
    shutil.copytree(student, tmp_path / "run" / "model")
    request = {"data": {"name": "reviews"}, "recipe": {"max_length": 16}}
    notes = {"request": request, "metrics": {"dev_accuracy": 0.75}, "temperature": 2.5}
    (tmp_path / "run" / "run.json").write_text(json.dumps(notes))
    values = shown(tmp_path / "run", "--tokens", 8)
    assert (values["temperature"], values["max_length"]) == (2.5, 16)
    assert values["about"]["metrics"] == {"dev_accuracy": 0.75}


@pytest.mark.parametrize("words", [("inspect",), ("analyze", "report", "-o", "page.html", "-m")])
def test_a_folder_of_runs_is_refused_with_their_names(words, student, refused, tmp_path):
    (tmp_path / "trec" / "student").mkdir(parents=True)
    (tmp_path / "trec" / "student" / "model").symlink_to(student)
    error = refused(*words, tmp_path / "trec")
    assert f"give one of the runs in it: {tmp_path / 'trec' / 'student'}\n" in error


def test_a_summary_needs_no_engine(packed_file, shown, monkeypatch):
    def no_library(*_, **__):
        raise EngineError("the native library is missing")

    monkeypatch.setattr("bibert.runtime.engine.Engine.from_packed", no_library)
    assert shown(packed_file, "--tokens", 8)["isa"] is None


def test_what_cannot_be_inspected_is_one_line(refused, packed_file, student, tmp_path):
    (tmp_path / "cut.bibert").write_bytes(packed_file.read_bytes()[:-1])
    damaged = changed(student, tmp_path / "damaged", scheme={"name": "bibert"})
    unknown = changed(student, tmp_path / "unknown", scheme="bibert(weight=foo)")
    cut = changed(student, tmp_path / "cut")
    (cut / "config.json").write_text('{"model_type":')
    garbled = changed(student, tmp_path / "garbled")
    (garbled / "tokenizer.json").write_text("not JSON")
    cases = {
        tmp_path / "no.bibert": "no such file",
        tmp_path / "cut.bibert": "bytes of",
        tmp_path: "bytes of",  # the only packed file in the folder
        damaged: "the scheme is damaged",
        unknown: "weight is 'foo', must be one of",
        cut: "config.json: is not JSON",
        garbled: "tokenizer.json: is not JSON",
    }
    for path, says in cases.items():
        assert says in refused("inspect", path, "--tokens", "8")
    assert "tokens is 65, must be from 1 to 64" in refused("inspect", packed_file, "--tokens", 65)

"""`bibert analyze theory`, `entropy`, `direction` and `bottleneck`, and the list of analyses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bibert.lab.cli.options import TextOptions
from bibert.lab.direction import FIELDS
from bibert.lab.look import HEADS
from bibert.lab.tables import Cell, load_cells, save_cells
from bibert.nn.schemes import get_scheme

ACCURACIES = {
    "full_precision": 0.91,
    "baseline": 0.80,
    "baseline(kept=mha)": 0.87,
    "baseline(without=attention)": 0.81,
}


@pytest.fixture
def new_run(tmp_path):
    """A function that writes a run folder as a training with a probe leaves it: 2 layers, 2 heads, 20 looks."""

    def write(name: str, scheme: str, attention: float, looks: int = 20) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"request": {"scheme": get_scheme(scheme).to_dict()}}))
        lines = []
        for look in range(looks):
            heads = {site: [[0.9, 1.0], [0.8, 0.9]] for site in HEADS} | {"attention": [[attention] * 2] * 2}
            event = {"stage": "dmd", "step": 50 * look, "entropy": {**heads, "ffn_hidden": [0.5, 0.6]}}
            if look:
                tables = {field: [[0.1 * place, 0.2], [0.3, 0.4]] for place, field in enumerate(FIELDS, start=1)}
                event["direction"] = dict.fromkeys(("scores", "query", "key", "value"), tables)
            lines.append(json.dumps(event) + "\n")
        (folder / "probe.jsonl").write_text('{"stage": "before", "step": 7}\n' + "".join(lines) + '{"stage": "d')
        return folder

    return write


def test_theory_prints_the_papers_figures_beside_ours_and_analyze_alone_a_list(bibert, capsys):
    assert bibert("analyze", "theory", "--samples", 1000, "--rows", 50) == 0
    shown = capsys.readouterr().out
    assert all(figure in shown for figure in ("14.36", "14.169", "0.099347", "0.88129"))
    bibert("analyze")
    shown = "".join(capsys.readouterr())
    assert all(name in shown for name in ("theory", "entropy", "direction", "attention", "cost", "report"))


def test_theory_as_json_has_every_statement(as_json):
    facts = as_json("analyze", "theory", "--samples", 100_000, "--rows", 200)
    assert facts.keys() == {"theorem_1", "theorem_2", "theorem_3", "proposition_1", "proposition_2", "quantiles"}
    thresholds = [line["threshold"] for line in facts["theorem_1"]]
    assert thresholds == sorted(thresholds, reverse=True)
    for line in facts["theorem_3"]:
        assert line["simulated"] == pytest.approx(line["exact"], abs=0.5)
        assert abs(line["papers_deviations_from_exact"]) < 1
    assert all(line["entropy"] == pytest.approx(line["paper"], abs=0.005) for line in facts["quantiles"])


def test_the_scores_of_models_stand_beside_those_of_random_bits(as_json, student, packed_file, tmp_path):
    figure = tmp_path / "theory.svg"
    words = ("--text", "a fine film of the year", "--samples", 100, "--rows", 20, "-o", figure)
    lines = as_json("analyze", "theory", packed_file, student, *words)["theorem_2"]
    assert [line["scores_of"] for line in lines[:3]] == ["random bits"] * 3
    mine, other = lines[3:]
    assert mine["head_size"] == 16
    assert {**mine, "scores_of": ""} == {**other, "scores_of": ""}
    assert 0 < mine["probability_of_0"] < 0.5
    assert figure.read_text().startswith("<?xml")


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


def test_the_table_and_the_figure_have_ours_and_the_papers_beside_each_other(bibert, results, tmp_path, capsys):
    figure = tmp_path / "figure.svg"
    assert bibert("analyze", "bottleneck", results.parent, "-o", figure) == 0  # the folder stands for its results.json
    shown = capsys.readouterr()
    assert "figure.svg: written" in shown.err
    assert figure.read_text().startswith("<?xml")
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "baseline 80.50 77.60" in lines
    assert "in full precision mha 87.50 +7.00 ± 1.75 89.09 +11.49 ± 1.76" in lines
    assert "not distilled attention 81.50 +1.00 ± 1.88 78.41 +0.81 ± 1.98" in lines


def test_students_are_compared_by_their_start(bibert, as_json, refused, tmp_path, capsys):
    taught, results, figure = cell("bibert", 0.7), tmp_path / "results.json", tmp_path / "starts.svg"
    general = replace(taught, metrics={"dev_accuracy": 0.8}, origin={"start": {"file": "general_1.bibert"}})
    save_cells(results, [cell("full_precision", 0.9), taught], {})
    assert "--start" in refused("analyze", "starts", results, "-o", figure)
    save_cells(results, [cell("full_precision", 0.9), taught, general], {})
    assert bibert("analyze", "starts", results, "-o", figure) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == ["SST-2 bibert its teacher 5 70.0", "SST-2 bibert `general_1` 5 80.0"]
    assert "ahead in 1 of 1 cases" in figure.read_text()
    assert [one["scheme"] for one in as_json("analyze", "starts", results)] == ["bibert", "bibert"]


def test_other_schemes_in_the_file_do_not_matter(bibert, results, tmp_path, capsys):
    other = replace(cell("binarybert_1-1-1", 0.7), backbone={"layers": 2, "hidden": 32, "heads": 1})
    save_cells(tmp_path / "results.json", [*load_cells(results), other], {})
    assert bibert("analyze", "bottleneck", results) == 0
    assert "binarybert" not in capsys.readouterr().out


def test_json_has_every_change(as_json, results):
    (task,) = as_json("analyze", "bottleneck", results).values()
    assert task["texts"] == 872
    assert task["baseline"] == {"ours": pytest.approx(80.5), "paper": 77.6}
    changes = {change["scheme"]: change for change in task["changes"]}
    assert changes["baseline(kept=mha)"]["ours"]["points"] == pytest.approx(7.0)
    assert changes["baseline(kept=output)"]["ours"] is None


def test_what_cannot_be_shown_is_one_line(refused, tmp_path):
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
        assert says in refused("analyze", "bottleneck", tmp_path / name)


def test_entropy_of_a_file_and_a_folder_is_the_same(as_json, student, packed_file):
    mine, other = as_json("analyze", "entropy", packed_file, student, "--text", "a fine film").values()
    assert mine == other
    assert len(mine["attention"]) == len(mine["attention"][0]) == 2


@pytest.mark.parametrize("command", ["entropy", "theory"])
def test_the_model_in_the_package_is_known_by_its_name(bibert, command, capsys):
    sizes = ["--samples", "10", "--rows", "8"] if command == "theory" else []
    assert bibert("analyze", command, "sst2", "--text", "a fine film", *sizes, "--json") == 0
    assert "bibert_plus" in capsys.readouterr().out


def test_entropy_of_a_model_is_shown_by_layer_and_by_head(bibert, packed_file, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("a fine film\n\na waste of time\n")
    assert bibert("analyze", "entropy", packed_file, "--texts", texts) == 0
    shown = capsys.readouterr().out
    assert "mean over heads" in shown
    assert "attention_output" in shown
    assert bibert("analyze", "entropy", packed_file, "--texts", texts, "--site", "attention") == 0
    assert "head 1" in capsys.readouterr().out


def test_entropy_through_training_has_the_first_and_the_last_look(bibert, as_json, new_run, tmp_path, capsys):
    runs = new_run("a", "baseline", 0.0), new_run("b", "bibert", 0.95)
    figure = tmp_path / "entropy.svg"
    assert bibert("analyze", "entropy", *runs, "-o", figure) == 0
    shown = capsys.readouterr()
    assert "baseline" in shown.out
    assert "0.950 (0.950)" in shown.out
    assert " 950 " in shown.out
    assert str(figure) in shown.err
    assert figure.read_text().startswith("<?xml")
    facts = as_json("analyze", "entropy", runs[1])["bibert"]
    assert facts["steps"][:3] == [0, 50, 100]
    assert facts["entropy"]["attention"] == [[[0.95, 0.95]] * 2] * 20


def test_direction_through_training(bibert, as_json, new_run, tmp_path, capsys):
    runs = new_run("a", "bibert", 0.9), new_run("b", "bibert", 0.9)
    figure = tmp_path / "direction.pdf"
    assert bibert("analyze", "direction", *runs, "-o", figure) == 0
    assert figure.read_bytes().startswith(b"%PDF")
    shown = capsys.readouterr().out
    assert "a: percent" in shown  # two runs of a scheme are told apart by their folders
    assert "25.0 / 27.5" in shown
    assert "query *" in shown
    assert "0.45 towards, 0.64 away" in shown.replace("\n", " ")
    facts = as_json("analyze", "direction", runs[0])["bibert"]
    assert facts["steps"][0] == 50
    assert facts["direction"]["query"]["matching"][0] == [[0.1, 0.2], [0.3, 0.4]]


def test_one_head_of_a_run_and_a_probe_file_of_something_else(as_json, refused, new_run):
    run = new_run("a", "baseline", 0.25)
    [facts] = as_json("analyze", "direction", run, "--layer", 1, "--head", 0).values()
    assert facts["direction"]["query"]["matching"][0] == [[0.3]]
    [facts] = as_json("analyze", "entropy", run, "--layer", 1, "--head", 1).values()
    assert facts["entropy"]["query"][0] == [[0.9]]
    assert facts["entropy"]["ffn_hidden"][0] == [0.6]
    assert "layers are 0 to 1" in refused("analyze", "entropy", run, "--layer", 2, "--head", 0)
    (run / "probe.jsonl").write_text('{"loss": 1}\n')
    assert "probe.jsonl" in refused("analyze", "entropy", run)


def test_a_student_that_becomes_its_teacher_moves_towards_it(as_json, refused, student, tmp_path):
    from bibert.nn.checkpoint import load_classifier

    for step, size in (("checkpoint-10", 0.05), ("checkpoint-20", 0.0)):
        model = load_classifier(student)
        torch.manual_seed(1)
        for parameter in model.model.parameters():
            parameter.data += size * torch.randn_like(parameter)
        model.model.save_pretrained(tmp_path / step)
        model.tokenizer.save_pretrained(tmp_path / step)
    first, last = tmp_path / "checkpoint-10", tmp_path / "checkpoint-20"
    words = ("--teacher", student, "--text", "a fine film", "--text", "dull\tlong")
    facts = as_json("analyze", "direction", first, last, *words)["checkpoints"]
    assert facts["steps"] == [20]
    for thing in ("query", "key", "value"):
        assert np.array(facts["direction"][thing]["matching"]) == pytest.approx(1, abs=1e-3)
        assert not np.any(facts["direction"][thing]["mismatching"])
    assert "training order" in refused("analyze", "direction", last, first, *words)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("entropy", ["missing"], "--text"),
        ("direction", ["missing"], "probe.jsonl"),
        ("direction", ["missing", "--text", "a"], "go together"),
        ("direction", ["one", "--text", "a", "--teacher", "t"], "two or more"),
        ("entropy", ["missing", "--texts", "none.txt"], "none.txt"),
        ("entropy", ["missing", "-o", "figure.jpg"], ".svg, .pdf, .png"),
        ("entropy", ["missing", "--site", "attention"], "--site"),
        ("entropy", ["missing", "--text", "a", "--layer", "0", "--head", "0"], "--site"),
        ("direction", ["missing", "--layer", "0"], "probe.jsonl"),
        ("entropy", ["sst2", "--text", "a", "--site", "atention"], "did you mean 'attention'?"),
        ("theory", ["sst2"], "go together"),
        ("bottleneck", ["missing", "-o", "figure.jpg"], ".svg, .pdf, .png"),
    ],
)
def test_bad_requests_are_named(refused, command, words, message):
    assert message in refused("analyze", command, *words)


def test_a_line_of_a_file_of_texts_ends_where_the_line_ends_and_nowhere_else(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffa film\u2028of two lines\r\n\na first\ta second\n".encode())
    assert TextOptions(texts=path).load() == ["a film\u2028of two lines", ("a first", "a second")]

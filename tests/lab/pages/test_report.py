"""The report: what it says of a run and of a packed file, and that nothing is there where something is missing."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="pip install 'bibert[plot]' to run this")
pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from bibert.data.metrics import Bin
from bibert.errors import DataError
from bibert.export import pack
from bibert.lab.attention import attention_map
from bibert.lab.look import entropies, load_subject
from bibert.lab.mistakes import Mistake
from bibert.lab.pages import save_page
from bibert.lab.pages.report import Findings, report_page
from bibert.lab.record import load_record
from bibert.nn.checkpoint import load_classifier
from bibert.nn.schemes import get_scheme
from bibert.nn.students import binarize
from bibert.packed.file import save
from bibert.training.provenance import weights_digest

TEXTS = ["a fine film <b>of</b> the year", "dull"]
SECTIONS = {"Results", "Confusion", "Scores", "Entropy", "Worst mistakes", "Direction", "Attention", "Cost", "Training"}
FIXED = re.compile(r"(?:fill|stroke): (#\w{6})(?!; (?:fill|stroke): var)")
EVENTS = [
    {"stage": "dmd", "step": 2, "loss": 3.0, "loss_prediction": 1.0, "learning_rate": 1e-4},
    {"stage": "dmd", "step": 4, "loss": 2.0, "loss_prediction": 0.5, "learning_rate": 5e-5},
    {"stage": "dmd", "step": 4, "eval_dev_accuracy": 0.75, "eval_dev_loss": 0.5, "eval_dev_runtime": 1.0},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, save_untrained: Callable[..., Path]) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "student"
    folder.mkdir()
    names = {0: "negative", 1: "positive"}
    save_untrained(folder / "model", TEXTS, scheme="bibert", max_position_embeddings=32, id2label=names)
    request = {
        "data": {"name": "<i>made up</i>", "sha256": "0" * 64},
        "recipe": {"learning_rate": 1e-4, "weights": {"gold": 0.5}, "seed": 42},
        "scheme": get_scheme("bibert").to_dict(),
    }
    notes = {"request": request, "cpu": "a machine", "metrics": {"dev_accuracy": 0.75}}
    (folder / "run.json").write_text(json.dumps(notes))
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    table = {name: [[0.5, 0.6]] * 2 for name in ("matching", "mismatching", "matching_margin", "mismatching_margin")}
    heads = {name: [[0.9, 1.0]] * 2 for name in ("query", "key", "value", "attention", "context")}
    look = {"stage": "dmd", "entropy": {**heads, "ffn_hidden": [0.5, 0.5]}}
    moved = {"direction": dict.fromkeys(("scores", "query", "key", "value"), table)}
    lines = [{**look, "step": 0}, {**look, **moved, "step": 2}, {**look, **moved, "step": 4}]
    (folder / "probe.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def findings(run: Path) -> Findings:
    """What is measured for a report with labelled rows."""
    subject = load_subject(run)
    attention = attention_map(subject, "bibert", TEXTS[0])
    counted = {
        "confusion": [[3, 1], [0, 4]],
        "scored": "8 rows of test.csv",
        "scores": {"accuracy": 7 / 8, "ece": 0.02},
    }
    counted["baselines"] = {"bag of words": {"accuracy": 0.7}, "always the same label": {"accuracy": 0.5}}
    trusted = {"reliability": [Bin(0.8, 8, 0.85, 7 / 8)], "mistakes": [Mistake(0.86, "positive", "negative", TEXTS[0])]}
    return Findings(entropies(subject.insides(TEXTS)), attention, **counted, **trusted)


def test_a_record_has_what_a_run_wrote_down(run):
    record = load_record(run)
    assert (record.scheme, record.labels) == (get_scheme("bibert"), ("negative", "positive"))
    assert (record.architecture.layers, len(record.log), record.history.moves) == (2, 3, [2, 4])


def test_a_report_in_a_browser_has_every_section_and_asks_nobody(run, findings, browser, tmp_path):
    page = browser.open(save_page(report_page(load_record(run), findings), tmp_path / "report.html"))
    titles = page.evaluate("[...document.querySelectorAll('h2')].map((title) => title.textContent)")
    assert (set(titles), len(titles)) == (SECTIONS, len(SECTIONS))
    assert page.evaluate("document.querySelectorAll('figure').length") == 7
    assert page.evaluate("document.querySelectorAll('i:not([style]), section p b').length") == 0  # texts stay texts
    cells = page.evaluate("[...document.querySelectorAll('td, li p')].map((cell) => cell.textContent)")
    assert {"<i>made up</i>", "gold 0.5", "0.0001"} <= set(cells)
    assert {"3", "1", "75.0 %", "0", "4", "100.0 %", "80.0 %", TEXTS[0]} <= set(cells)
    assert page.evaluate("document.querySelector('#origin details').open") is False
    colours = "[...document.querySelectorAll('td.right, td.wrong')].map((one) => getComputedStyle(one).backgroundColor)"
    (few_right, wrong), (none, right) = np.reshape(page.evaluate(colours), (2, 2)).tolist()
    assert len({few_right, wrong, none, right}) == 4  # by right or wrong, and by the share of the row
    assert page.complaints == []
    assert page.requests == []
    page.close()


def bars(page):
    """Who, and the number at each bar of the results."""
    return re.findall(r"<span>([^<]+)<small>([^<]*)</small></span><i [^>]*></i><b>([^<]+)</b>", page)


def test_scores_stand_beside_those_of_the_training_and_of_models_without_a_network(run, findings, tmp_path):
    rows = "accuracy, 8 rows of test.csv"
    assert bars(report_page(load_record(run), findings)) == [
        ("this model", rows, "87.50 %"),
        ("this model", "dev accuracy, dev set of its training", "75.00 %"),
        ("bag of words", rows, "70.00 %"),
        ("always the same label", rows, "50.00 %"),
    ]
    measured = Findings(scored="9 rows of test.csv", scores={"spearman": 0.5})
    page = report_page(load_record(notes(tmp_path, data={"name": "STS-B"}, recipe={"seed": 1})), measured)
    assert bars(page) == [("this model", "spearman, 9 rows of test.csv", "50.00 %")]


def test_the_teacher_stands_beside_its_student_as_long_as_its_weights_are_the_same(run, tmp_path):
    student = notes(tmp_path, teacher={"name": str(run / "model"), "sha256": weights_digest(run / "model")})
    assert bars(report_page(load_record(student), Findings()))[0][0] == "its teacher"
    changed = notes(tmp_path, teacher={"name": str(run / "model"), "sha256": "0" * 64})
    assert load_record(changed).teacher == {}


def test_many_labels_are_a_list_of_the_most_frequent_confusions(run):
    labels = tuple(f"label {place}" for place in range(20))
    counts = np.eye(20, dtype=int) * 5
    counts[3, 4], counts[6, 7] = 1, 5
    page = report_page(replace(load_record(run), labels=labels), Findings(confusion=counts.tolist(), scored="rows"))
    assert page.index("<td>label 6</td><td>label 7</td><td>5</td><td>50.0 %</td>") < page.index("<td>label 3</td>")
    assert "recall" not in page


def notes(folder, **request):
    """Write the notes of a run that has not logged anything yet."""
    (folder / "run.json").write_text(json.dumps({"request": {"data": {}, "recipe": {}} | request}))
    (folder / "log.jsonl").write_text("")
    return folder


def test_a_report_fits_a_phone_and_follows_the_theme(run, findings, browser, tmp_path):
    path = save_page(report_page(load_record(run), findings), tmp_path / "report.html")
    ink = {}
    for dark in (False, True):
        page = browser.open(path, width=390, height=844, dark=dark)
        assert page.evaluate("document.documentElement.scrollWidth <= 390")
        ink[dark] = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
        page.close()
    assert ink[False] != ink[True]


def test_no_colour_of_a_figure_is_fixed(run, findings):
    assert FIXED.findall(report_page(load_record(run), findings)) == []


def test_figures_are_one_column_on_a_phone_and_none_is_cut(run, findings, browser, tmp_path):
    page = browser.open(save_page(report_page(load_record(run), findings), tmp_path / "report.html"), width=390)
    boxes = "[...document.querySelectorAll('.panels svg')].map((one) => one.getBoundingClientRect())"
    assert page.evaluate(f"{boxes}.every((box) => box.left >= 0 && box.right <= 390)")
    assert page.evaluate(f"new Set({boxes}.map((box) => box.top)).size === {boxes}.length")
    page.close()


def test_a_run_at_its_beginning_has_no_empty_section_and_says_what_would_add_more(tmp_path):
    page = report_page(load_record(notes(tmp_path)), Findings())
    assert "<section" not in page
    assert "--probe-every" in page
    assert "full_precision" in page  # a run without a scheme is a teacher's


def test_a_packed_file_shows_its_bytes_even_if_its_scheme_is_ones_own(run, tmp_path):
    classifier, path = load_classifier(run / "model"), tmp_path / "student.bibert"
    own = replace(classifier.model.config.quantization, name="mine")
    classifier.model.config.scheme = own.to_dict()
    save(pack(classifier, max_length=16, about={"recipe": {"seed": 42}}), path)
    record = load_record(path)
    assert record.scheme == replace(get_scheme("bibert"), name="mine")
    page = report_page(record, Findings())
    assert f"{path.stat().st_size:,}" in page
    assert "<td>seed</td><td>42</td>" in page
    assert re.findall(r"<h2>([^<]*)</h2>", page) == ["Cost"]


def test_a_student_of_several_bits_says_why_nothing_is_seen(tmp_path):
    record = load_record(notes(tmp_path, scheme=get_scheme("baseline(kept=mha)").to_dict()))
    assert not record.has_bits
    assert report_page(record, Findings()).count("--bits 1, 2 and 4") == 1


def test_a_split_student_says_how_it_is_counted(run, tmp_path):
    teacher = load_classifier(run / "model", overrides={"scheme": "full_precision"}).model
    split = binarize(teacher, "binarybert_1-1-2")
    split.save_pretrained(tmp_path / "model")
    record = load_record(notes(tmp_path, scheme=split.config.quantization.to_dict()))
    assert "bibert analyze cost" in report_page(record, Findings())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("run.json", "{", r"run\.json.*train again"), ("config.json", "{}", "run folder")],
)
def test_what_is_not_a_run_is_refused(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        load_record(tmp_path)

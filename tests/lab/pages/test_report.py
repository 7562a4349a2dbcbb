"""The report: what it says of a run and of a packed file, and what it says where something is missing."""

import json
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
from bibert.lab.plots.style import COLOURS, INK
from bibert.lab.record import load_record
from bibert.nn.checkpoint import load_classifier
from bibert.nn.schemes import get_scheme
from bibert.nn.students import binarize
from bibert.packed.file import save

TEXTS = ["a fine film <b>of</b> the year", "dull"]
SECTIONS = ["Results", "Scores", "Training", "Data and recipe", "Entropy", "Direction", "Attention", "Cost"]
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
    counted = {"confusion": [[3, 1], [0, 4]], "scored": "8 rows of test.csv", "scores": {"accuracy": 7 / 8}}
    trusted = {"reliability": [Bin(0.8, 8, 0.85, 7 / 8)], "mistakes": [Mistake(0.86, "positive", "negative", TEXTS[0])]}
    return Findings(entropies(subject.insides(TEXTS)), attention, **counted, **trusted)


def test_a_record_has_what_a_run_wrote_down(run):
    record = load_record(run)
    assert (record.scheme, record.labels) == (get_scheme("bibert"), ("negative", "positive"))
    assert (record.architecture.layers, len(record.log), record.history.moves) == (2, 3, [2, 4])


def test_a_report_in_a_browser_has_every_section_and_asks_nobody(run, findings, browser, tmp_path):
    page = browser.open(save_page(report_page(load_record(run), findings), tmp_path / "report.html"))
    assert page.evaluate("[...document.querySelectorAll('h2')].map((title) => title.textContent)") == SECTIONS
    assert page.evaluate("document.querySelectorAll('figure svg').length") == 7
    assert page.evaluate("document.querySelectorAll('i, b').length") == 0  # texts of users stay texts
    cells = page.evaluate("[...document.querySelectorAll('td')].map((cell) => cell.textContent)")
    assert {"75.00 %", "<i>made up</i>", "gold 0.5", "0.0001"} <= set(cells)
    assert {"3", "1", "75.0 %", "0", "4", "100.0 %", "0.8600", TEXTS[0]} <= set(cells)
    colours = "[...document.querySelectorAll('.right, .wrong')].map((one) => getComputedStyle(one).backgroundColor)"
    (few_right, wrong), (none, right) = np.reshape(page.evaluate(colours), (2, 2)).tolist()
    assert len({few_right, wrong, none, right}) == 4  # by right or wrong, and by the share of the row
    assert page.complaints == []
    assert page.requests == []
    page.close()


def test_scores_on_the_rows_given_stand_beside_those_of_the_training_if_there_are_any(run, findings, tmp_path):
    page = report_page(load_record(run), findings)
    assert "<td>dev accuracy</td><td>75.00 %</td><td>dev set of its training, best evaluation</td>" in page
    assert "<td>accuracy</td><td>87.50 %</td><td>8 rows of test.csv</td>" in page
    measured = Findings(scored="9 rows of test.csv", scores={"spearman": 0.5})
    page = report_page(load_record(notes(tmp_path, data={"name": "STS-B"}, recipe={"seed": 1})), measured)
    assert "<td>spearman</td><td>50.00 %</td><td>9 rows of test.csv</td>" in page


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
    page = report_page(load_record(run), findings)
    figures = page[page.index("<figure>") :].lower()
    for colour in (INK, *COLOURS):
        assert colour.lower() not in figures
    assert "var(--hue-0)" in figures


def test_a_run_at_its_beginning_says_what_is_missing(tmp_path):
    page = report_page(load_record(notes(tmp_path)), Findings())
    assert page.count("<section") == len(SECTIONS)
    assert page.count("--probe-every") == 2  # for entropy and direction
    assert "<figure>" not in page
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


def test_a_student_of_several_bits_says_why_nothing_is_seen(tmp_path):
    record = load_record(notes(tmp_path, scheme=get_scheme("baseline(kept=mha)").to_dict()))
    assert not record.has_bits
    assert report_page(record, Findings()).count("--bits 1, 2 and 4") == 2  # entropy and attention


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

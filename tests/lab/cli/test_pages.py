"""`bibert analyze attention` and `report` on the command line: which files they write and what they refuse."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib", reason="pip install 'bibert[plot]' to run this")

from bibert.data.metrics import calibration_error, reliability
from bibert.errors import BibertError
from bibert.lab.cli.pages import parse_layers
from bibert.packed import file
from bibert.runtime.classifier import load

LABELS = ("positive", "negative", "positive")  # of `rows`
TEXT = "the plot was not bad at all"
MAGIC = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG", ".html": b"<!doctype html>"}


@pytest.fixture
def analyze(bibert, capsys):
    """Exit code and words of `bibert analyze attention ...`."""

    def call(*words):
        code = bibert("analyze", "attention", *words)
        return code, " ".join(capsys.readouterr().err.split())

    return call


def test_a_page_and_figures_of_a_folder_and_its_packed_file(analyze, student, packed_file, tmp_path):
    outputs = [tmp_path / f"attention{end}" for end in MAGIC]
    code, said = analyze(student, packed_file, "-t", TEXT, *(word for path in outputs for word in ("-o", path)))
    assert code == 0, said
    for path in outputs:
        assert path.read_bytes().startswith(MAGIC[path.suffix])
        assert f"{path.name}: written" in said


def test_both_views_and_their_options(analyze, packed_file, tmp_path):
    head, model, page = tmp_path / "head.svg", tmp_path / "model.svg", tmp_path / "page.html"
    assert analyze(packed_file, "-t", TEXT, "-o", head, "--view", "head", "--layer", 1, "--head", 1)[0] == 0
    assert analyze(packed_file, "-t", TEXT, "-o", model, "--layers", "1-1")[0] == 0
    assert analyze(packed_file, "-t", TEXT, "-o", page, "--layer", 1, "--head", 1)[0] == 0
    assert head.read_bytes() != model.read_bytes()
    assert '"head": 1, "layer": 1' in page.read_text("utf-8")


def test_a_pair_of_texts_is_read_as_one(analyze, packed_file, tmp_path):
    pair, alone = (
        analyze(packed_file, "-t", TEXT, *words, "-o", tmp_path / "page.html")[1]
        for words in (["--pair", "a film"], [])
    )
    counts = [int(re.search(r"bibert: (\d+) tokens", said)[1]) for said in (pair, alone)]
    assert counts[0] > counts[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "x.txt"], ".html, a figure in .svg, .pdf, .png"),
        (["-o", "x.svg", "--layer", "9", "--view", "head"], "layer 9"),
        (["-o", "x.svg", "--layers", "0-9"], "0 to 1"),
        (["-o", "x.svg", "--layers", "3-0"], "such as 0-3"),
        (["-o", "x.html", "--layers", "0-1"], "-o model.svg"),
        (["-o", "x.svg", "--layer", "1"], "--view head or a page"),
        (["-o", "x.html", "--view", "head"], "-o head.svg"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line_and_nothing_is_written(
    analyze, packed_file, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    code, said = analyze(packed_file, "-t", TEXT, *words)
    assert code == 2
    assert message in said
    assert list(tmp_path.iterdir()) == []


def test_layers_are_read_as_a_range_with_its_end_and_nothing_else():
    assert [list(parse_layers(words)) for words in ("0-3", "5", "2-2")] == [[0, 1, 2, 3], [5], [2]]
    for words in ("", "-", "1-", "-1", "a-b", "1-2-3", "3-1", "1,2"):
        with pytest.raises(BibertError, match="--layers"):
            parse_layers(words)


@pytest.fixture
def report(bibert, tmp_path):
    """The text of the report of a model."""

    def write(model, *words):
        assert bibert("analyze", "report", "-m", model, *words, "-o", tmp_path / "report.html") == 0
        return (tmp_path / "report.html").read_text()

    return write


def test_a_report_of_a_file_with_labelled_rows(report, packed_file, rows, tmp_path, capsys):
    warm = tmp_path / "warm.bibert"
    file.save(replace(file.load(packed_file), temperature=2.0), warm)
    text = report(warm, rows)
    assert f"{(tmp_path / 'report.html').stat().st_size:,} bytes" in capsys.readouterr().err
    answers = [answer["label"] for answer in load(packed_file).predict(["a fine film", "a dull film", "a film"])]
    right = 100 * sum(map(str.__eq__, answers, LABELS)) / 3
    assert f'accuracy, 3 rows of dev.csv</small></span><i style="--share: {right:.1f}%">' in text
    assert "always the same label" in text
    assert "bag of words<small>" not in text
    assert "bag of words<small>" in report(warm, rows, "--train", rows)
    assert "gold \\ answer" in text
    scores = load(warm).predict_proba(["a fine film", "a dull film", "a film"])
    assert f"is {100 * calibration_error(reliability(scores, [1, 0, 1])):.1f} points" in text
    wrong = [score for answer, gold, score in zip(answers, LABELS, scores.max(axis=1), strict=True) if answer != gold]
    assert re.findall(r"(?:posi|nega)tive (\d\.\d{4})<", text) == [
        f"{score:.4f}" for score in sorted(wrong, reverse=True)
    ]
    assert wrong
    assert "gold \\ answer" not in report(packed_file)


def test_both_texts_of_a_pair_are_read(report, packed_file, tmp_path):
    rows = tmp_path / "pairs.csv"
    rows.write_text("text,text2,label\na fine film,two hours,positive\ndull,long,negative\n")
    assert "hours [SEP]" in report(packed_file, rows, "--text-column", "text", "--pair-column", "text2")


def test_a_multi_bit_student_gets_its_confusion_matrix_without_a_look_inside(refused, report, student, rows, tmp_path):
    from bibert.nn.checkpoint import load_classifier
    from bibert.nn.students import binarize

    run = tmp_path / "run"
    start = load_classifier(student, overrides={"scheme": "full_precision"})
    binarize(start.model, "ternarybert_2-2-8").save_pretrained(run / "model")
    start.tokenizer.save_pretrained(run / "model")
    scheme = json.loads((run / "model" / "config.json").read_text())["scheme"]
    request = {"data": {"name": "reviews"}, "recipe": {"max_length": 16}, "scheme": scheme}
    (run / "run.json").write_text(json.dumps({"request": request}))
    text = report(run, rows)
    assert "3 rows of dev.csv" in text
    assert "--bits 1, 2 and 4" in text
    shutil.rmtree(run / "model")
    refused("analyze", "report", "-m", run, rows, "-o", tmp_path / "report.html")


@pytest.mark.parametrize(("output", "fact"), [("report.pdf", ".html"), ("no/such/folder/report.html", "folder")])
def test_a_report_that_cannot_be_written_is_refused(output, fact, refused, packed_file, tmp_path):
    assert fact in refused("analyze", "report", "-m", packed_file, "-o", tmp_path / output)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_report_about_long_texts_takes_little_memory(tmp_path):
    rows, page = tmp_path / "rows.csv", tmp_path / "report.html"
    rows.write_text("text,label\n" + f"{'an odd film ' * 50},positive\n" * 8, encoding="utf-8")
    words = ("analyze", "report", str(rows), "--model", "sentiment_4", "-o", str(page))
    code = f"""
from pathlib import Path
from bibert.cli.app import run
assert run({words!r}) == 0
print(Path("/proc/self/status").read_text())
"""
    told = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+)", told)
    assert int(kilobytes) < 300_000

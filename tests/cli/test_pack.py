"""`bibert pack` from a folder to a file: what it prints, what it refuses, and that a refusal leaves nothing."""

import csv
import json
import shutil

import pytest

from bibert.data.examples import Split
from bibert.nn.checkpoint import load_classifier
from bibert.packed.file import load
from bibert.training.evaluate import fit_temperature, predict_logits


@pytest.fixture
def rows(tmp_path):
    """A file of labelled texts."""
    path = tmp_path / "dev.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], ["a fine film", "positive"], ["a dull film", "negative"]])
    return path


def test_a_student_becomes_a_file_that_is_described_and_verified_on_the_rows(bibert, student, rows, tmp_path, capsys):
    out, verified = tmp_path / "model.bibert", []
    for data in ([], ["--data", rows]):
        assert bibert("pack", student, "-o", out, "--max-length", 32, "--json", *data) == 0
        shown = json.loads(capsys.readouterr().out)
        verified.append(shown["verified_rows"])
    packed = load(out)
    assert verified[1] == verified[0] + 2
    assert shown["bytes"] == out.stat().st_size
    assert shown["sha256"] == packed.digest
    assert shown["ratio"] == pytest.approx(shown["float32_bytes"] / shown["bytes"])
    assert packed.max_length == 32
    assert packed.labels == ("negative", "positive")
    assert packed.about["scheme"] == "bibert"


def test_the_result_is_a_table_and_the_next_step_a_message(bibert, student, rows, tmp_path, capsys):
    out = tmp_path / "model.bibert"
    out.write_text("an older file is replaced")
    assert bibert("pack", student, "-o", out, "--max-length", 32, "--data", rows) == 0
    captured = capsys.readouterr()
    assert f"{out.stat().st_size:,}" in captured.out
    assert "2 rows" in captured.err
    assert f"bibert predict -m {out}" in captured.err


@pytest.mark.parametrize(
    ("name", "content"),
    [("texts.csv", "text\na fine film\n"), ("texts.txt", "dull\n"), ("stars.csv", "text,stars\na fine film,five\n")],
)
def test_rows_need_no_label_that_the_model_knows(bibert, student, write, tmp_path, capsys, name, content):
    columns = ["--label-column", "stars"] if "stars" in content else []
    words = ["-o", tmp_path / "model.bibert", "--max-length", 32, "--data", write(name, content), *columns]
    assert bibert("pack", student, *words) == 0
    assert f"verifying it on 1 row of {name} and generated rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trained", "asked", "expected"), [(16, None, 16), (16, 24, 24), (512, None, 64), (None, None, 64)]
)
def test_texts_are_cut_where_training_cut_them_unless_another_length_is_asked_for(
    bibert, student, tmp_path, capsys, trained, asked, expected
):
    shutil.copytree(student, tmp_path / "run" / "model")
    if trained is not None:
        request = {"data": {"name": "reviews", "train": "", "sha256": "ab" * 32}, "recipe": {"max_length": trained}}
        (tmp_path / "run" / "run.json").write_text(json.dumps({"request": request, "metrics": {}}))
    out, length = tmp_path / "model.bibert", [] if asked is None else ["--max-length", asked]
    assert bibert("pack", tmp_path / "run" / "model", "-o", out, *length) == 0
    assert load(out).max_length == expected
    assert f"texts cut after {expected} tokens" in capsys.readouterr().err


def test_the_temperature_is_that_of_the_run_unless_it_is_fitted_on_rows(bibert, student, rows, tmp_path, capsys):
    shutil.copytree(student, tmp_path / "run" / "model")
    request = {"data": {"name": "reviews", "train": "", "sha256": "ab" * 32}, "recipe": {"max_length": 32}}
    notes = {"request": request, "metrics": {}, "temperature": 1.25}
    (tmp_path / "run" / "run.json").write_text(json.dumps(notes))
    out, found = tmp_path / "model.bibert", []
    rows.write_text("text,label\n" + "a fine film,positive\na fine film,negative\na fine film,negative\n" * 3)
    for words in ([], ["--data", rows], ["--data", rows, "--calibrate"]):
        assert bibert("pack", tmp_path / "run" / "model", "-o", out, "--json", *words) == 0
        found.append(json.loads(capsys.readouterr().out)["temperature"])
        assert load(out).temperature == found[-1]
        assert "temperature" not in load(out).about
    assert found[:2] == [1.25, 1.25]
    split = Split(("a fine film",) * 3, None, (1.0, 0.0, 0.0), "")
    assert found[2] == fit_temperature(predict_logits(load_classifier(student), split, 32), split.labels) != 1.25


REFUSED = {
    "another suffix": (["-o", "model.bin"], ".bibert"),
    "no folder": (["-o", "no/model.bibert"], "the folder no does not exist"),
    "too long": (["-o", "m.bibert", "--max-length", "65"], "65, the model has 64 positions"),
    "no rows to fit on": (["-o", "m.bibert", "--calibrate"], "give a file"),
    "a missing file": (["-o", "m.bibert", "--data", "no.csv"], "no.csv"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    bibert, student, tmp_path, capsys, monkeypatch, options, says
):
    monkeypatch.chdir(tmp_path)
    assert bibert("pack", student, *options) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("bibert: error: ")
    assert says in error
    assert list(tmp_path.iterdir()) == []

"""Mistakes are found before torch is imported, and column names are remembered from training to prediction."""

import json
import subprocess
import sys

import pytest

from bibert.packed.file import load

RUN = "import sys; from bibert.cli.app import run; code = run(sys.argv[1:]); print(code, 'torch' in sys.modules)"


def outcome(folder, *words):
    """Exit code, whether torch was imported, and the message of a command in a process of its own."""
    command = [sys.executable, "-c", RUN, *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    code, torch = done.stdout.split()[-2:]
    return int(code), torch == "True", done.stderr


MISTAKES = {
    "train, a missing file": (["train", "missing.csv"], "missing.csv: no such file"),
    "train, a missing column": (["train", "in.csv", "--text-column", "txt"], "no column 'txt'"),
    "train, two missing columns": (["train", "other.csv"], "no text column and no label column among 'a', 'b'"),
    "train, an unknown scheme": (["train", "in.csv", "--scheme", "nope"], "there is no scheme 'nope'"),
    "train, an unknown recipe": (["train", "in.csv", "--recipe", "nope"], "nope: no such recipe"),
    "train, a mistyped checkpoint": (["train", "in.csv", "-c", "bert-base-uncasd"], "bert-base-uncasd: there is no"),
    "finetune, a missing file": (["finetune", "missing.csv", "-c", "bert", "-o", "x"], "missing.csv: no such file"),
    "finetune, a folder that is not there": (["finetune", "in.csv", "-c", "./none", "-o", "x"], "no such folder"),
    "distill, an unknown scheme": (["distill", "in.csv", "-t", "bert", "-o", "x", "-s", "nope"], "no scheme 'nope'"),
    "distill, a missing teacher": (["distill", "in.csv", "-t", "./none", "-o", "x"], "there is no such folder"),
    "pack, a missing folder": (["pack", "./model", "-o", "x.bibert"], "there is no such folder"),
    "pack, a missing file": (["pack", "bert", "-o", "x.bibert", "--data", "missing.csv"], "missing.csv: no such file"),
    "generalize, a missing file": (["generalize", "missing.txt", "-c", "bert", "-o", "x"], "missing.txt: no such"),
}


@pytest.mark.parametrize(("words", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_without_torch(tmp_path, words, says):
    (tmp_path / "in.csv").write_text("text,label\n" + "good,1\nbad,0\n" * 10)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text("{}")
    code, torch, error = outcome(tmp_path, *words)
    assert (code, torch, error.count("\n")) == (2, False, 1)
    assert says in error


def test_card_and_report_of_a_packed_file_need_no_torch(packed_file, tmp_path):
    (tmp_path / "in.csv").write_text("text,label\n" + "good,positive\nbad,negative\n" * 10)
    card = outcome(tmp_path, "card", "in.csv", "--title", "Mine", "-o", "card.md")
    report = outcome(tmp_path, "analyze", "report", "in.csv", "-m", packed_file, "-o", "report.html")
    assert card[:2] == report[:2] == (0, False), card[2] + report[2]


def test_columns_are_remembered_from_training_to_prediction(bibert, tmp_path, start, capsys):
    rows = "".join(f"{word} one;x;{label}\n" for word, label in [("good", "yes"), ("bad", "no")] * 12)
    (tmp_path / "in.csv").write_text(f"body;text;verdict\n{rows}")
    path, run = tmp_path / "in.csv", tmp_path / "run"
    named = ["--text-column", "body", "--label-column", "verdict"]
    assert bibert("train", path, *named, "--start", start, "--set", "max_steps=2", "--max-length", 16, "-o", run) == 0
    notes = json.loads((run / "student" / "run.json").read_text())
    assert notes["request"]["data"]["columns"] == {"text": "body", "label": "verdict"}
    packed = tmp_path / "a.bibert"
    assert bibert("pack", run / "student" / "model", "-o", packed, "--data", path, "--calibrate") == 0
    assert bibert("evaluate", path, "-m", packed) == 0
    assert bibert("evaluate", path, "-m", run / "student") == 0
    capsys.readouterr()
    assert bibert("predict", "-i", path, "-m", packed, "--json") == 0
    (first, *_) = capsys.readouterr().out.splitlines()
    assert list(json.loads(first)) == ["body", "text", "verdict", "label", "score"]
    assert load(packed).about["data"]["columns"] == {"text": "body", "label": "verdict"}
    (tmp_path / "other.csv").write_text("text\ngood\n")  # another file has other columns
    assert bibert("predict", "-i", tmp_path / "other.csv", "-m", packed) == 0

"""`bibert card`: measured figures, the origin that `bibert pack` wrote into the file, and refusals."""

import csv
import json
import shutil

import pytest

NOTES = {
    "request": {
        "data": {"name": "reviews", "source": "reviews.csv", "train": "reviews.csv", "sha256": "ab" * 32},
        "recipe": {"seed": 7, "epochs": 2.0, "batch_size": 8, "learning_rate": 0.001, "max_length": 32},
        "teacher": {"name": "runs/teacher/model", "sha256": "cd" * 32},
    },
    "commit": "1234abc",
    "versions": {"torch": "2.13.0"},
    "cpu": "a processor",
    "date": "2026-11-16",
    "metrics": {"dev_accuracy": 0.75},
}


@pytest.fixture
def run_folder(student, tmp_path):
    """The student as the model of a finished run."""
    folder = tmp_path / "run"
    shutil.copytree(student, folder / "model")
    (folder / "run.json").write_text(json.dumps(NOTES))
    return folder


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "dev.csv"
    with path.open("w", newline="") as file:
        texts = [["a fine film", "positive"], ["a dull film", "negative"], ["a film", "positive"]]
        csv.writer(file).writerows([["text", "label"], *texts])
    return path


def test_the_card_has_measured_figures_and_the_origin_of_the_file(bibert, run_folder, rows, tmp_path):
    packed, card = tmp_path / "m.bibert", tmp_path / "m.md"
    assert bibert("pack", run_folder / "model", "-o", packed, "--max-length", 32) == 0
    words = ("-m", packed, "--title", "Reviews", "--limit", "Films only.", "--teacher", run_folder / "model")
    assert bibert("card", rows, *words, "-o", card, "--licence", "mit") == 0
    text = card.read_text()
    for said in ("# Reviews", "license: mit", f"{packed.stat().st_size:,} bytes", "commit 1234abc", "seed = 7"):
        assert said in text
    assert "| this model, torch | 1-1-1 | 75.00 % | – |" in text  # noted by the run
    assert "| teacher, torch | 32-32-32 | 75.00 % | – |" in text
    assert "- Films only." in text
    counts = [line.split(" | ")[1:] for line in text.splitlines() if line.startswith(("| negative |", "| positive |"))]
    (right_negative, wrong_negative), (wrong_positive, right_positive) = [
        [int(cell.strip(" |")) for cell in line] for line in counts
    ]
    assert right_negative + wrong_negative == 1
    assert wrong_positive + right_positive == 2
    measured = 100 * (right_negative + right_positive) / 3
    assert f"engine | 1-1-1 | {measured:.2f} % |" in text
    assert str(tmp_path) not in text.replace(str(packed), "")  # but for the name it was asked by


def test_a_file_that_does_not_know_its_origin_is_refused(bibert, packed_file, rows, tmp_path, capsys):
    assert bibert("card", rows, "-m", packed_file, "--title", "x", "-o", tmp_path / "x.md") != 0
    assert "does not say by which recipe it was trained; pack it again" in capsys.readouterr().err
    assert not (tmp_path / "x.md").exists()


def test_a_model_outside_a_run_is_packed_without_an_origin(bibert, student, tmp_path, capsys):
    assert bibert("pack", student, "-o", tmp_path / "m.bibert", "--max-length", 32, "--json") == 0
    capsys.readouterr()
    assert bibert("inspect", tmp_path / "m.bibert", "--json") == 0
    assert "recipe" not in json.loads(capsys.readouterr().out)["about"]

"""`bibert card`: measured figures, the origin that `bibert pack` wrote into the file, and refusals."""

import csv
import json
import shutil

import pytest

from bibert.nn.schemes import get_scheme
from bibert.training.provenance import weights_digest

NOTES = {
    "request": {
        "data": {"name": "reviews", "source": "reviews.csv", "train": "reviews.csv", "sha256": "ab" * 32},
        "recipe": {"seed": 7, "epochs": 2.0, "batch_size": 8, "learning_rate": 0.001, "max_length": 32},
    },
    "commit": "1234abc",
    "versions": {"torch": "2.13.0"},
    "cpu": "a processor",
    "date": "2026-11-16",
    "metrics": {"dev_accuracy": 0.75},
}


@pytest.fixture
def teacher(student, tmp_path):
    """The model folder of a teacher in its finished run, of the scheme that the notes name."""
    folder = tmp_path / "teacher" / "model"
    shutil.copytree(student, folder)
    write_notes(folder.parent, metrics={"dev_accuracy": 0.875})
    return folder


@pytest.fixture
def run_folder(student, teacher, tmp_path):
    """The student as the model of a finished run."""
    folder = tmp_path / "run"
    shutil.copytree(student, folder / "model")
    write_notes(folder, teacher={"name": "runs/teacher/model", "sha256": weights_digest(teacher)})
    return folder


def write_notes(folder, metrics=NOTES["metrics"], **request):
    notes = NOTES | {"request": NOTES["request"] | request, "metrics": metrics}
    (folder / "run.json").write_text(json.dumps(notes))


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "dev.csv"
    with path.open("w", newline="") as file:
        texts = [["a fine film", "positive"], ["a dull film", "negative"], ["a film", "positive"]]
        csv.writer(file).writerows([["text", "label"], *texts])
    return path


@pytest.fixture
def written(bibert, tmp_path):
    """The card of the student in a run folder, packed anew, with more words for the command."""

    def write(run, *words):
        packed, card = tmp_path / "m.bibert", tmp_path / "m.md"
        assert bibert("pack", run / "model", "-o", packed) == 0
        assert bibert("card", *words, "-m", packed, "--title", "Reviews", "-o", card) == 0
        return card.read_text()

    return write


def test_the_card_has_measured_figures_and_the_origin_of_the_file(written, run_folder, rows, tmp_path):
    text = written(run_folder, rows, "--limit", "Films only.", "--licence", "mit")
    packed = tmp_path / "m.bibert"
    for said in ("# Reviews", "license: mit", f"{packed.stat().st_size:,} bytes", "commit 1234abc", "seed = 7"):
        assert said in text
    assert "distilled from a teacher. Recipe" in text
    assert "It comes from one run, with seed 7. Scores are the softmax of the logits" in text
    assert "- Films only." in text
    counts = [line.split(" | ")[1:] for line in text.splitlines() if line.startswith(("| negative |", "| positive |"))]
    (right_negative, wrong_negative), (wrong_positive, right_positive) = [
        [int(cell.strip(" |")) for cell in line] for line in counts
    ]
    assert right_negative + wrong_negative == 1
    assert wrong_positive + right_positive == 2
    measured = 100 * (right_negative + right_positive) / 3
    assert f"engine | 1-1-1 | {measured:.2f} % |" in text
    assert f"| 0 to 9 | 3 | {measured:.1f} % |" in text  # by the words of a text
    assert str(tmp_path) not in text.replace(str(packed), "")  # but for the name it was asked by


def test_figures_that_a_run_noted_are_not_said_to_be_of_the_rows_of_a_file(written, run_folder, teacher, rows):
    text = written(run_folder, rows, "--teacher", teacher)
    assert "The file was measured on 3 labelled rows (dev.csv); whether its training used them is not noted." in text
    assert "| teacher, torch, dev set of its run | 32-32-32 | 87.50 % | – |" in text
    assert "| this model, torch, dev set of its run | 1-1-1 | 75.00 % | – |" in text
    assert "selected on these rows" not in text


def test_the_dev_set_of_its_own_task_is_said_to_have_selected_the_model(written, run_folder, teacher, tmp_path):
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\na fine film\t1\na dull film\t0\n")
    asked = (tmp_path, "--task", "sst-2", "--teacher", teacher)
    other = written(run_folder, *asked)
    assert "measured on 2 labelled rows (SST-2, dev); whether" in other
    data = NOTES["request"]["data"] | {"name": "SST-2"}
    write_notes(run_folder, data=data)
    text = written(run_folder, *asked)
    assert "On 2 labelled rows (SST-2, dev). The model was selected on these rows" in text
    assert "| this model, torch | 1-1-1 | 75.00 % |" in text
    assert "| teacher, torch, dev set of its run | 32-32-32 | 87.50 % |" in text
    assert "- Teacher: reviews, seed = 7" in text
    write_notes(teacher.parent, data=data)
    assert "| teacher, torch | 32-32-32 | 75.00 % |" in written(run_folder, *asked)


@pytest.mark.parametrize(
    ("scheme", "called", "bits"),
    [
        (None, "a full-precision teacher", "32-32-32"),
        ("bibert(scaled_context=true)", "a teacher of scheme `bibert(scaled_context=true)` (1-1-1 bits)", "1-1-1"),
        ("binarybert_1-1-2", "a teacher of scheme `binarybert_1-1-2` (1-1-2 bits)", "1-1-2"),
    ],
)
def test_the_teacher_is_called_by_its_scheme(scheme, called, bits, written, run_folder, teacher, rows):
    write_notes(teacher.parent, **({} if scheme is None else {"scheme": get_scheme(scheme).to_dict()}))
    text = written(run_folder, rows, "--teacher", teacher)
    assert f"distilled from {called}. Recipe" in text
    assert f"| teacher, torch, dev set of its run | {bits} |" in text


def test_what_the_training_started_from_is_said_with_its_data_and_recipe(written, run_folder, student, rows, tmp_path):
    shutil.copytree(student, tmp_path / "first" / "model")
    scheme = get_scheme("bibert").to_dict()
    data = NOTES["request"]["data"] | {"train": "first.csv"}
    write_notes(tmp_path / "first", metrics={"dev_accuracy": 0.625}, scheme=scheme, data=data)
    start = {"name": str(tmp_path / "first" / "model"), "sha256": weights_digest(tmp_path / "first" / "model")}
    write_notes(run_folder, start=start)
    text = written(run_folder, rows)
    assert "- Started from a model of scheme `bibert` with dev_accuracy 0.6250. Data: reviews, first.csv" in text
    assert "seed = 7, epochs = 2.0" in text.split("Started from", 1)[1]


def test_a_start_that_no_run_made_is_known_by_its_digest_alone(written, run_folder, student, rows):
    write_notes(run_folder, start={"name": str(student), "sha256": "cd" * 32})
    said = "- Started from a model that is not of a run of bibert; "
    assert f"{said}the SHA-256 of its weights is {'cd' * 8}…" in written(run_folder, rows)
    write_notes(run_folder, start={"name": "owner/bert", "sha256": None})
    assert f"{said}it is on the Hub." in written(run_folder, rows)


def test_a_teacher_that_nothing_is_known_of_is_refused(bibert, run_folder, teacher, rows, tmp_path, capsys):
    packed = tmp_path / "m.bibert"
    assert bibert("pack", run_folder / "model", "-o", packed) == 0
    words = ("card", rows, "-m", packed, "--title", "x", "-o", tmp_path / "x.md", "--teacher")
    alone = tmp_path / "alone"
    shutil.copytree(teacher, alone)
    refused = {alone: "lies in no finished run", tmp_path / "nowhere": "there is no such folder"}
    for folder, message in refused.items():
        assert bibert(*words, folder) == 2
        assert f"{folder}: {message}" in capsys.readouterr().err
    (teacher / "model.safetensors").write_bytes(b"other weights")
    assert bibert(*words, teacher) == 2
    assert f"{teacher}: is not the teacher of this file: the SHA-256 of its weights" in capsys.readouterr().err
    assert not (tmp_path / "x.md").exists()


def test_a_model_of_scores_has_no_softmax_and_no_confusion(written, save_untrained, tmp_path):
    run, rows = tmp_path / "run", tmp_path / "dev.csv"
    rows.write_text("text,label\na fine film,4.5\na dull film,1\na film,3\n")
    one = {"id2label": {0: "score"}, "label2id": {"score": 0}, "max_position_embeddings": 64}
    save_untrained(run / "model", ["a fine film", "a dull film"], scheme="bibert", **one)
    write_notes(run, metrics={"dev_spearman": 0.5})
    text = written(run, rows)
    assert "| this model, torch, dev set of its run | 1-1-1 | 50.00 % | – |" in text
    assert "The score is the output of the network and was not calibrated." in text
    assert "gold" not in text


def test_a_file_that_does_not_know_its_origin_is_refused(bibert, packed_file, rows, tmp_path, capsys):
    assert bibert("card", rows, "-m", packed_file, "--title", "x", "-o", tmp_path / "x.md") != 0
    assert "does not say by which recipe it was trained; pack it again" in capsys.readouterr().err
    assert not (tmp_path / "x.md").exists()


def test_a_model_outside_a_run_is_packed_without_an_origin(bibert, student, tmp_path, capsys):
    assert bibert("pack", student, "-o", tmp_path / "m.bibert", "--max-length", 32, "--json") == 0
    capsys.readouterr()
    assert bibert("inspect", tmp_path / "m.bibert", "--json") == 0
    assert "recipe" not in json.loads(capsys.readouterr().out)["about"]

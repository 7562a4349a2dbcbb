"""`bibert card`: measured figures, the origin that `bibert pack` wrote into the file, and refusals."""

import json
import shutil
from dataclasses import replace

import pytest

from bibert.data.metrics import calibration_error, reliability
from bibert.nn.schemes import get_scheme
from bibert.packed import file
from bibert.runtime.classifier import load
from bibert.training.provenance import weights_digest

NOTES = {
    "request": {
        "data": {"name": "reviews", "source": "reviews.csv", "train": "reviews.csv", "sha256": "ab" * 32},
        "recipe": {"seed": 7, "epochs": 2.0, "batch_size": 8, "learning_rate": 0.001, "max_steps": 9, "min_steps": 0},
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
def written(bibert, tmp_path):
    """The card of the student in a run folder, packed anew, with more words for the command."""

    def write(run, *words):
        packed, card = tmp_path / "m.bibert", tmp_path / "m.md"
        assert bibert("pack", run / "model", "-o", packed) == 0
        assert bibert("card", *words, "-m", packed, "--title", "Reviews", "-o", card) == 0
        return card.read_text()

    return write


def cells_of(text, first):
    """The other cells of the table row whose first cell begins with `first`."""
    [line] = [line for line in text.splitlines() if line.startswith(f"| {first}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_card_has_measured_figures_and_the_origin_of_the_file(written, run_folder, rows, tmp_path):
    text = written(run_folder, rows, "--limit", "Films only.", "--licence", "mit")
    packed = tmp_path / "m.bibert"
    for fact in ("# Reviews", "license: mit", f"{packed.stat().st_size:,} bytes", "commit 1234abc", "seed = 7"):
        assert fact in text
    assert "- Films only." in text
    negative, positive = ([int(count) for count in cells_of(text, name)] for name in ("negative", "positive"))
    assert (sum(negative), sum(positive)) == (1, 2)
    measured = 100 * (negative[0] + positive[1]) / 3
    assert cells_of(text, "this file")[:2] == ["1-1-1", f"{measured:.2f} %"]
    assert cells_of(text, "0 to 9") == ["3", f"{measured:.1f} %"]  # by the words of a text
    assert cells_of(text, "all (")[::2] == ["3", f"{measured:.1f} %"]  # by score
    assert str(tmp_path) not in text.replace(str(packed), "")  # but for the name it was asked by


def test_the_card_has_the_calibration_at_the_temperature_and_quotes_the_worst_mistakes(written, run_folder, tmp_path):
    notes = json.loads((run_folder / "run.json").read_text())
    (run_folder / "run.json").write_text(json.dumps(notes | {"temperature": 2.5}))
    rows, texts = tmp_path / "rows.csv", ["a fine | film <b>*", f"dull {'film ' * 90}"]
    rows.write_text("text,label\n" + "".join(f"{text},{name}\n" for text in texts for name in ("positive", "negative")))
    text, classifier = written(run_folder, rows), load(tmp_path / "m.bibert")
    assert classifier.temperature == 2.5
    assert "logits / 2.5" in text
    scores, gold = classifier.predict_proba([text for text in texts for _ in range(2)]), [1, 0, 1, 0]
    error = calibration_error(reliability(scores, gold))
    assert cells_of(text, "all (")[-1] == f"{100 * error:.1f} %"
    long = cells_of(text, f"{scores[2].max():.4f}")[-1]
    assert "a fine \\| film \\<b\\>\\*" in text
    assert long.endswith("…")
    assert len(long) < 250


def test_recorded_figures_are_attributed_to_the_rows_they_were_measured_on(
    written, run_folder, teacher, rows, tmp_path
):
    text = written(run_folder, rows, "--teacher", teacher)
    assert "3 labelled rows (dev.csv)" in text
    assert cells_of(text, "teacher, torch, dev set of its run") == ["32-32-32", "87.50 %", "–"]
    assert cells_of(text, "this model, torch, dev set of its run") == ["1-1-1", "75.00 %", "–"]
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\na fine film\t1\na dull film\t0\n")
    asked = (tmp_path, "--task", "sst-2", "--teacher", teacher)
    assert "2 labelled rows (SST-2, dev)" in written(run_folder, *asked)
    data = NOTES["request"]["data"] | {"name": "SST-2"}
    write_notes(run_folder, data=data)
    text = written(run_folder, *asked)
    assert cells_of(text, "this model, torch |")[-1] == "75.00 %"
    assert cells_of(text, "teacher, torch, dev set of its run")[-1] == "87.50 %"
    assert "- Teacher: reviews, seed = 7" in text
    write_notes(teacher.parent, data=data)
    assert cells_of(written(run_folder, *asked), "teacher, torch |")[-1] == "75.00 %"


@pytest.mark.parametrize(
    ("scheme", "called", "bits"),
    [
        (None, "full-precision", "32-32-32"),
        ("bibert(scaled_context=true)", "`bibert(scaled_context=true)` (1-1-1 bits)", "1-1-1"),
        ("binarybert_1-1-2", "`binarybert_1-1-2` (1-1-2 bits)", "1-1-2"),
    ],
)
def test_the_teacher_is_called_by_its_scheme(scheme, called, bits, written, run_folder, teacher, rows):
    write_notes(teacher.parent, **({} if scheme is None else {"scheme": get_scheme(scheme).to_dict()}))
    text = written(run_folder, rows, "--teacher", teacher)
    assert called in next(line for line in text.splitlines() if "distilled from" in line)
    assert cells_of(text, "teacher, torch")[0] == bits


def test_the_model_that_training_started_from_is_described(
    written, run_folder, student, packed_file, rows, tmp_path, bibert
):
    shutil.copytree(student, tmp_path / "first" / "model")
    scheme = get_scheme("bibert").to_dict()
    data = NOTES["request"]["data"] | {"train": "first.csv"}
    write_notes(tmp_path / "first", metrics={"dev_accuracy": 0.625}, scheme=scheme, data=data)
    start = {"name": str(tmp_path / "first" / "model"), "sha256": weights_digest(tmp_path / "first" / "model")}
    unknown = {"name": str(student), "sha256": "cd" * 32}
    on_the_hub = {"name": "owner/bert", "sha256": None}
    facts = ("`bibert`", "0.6250", "reviews, first.csv", "seed = 7, epochs = 2.0, max_steps = 9, batch")
    packed = {"name": str(packed_file), "sha256": "cd" * 32}
    cases = (start, facts), (unknown, [f"{'cd' * 8}…"]), (on_the_hub, ["Hub"]), (packed, ["packed file student.bibert"])
    for started, expected in cases:
        write_notes(run_folder, start=started)
        text = written(run_folder, rows)
        [line] = [line for line in text.splitlines() if line.startswith("- Started from")]
        assert all(fact in line for fact in expected)
        assert "trained on labels alone. Recipe" in text
    odd, model = tmp_path / "odd.bibert", file.load(tmp_path / "m.bibert")
    file.save(replace(model, about={**model.about, "start": "y"}), odd)
    assert bibert("card", rows, "-m", odd, "--title", "x", "-o", tmp_path / "x.md") == 0


def test_a_teacher_without_notes_or_with_other_weights_is_refused(bibert, refused, run_folder, teacher, rows, tmp_path):
    packed = tmp_path / "m.bibert"
    assert bibert("pack", run_folder / "model", "-o", packed) == 0
    words = ("card", rows, "-m", packed, "--title", "x", "-o", tmp_path / "x.md", "--teacher")
    alone = tmp_path / "alone"
    shutil.copytree(teacher, alone)
    (teacher / "model.safetensors").write_bytes(b"other weights")
    for folder, fact in ((alone, "run"), (tmp_path / "nowhere", "no such"), (teacher, "SHA-256")):
        error = refused(*words, folder)
        assert f"{folder}: " in error
        assert fact in error
    assert not (tmp_path / "x.md").exists()


def test_a_model_of_scores_has_no_confusion(written, save_untrained, tmp_path):
    run, rows = tmp_path / "run", tmp_path / "dev.csv"
    rows.write_text("text,label\na fine film,4.5\na dull film,1\na film,3\n")
    one = {"id2label": {0: "score"}, "label2id": {"score": 0}, "max_position_embeddings": 64}
    save_untrained(run / "model", ["a fine film", "a dull film"], scheme="bibert", **one)
    write_notes(run, metrics={"dev_spearman": 0.5})
    text = written(run, rows)
    assert cells_of(text, "this model, torch") == ["1-1-1", "50.00 %", "–"]
    assert "softmax" not in text
    assert "gold" not in text


def test_a_file_that_does_not_know_its_origin_is_refused(refused, packed_file, rows, tmp_path):
    words = ("card", rows, "-m", packed_file, "--title", "x", "-o", tmp_path / "x.md")
    assert "recipe; pack it again" in refused(*words)
    assert not (tmp_path / "x.md").exists()


def test_a_model_outside_a_run_is_packed_without_an_origin(as_json, student, tmp_path):
    as_json("pack", student, "-o", tmp_path / "m.bibert", "--max-length", 32)
    assert "recipe" not in as_json("inspect", tmp_path / "m.bibert")["about"]

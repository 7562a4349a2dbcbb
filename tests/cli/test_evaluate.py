"""`bibert evaluate` of a packed file: the metrics of its folder, without torch, and what is refused."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from bibert.data.columns import Columns
from bibert.data.metrics import calibration_error, reliability
from bibert.data.tables import load_split
from bibert.lab.synthetic import make_reviews
from bibert.packed.file import load, save
from bibert.runtime import classifier as classifiers

LENGTH = ["--max-length", "32"]  # at which the file was packed


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """60 labelled sentences as a CSV file."""
    path = tmp_path_factory.mktemp("rows") / "test.csv"
    split = make_reviews(60, seed=3)
    names = ("negative", "positive")
    lines = [f'"{text}",{names[int(label)]}' for text, label in zip(split.texts, split.labels, strict=True)]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def figures(bibert, capsys):
    """What `bibert evaluate --json` prints for some words."""

    def read(*words):
        assert bibert("evaluate", *words, "--json") == 0
        return json.loads(capsys.readouterr().out)

    return read


def test_a_packed_file_has_the_figures_of_its_folder(figures, student, packed_file, rows):
    of_file = figures(rows, "--model", packed_file)["bibert"]
    of_folder = figures(rows, "--model", student, *LENGTH)["bibert"]
    assert of_file["metrics"] == of_folder["metrics"]
    assert of_file["metrics"].keys() == {"accuracy", "macro_f1", "ece"}
    assert of_file["classes"] == of_folder["classes"]
    assert (of_file["model"], of_folder["model"]) == (str(packed_file), str(student))


def test_more_rows_than_a_window_are_all_scored(figures, packed_file, rows, monkeypatch):
    expected = figures(rows, "--model", packed_file)
    monkeypatch.setattr("bibert.runtime.classifier.WINDOW", 7)
    assert figures(rows, "--model", packed_file) == expected


def test_the_table_says_accuracy_and_the_line_before_it_of_what(bibert, packed_file, rows, capsys):
    assert bibert("evaluate", rows, "--model", packed_file) == 0
    said = capsys.readouterr()
    assert f"{packed_file} on 60 rows of test.csv, texts cut after 32 tokens" in said.err
    head = [cell.strip() for cell in said.out.splitlines()[1].strip("┃").split("┃")]
    assert head == ["model", "accuracy", "macro f1", "ece", "where"]
    assert re.search(r"class .*precision .*recall .*f1 .*support", said.out)
    assert {"negative", "positive"} <= set(re.findall(r"^│ (\w+)", said.out, re.MULTILINE))


def test_the_model_in_the_package_is_scored_by_its_name(figures, tmp_path):
    rows = tmp_path / "two.csv"
    rows.write_text('text,label\n"a gorgeous, witty film",positive\na waste of time,negative\n')
    [(scheme, found)] = figures(rows, "--model", "sst2").items()
    assert (scheme, found["model"]) == ("bibert_plus", "sst2")
    assert found["metrics"] == {"accuracy": 1.0, "macro_f1": 1.0, "ece": pytest.approx(0, abs=0.05)}
    perfect = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}
    assert found["classes"] == {"all": {"negative": perfect, "positive": perfect}}


def test_the_calibration_error_is_that_of_the_scores_at_the_temperature(figures, student, packed_file, rows, tmp_path):
    warm = tmp_path / "warm.bibert"
    save(replace(load(packed_file), temperature=1.75), warm)
    shutil.copytree(student, tmp_path / "run" / "model")
    request = {"data": {"name": "", "train": "", "sha256": ""}, "recipe": {"max_length": 32}}
    (tmp_path / "run" / "run.json").write_text(json.dumps({"request": request, "metrics": {}, "temperature": 1.75}))
    of_file, of_run = (figures(rows, "--model", model)["bibert"] for model in (warm, tmp_path / "run"))
    assert of_file["metrics"] == of_run["metrics"]
    assert of_file["temperature"] == of_run["temperature"] == 1.75
    split = load_split(rows, Columns(), ("negative", "positive"))
    expected = calibration_error(reliability(classifiers.load(warm).predict_proba(split.texts), split.labels))
    assert of_file["metrics"]["ece"] == pytest.approx(expected)


def test_scores_have_neither_classes_nor_a_calibration_error(figures, save_untrained, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na fine film,4.5\na dull film,1\na film,3\n")
    save_untrained(tmp_path / "model", ["a fine film"], id2label={0: "score"}, label2id={"score": 0})
    [found] = figures(rows, "--model", tmp_path / "model").values()
    assert (found["metrics"].keys(), found["classes"]) == ({"spearman", "pearson"}, {})


def test_pairs_are_evaluated_and_counted_as_pairs(figures, bibert, student, packed_file, tmp_path, capsys):
    rows = tmp_path / "pairs.csv"
    rows.write_text("first,second,label\na fine film,two hours,positive\ndull,long,negative\ngood,bad,negative\n")
    words = [rows, "--text-column", "first", "--pair-column", "second"]
    expected = figures(*words, "--model", student, *LENGTH)["bibert"]["metrics"]
    assert figures(*words, "--model", packed_file)["bibert"]["metrics"] == expected
    assert bibert("evaluate", *words, "--model", packed_file) == 0
    assert "on 3 pairs of pairs.csv" in capsys.readouterr().err


def test_a_folder_with_one_packed_file_is_that_file(figures, packed_file, rows, tmp_path):
    shutil.copy(packed_file, tmp_path / "reviews.bibert")
    assert figures(rows, "-m", tmp_path)["bibert"]["metrics"] == figures(rows, "-m", packed_file)["bibert"]["metrics"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-length", "16"], "32 tokens; leave --max-length 16 out"),
        (["--label-column", "sentiment"], "sentiment"),
        (["--task", "mnli"], "MNLI has the labels"),
        (["--model", "."], "config.json"),
        (["--model", "no.bibert"], "no.bibert"),
    ],
)
def test_a_mistake_is_one_line(words, message, bibert, packed_file, rows, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bibert("evaluate", rows, "--model", packed_file, *words) == 2
    said = capsys.readouterr()
    assert message in said.err.splitlines()[-1]
    assert said.out == ""

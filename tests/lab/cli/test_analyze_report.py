"""`bibert analyze report` on the command line; the page itself is tested in tests/analysis."""

import pytest

pytest.importorskip("jinja2", reason="pip install 'bibert[plot]' to run this")


@pytest.fixture
def rows(tmp_path):
    """Labelled rows."""
    path = tmp_path / "dev.csv"
    path.write_text("text,label\na fine film,positive\na waste of time,negative\n")
    return path


def bibert_accuracy(packed):
    """Of the file on `rows`."""
    from bibert.runtime.classifier import load

    answers = load(packed).predict(["a fine film", "a waste of time"])
    return sum(answer["label"] == gold for answer, gold in zip(answers, ("positive", "negative"), strict=True)) / 2


def test_a_report_of_a_file_with_labelled_rows(bibert, packed_file, rows, tmp_path, capsys):
    page = tmp_path / "report.html"
    assert bibert("analyze", "report", "-m", packed_file, rows, "-o", page) == 0
    text = page.read_text()
    assert "gold \\ answer" in text
    right = bibert_accuracy(packed_file)
    assert f"<td>accuracy</td><td>{100 * right:.2f} %</td><td>2 rows of dev.csv</td>" in text
    assert f"{page.stat().st_size:,} bytes" in capsys.readouterr().err


def test_a_report_without_rows_says_how_to_get_more(bibert, packed_file, tmp_path):
    page = tmp_path / "report.html"
    assert bibert("analyze", "report", "-m", packed_file, "-o", page) == 0
    assert "--task" in page.read_text()


def test_both_texts_of_a_pair_are_read(bibert, packed_file, tmp_path):
    rows, page = tmp_path / "pairs.csv", tmp_path / "report.html"
    rows.write_text("text,text2,label\na fine film,two hours,positive\ndull,long,negative\n")
    words = ("--text-column", "text", "--pair-column", "text2")
    assert bibert("analyze", "report", "-m", packed_file, rows, *words, "-o", page) == 0
    assert "hours [SEP]" in page.read_text()


def test_a_multi_bit_student_gets_its_confusion_matrix_without_a_look_inside(bibert, student, rows, tmp_path):
    import json
    import shutil

    from bibert.nn.checkpoint import load_classifier
    from bibert.nn.students import binarize

    run, page = tmp_path / "run", tmp_path / "report.html"
    classifier = load_classifier(student)
    start = load_classifier(student, overrides={"scheme": "full_precision"})
    binarize(start.model, "ternarybert_2-2-8").save_pretrained(run / "model")
    classifier.tokenizer.save_pretrained(run / "model")
    scheme = json.loads((run / "model" / "config.json").read_text())["scheme"]
    request = {"data": {"name": "reviews"}, "recipe": {"max_length": 16}, "scheme": scheme}
    (run / "run.json").write_text(json.dumps({"request": request}))
    assert bibert("analyze", "report", "-m", run, rows, "-o", page) == 0
    text = page.read_text()
    assert "2 rows of dev.csv" in text
    assert "single bits" in text
    shutil.rmtree(run / "model")
    assert bibert("analyze", "report", "-m", run, rows, "-o", page) == 2


@pytest.mark.parametrize(("output", "message"), [("report.pdf", ".html"), ("no/such/folder/report.html", "folder")])
def test_a_place_that_cannot_be_is_refused(output, message, bibert, packed_file, tmp_path, capsys):
    assert bibert("analyze", "report", "-m", packed_file, "-o", tmp_path / output) == 2
    assert message in capsys.readouterr().err

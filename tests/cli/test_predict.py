"""`bibert predict` as a user calls it: texts, standard input, files, and everything that can go wrong on the way."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet
import pytest

from bibert.errors import EngineError
from bibert.packed.file import load, save
from bibert.runtime import classifier as classifiers

TEXTS = ["a gorgeous film", "dull", "", "not a bad film at all , but not good either", "unwatchable"]


@pytest.fixture(scope="session")
def answers(packed_file):
    """What the library says of `TEXTS`."""
    with classifiers.load(packed_file) as classifier:
        return classifier.predict(TEXTS)


@pytest.fixture
def predict(bibert, packed_file, capsysbinary):
    """The exit code, standard output and standard error of a call."""

    def call(*words):
        code = bibert("predict", "--model", packed_file, *words)
        captured = capsysbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return call


@pytest.fixture
def stdin(monkeypatch):
    """Replace standard input by some bytes."""

    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def plain(answers, texts=TEXTS):
    rows = zip(answers, texts, strict=True)
    return "".join(f"{answer['label']}\t{answer['score']:.4f}\t{text}\n" if text else "\t\t\n" for answer, text in rows)


BLANK = "texts without a word: 1; they got no label\n"  # one of `TEXTS` is empty


def started(packed_file, *words, **options):
    """The program in a process of its own."""
    command = [sys.executable, "-m", "bibert", "predict", "--model", packed_file, *words]
    return subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, **options)


def test_texts_are_answered_with_label_score_and_text(predict, answers):
    assert predict(*TEXTS) == (0, plain(answers), BLANK)


def test_lines_of_standard_input_are_answered_line_by_line(predict, stdin, answers):
    stdin("\n".join(TEXTS).encode())
    assert predict() == (0, plain(answers), BLANK)
    stdin("\r\n".join(TEXTS).encode() + b"\r\n")
    assert predict("--input", "-") == (0, plain(answers), BLANK)
    stdin(b"")
    assert predict() == (0, "", "")


def test_answers_can_be_json_lines_with_all_probabilities(predict, answers):
    code, out, _ = predict(*TEXTS, "--json", "--proba")
    assert code == 0
    for line, text, answer in zip(out.splitlines(), TEXTS, answers, strict=True):
        values = json.loads(line)
        if not text:
            names = ("label", "score", "score_negative", "score_positive")
            assert values == {"text": "", **dict.fromkeys(names), "label": ""}
            continue
        assert (values["text"], values["label"]) == (text, answer["label"])
        assert values["score"] == pytest.approx(answer["score"], rel=1e-6)
        assert values["score_negative"] + values["score_positive"] == pytest.approx(1)


def test_rows_below_the_least_score_get_an_empty_label_and_are_counted(predict, answers, tmp_path):
    scores = sorted(answer["score"] for answer, text in zip(answers, TEXTS, strict=True) if text)
    least = (scores[1] + scores[2]) / 2
    expected = [{**answer, "label": answer["label"] if answer["score"] > least else ""} for answer in answers]
    expected[TEXTS.index("")]["label"] = ""
    code, out, said = predict(*TEXTS, "--min-score", least)
    assert (code, out) == (0, plain(expected))
    assert f"scores below {least:g}: 2;" in said
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(f'"{text}"\n' for text in ["text", *TEXTS]))
    assert predict("--input", rows, "--output", tmp_path / "out.csv", "--min-score", least)[0] == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [row["label"] for row in expected]
    code, out, said = predict("a film", "--min-score", 1.5, "--output", tmp_path / "refused.txt")
    assert (code, out, (tmp_path / "refused.txt").exists()) == (2, "", False)
    assert "min_score is 1.5, must" in said


def test_probabilities_have_names_in_plain_lines(predict):
    code, out, _ = predict("a film", "--proba")
    label, score, negative, positive, text = out.rstrip("\n").split("\t")
    assert (code, text) == (0, "a film")
    assert {"negative": negative, "positive": positive}[label] == f"score_{label}={score}"


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_line_is_answered_before_the_next_one_comes(packed_file):
    with started(packed_file, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for text in (b"a film", b"dull"):
            process.stdin.write(text + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\t" + text + b"\n")
        process.stdin.close()
    assert process.returncode == 0


def test_a_pair_is_one_text_for_the_model(predict, packed_file):
    code, out, _ = predict("a film", "a book", "--pair", "dull", "--pair", "fine", "--json")
    assert code == 0
    values = [json.loads(line) for line in out.splitlines()]
    with classifiers.load(packed_file) as classifier:
        expected = classifier.predict(["a film", "a book"], ["dull", "fine"])
    assert [value["text_pair"] for value in values] == ["dull", "fine"]
    assert [value["score"] for value in values] == pytest.approx([answer["score"] for answer in expected])


def test_the_name_of_a_file_is_not_taken_for_a_text(predict, tmp_path):
    (tmp_path / "reviews.csv").write_text("text\ngood\n")
    code, out, error = predict(tmp_path / "reviews.csv")
    assert (code, out) == (2, "")
    assert f"is a file; label its rows with --input {tmp_path / 'reviews.csv'}" in error
    assert predict(tmp_path / "reviews.csv", "and a text")[0] == 0  # it is meant as a text then
    assert predict("x" * 5000)[0] == 0  # no file can have that name
    assert predict("--", "-5 stars")[1].endswith("\t-5 stars\n")  # a text that starts with a dash


def test_a_csv_file_keeps_its_columns_and_order(predict, tmp_path, answers):
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "review", "label"], *([n, text, "?"] for n, text in enumerate(TEXTS))])
    options = ["--input", tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--prefix", "predicted_"]
    code, out, error = predict(*options)
    assert (code, out) == (0, "")
    assert error == f"{tmp_path / 'out.csv'}: 5 rows\n{BLANK}"
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "review", "label", "predicted_label", "predicted_score"]
    assert [row["id"] for row in rows] == ["0", "1", "2", "3", "4"]
    labels = [answer["label"] if text else "" for answer, text in zip(answers, TEXTS, strict=True)]
    assert [row["predicted_label"] for row in rows] == labels
    assert [row["predicted_score"] == "" for row in rows] == [not text for text in TEXTS]
    assert predict(*options, "--label-blank", "--force")[0] == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted_label"] for row in rows] == [answer["label"] for answer in answers]


def test_an_output_is_replaced_only_with_force(predict, write):
    path, out = write("in.csv", "text\na film\n"), write("out.csv", "precious\n")
    for words in (["-i", path], ["a film"]):
        code, _, error = predict(*words, "-o", out)
        assert (code, error.count("\n"), out.read_text()) == (2, 1, "precious\n")
        assert "--force" in error
    assert predict("-i", path, "-o", out, "--force")[0] == 0
    assert out.read_text().startswith("text,label,score\n")


def test_texts_that_were_not_read_to_their_end_are_counted(predict, packed_file):
    most = load(packed_file).max_length
    fits, longer = " ".join(["film"] * (most - 2)), " ".join(["film"] * (most - 1))  # beside [CLS] and [SEP]
    assert predict("dull", fits)[2] == ""
    says = f"texts longer than {most} tokens: 2; their ends were not read\n"
    assert predict("dull", longer, fits, longer)[2] == says


def test_pairs_are_read_from_two_columns_of_standard_input_or_a_file(predict, stdin, tmp_path):
    stdin(b'{"body": "dull", "reply": "why"}\n')
    code, out, _ = predict("--format", "jsonl", "--text-column", "body", "--pair-column", "reply", "--json")
    assert code == 0
    assert list(json.loads(out)) == ["body", "reply", "label", "score"]
    (tmp_path / "in.csv").write_text("premise,hypothesis\ndull,fine\nfine,dull\n")
    assert predict("-i", tmp_path / "in.csv", "-o", tmp_path / "out.csv")[2].endswith("out.csv: 2 pairs\n")


def test_parquet_goes_to_parquet(predict, tmp_path, answers):
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "n": [1, 2, 3, 4, 5]}), tmp_path / "in.parquet")
    assert predict("-i", tmp_path / "in.parquet", "-o", tmp_path / "out.parquet", "--proba")[0] == 0
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["text", "n", "label", "score", "score_negative", "score_positive"]
    labels = [answer["label"] if text else "" for answer, text in zip(answers, TEXTS, strict=True)]
    assert table.column("label").to_pylist() == labels
    assert table.column("score").to_pylist()[TEXTS.index("")] is None


def test_skipped_rows_are_told_and_no_error(predict, tmp_path):
    path, out = tmp_path / "a;b.jsonl", tmp_path / "out.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": \n{"text": "caf\xe9"}\n{"text": "b"}\n')
    code, printed, error = predict("--input", path, "--on-error", "skip")
    assert code == 0
    assert [json.loads(line)["text"] for line in printed.splitlines()] == ["a", "b"]
    assert error.startswith(f"skipped 2 rows; the first: {path}:2: broken JSON")
    path.write_bytes(b'{"text": "a"}\n{}\n')
    said = predict("--input", path, "--on-error", "skip", "--output", out)[2]
    assert said.startswith(f"skipped 1 row; the first: {path}:2: no text in column 'text'")
    assert said.endswith(f"\n{out}: 1 row\n")


def test_lines_go_to_files_with_any_suffix_that_names_no_other_format(predict, tmp_path, answers):
    for name in ("out.txt", "out.txt.gz", "out", "out.labels"):
        assert predict("dull", "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "out.labels").read_text() == plain(answers[1:2], ["dull"])
    assert predict("dull", "--json", "-o", tmp_path / "out.jsonl")[0] == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["label"] == answers[1]["label"]


REFUSED = {
    "a text and a file": (["text", "--input", "in.csv"], "--input: for files"),
    "a text and options of files": (
        ["text", "--format", "csv", "--text-column", "a", "--encoding", "latin-1"],
        "--format, --text-column, --encoding: for files",
    ),
    "no model": (["-m", "no.bibert", "text"], "no.bibert: no such file"),
    "no format": (["--input", "in.xyz"], "in.xyz: the suffix shows no known format"),
    "a pair too many": (["text", "--pair", "a", "--pair", "b"], "1 text and 2 times --pair"),
    "a pair without a text": (["--pair", "a"], "0 texts and 1 times --pair"),
    "a missing file": (["--input", "no.csv"], "no.csv: no such file; the folder . has 'in.csv'"),
    "a folder": (["--input", "."], ".: is a folder, not a file"),
    "an unknown format": (["--input", "-", "--format", "xml"], "there is no format 'xml'"),
    "the input as output": (["--input", "in.csv", "--output", "./in.csv"], "is the input itself"),
    "a suffix that is unknown": (["--input", "in.csv", "--output", "out"], "give it a name ending in .txt, .csv"),
    "JSON as plain text": (["text", "--json", "--output", "out.txt.gz"], "give it a name ending in .jsonl"),
    "Excel as output": (["text", "--output", "out.xlsx"], "out.xlsx: the suffix is the format"),
    "Parquet in gzip": (["text", "--output", "out.parquet.gz"], "leave out .gz"),
    "a long delimiter": (["--input", "in.csv", "--delimiter", ";;"], "must be one character"),
    "a delimiter of JSON": (["--input", "in.jsonl", "--delimiter", ";"], "only csv and tsv have one"),
    "an encoding of Parquet": (["--input", "in.parquet", "--encoding", "cp1252"], "--encoding: in.parquet is parquet"),
    "no folder for the output": (["--input", "in.csv", "--output", "no/out.csv"], "the folder no does not exist"),
    "Parquet to a terminal": (["--input", "in.parquet"], "give --output, or --json"),
    "Parquet from standard input": (["--format", "parquet"], "stdin: parquet is compressed inside"),
    "columns of lines": (["--text-column", "body"], "plain lines have no columns"),
    "a column that is not there": (["--input", "in.csv", "--text-column", "txt"], "did you mean 'text'?"),
    "our column is there": (["--input", "in.csv", "--prefix", "my_"], "has a column 'my_label' already"),
    "not UTF-8": (["--input", "in.csv", "--prefix", "new_"], "in.csv:3: byte 0xe9 is not utf-8"),
    "no such treatment": (["--input", "in.csv", "--on-error", "ignore"], "'ignore'; choose one of fail, skip"),
    "compressed Parquet": (["--input", "a.parquet.gz", "--output", "b.parquet"], "a.parquet.gz: parquet"),
    "a byte that is no text": (["caf\udce9"], "text 1: byte 0xe9 is not utf-8; write it in UTF-8"),
}


@pytest.mark.parametrize(("words", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_one_line_and_leaves_the_files_alone(predict, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_bytes(b"text,my_label\nfine,1\ncaf\xe9,1\n")
    code, out, error = predict(*words)
    assert code == 2
    assert out in ("", "text,my_label,new_label,new_score\n")  # the header, where no output file was asked for
    assert error.startswith("bibert: error: ")
    assert error.count("\n") == 1
    assert says in error
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_regression_has_one_score_and_no_label(packed_file, bibert, tmp_path, capsys):
    packed = load(packed_file)
    config = {**packed.config.to_dict(), "labels": 1}
    tensors = {spec.name: packed.tensor(spec.name) for spec in packed.specs[:-1]}
    tensors |= {name: tensors[name][:1] for name in ("classifier.weight", "classifier.bias")}
    one = type(packed.config).from_dict(config)
    path = tmp_path / "regression.bibert"
    save(type(packed).from_tensors(one, ["stars"], 32, tensors, packed.tokenizer, {}), path)
    assert bibert("predict", "-m", path, "a film", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == ["text", "score"]
    assert bibert("predict", "-m", path, "a film", "--proba") == EngineError.exit_code
    assert "no probabilities" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_reader_that_has_gone_is_quiet(packed_file, tmp_path):
    (tmp_path / "in.txt").write_text("a film\n" * 20_000)
    with started(packed_file, "--input", tmp_path / "in.txt", stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().endswith(b"\ta film\n")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_torn_output(packed_file, tmp_path, number):
    (tmp_path / "in.txt").write_text("a film\n" * 400_000)
    with started(packed_file, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt") as process:
        while not list(tmp_path.glob(".out.txt.*.tmp")):  # it has begun to write
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.stderr.read() == b""
    assert process.returncode == 128 + number
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", ".out.txt.journal"}

"""`bibert augment` from the words of a command line to the file it leaves."""

import re

import pytest

from bibert.cli import console

GLOVE = "film 10 0\nmovie 10 1\npicture 10 2\ndull -10 0\nboring -10 1\nslow -10 2\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a small training set and vectors, as the working directory."""
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "the film is dull\t0\n" * 5)
    (tmp_path / "glove.txt").write_text(GLOVE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def augment(bibert):
    """The exit code of `bibert augment` and a line of words."""
    return lambda line: bibert("augment", *line.split())


def test_an_augmented_file_is_written_with_glove_alone(augment, here, capsys):
    assert augment("train.tsv -o out.tsv --task sst-2 --glove glove.txt --candidates 2") == 0
    lines = (here / "out.tsv").read_text().splitlines()
    assert lines[:2] == ["sentence\tlabel", "the film is dull\t0"]
    assert set(lines[1:]) == {
        f"the {film} is {mood}\t0" for film in ("film", "movie", "picture") for mood in ("dull", "boring", "slow")
    }
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"out.tsv: {len(lines) - 1} rows from 5" in captured.err


def test_the_options_reach_the_augmentation(augment, here):
    (here / "mine.csv").write_text("a,b,c\ndull,film,yes\n")
    options = "--glove glove.txt --variants 1 --probability 1.0 --candidates 1 --seed 3"
    assert augment(f"mine.csv -o out.tsv {options} --text-column b --pair-column a --label-column c") == 0
    assert (here / "out.tsv").read_text() == "b\ta\tc\nfilm\tdull\tyes\nmovie\tdull\tyes\nfilm\tboring\tyes\n"


def test_a_masked_lm_is_loaded_from_a_folder(augment, here):
    from transformers import BertConfig, BertForMaskedLM

    from bibert.data.encoding import train_tokenizer

    tokenizer = train_tokenizer(["the film is dull"])
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(here / "lm")
    tokenizer.save_pretrained(here / "lm")
    assert augment("train.tsv -o out.tsv --mlm lm") == 0
    assert len((here / "out.tsv").read_text().splitlines()) > 6


@pytest.mark.usefixtures("here")
def test_plain_lines_with_the_time_left_are_said_where_there_is_no_terminal(augment, monkeypatch, capsys):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    assert augment("train.tsv -o out.tsv --glove glove.txt") == 0
    said = capsys.readouterr().err
    assert re.search(r"augmenting: 2 of 5, \d+:\d\d:\d\d left", said)


WITH_GLOVE = "train.tsv -o out.tsv --glove glove.txt"
BAD_CALLS = {
    "train.tsv -o out.tsv": "(--mlm), GloVe vectors (--glove)",
    "gone.tsv -o out.tsv --glove glove.txt": "gone.tsv",
    "train.tsv -o out.tsv --glove gone.txt": "gone.txt: no such file",
    "train.tsv -o train.tsv --glove glove.txt": "is the input itself",
    "train.tsv -o out.csv --glove glove.txt": "give it a name ending in .tsv",
    "train.tsv -o gone/out.tsv --glove glove.txt": "the folder gone does not exist",
    f"{WITH_GLOVE} --task sst-3": "no GLUE task 'sst-3'",
    f"{WITH_GLOVE} --text-column x": "no column 'x'",
    f"{WITH_GLOVE} --task sst-2 --label-column x": "leave out --text-column",
    f"{WITH_GLOVE} --probability 0": "must be above 0",
}


@pytest.mark.parametrize(("line", "message"), BAD_CALLS.items())
def test_bad_input_is_one_line_and_leaves_no_file(augment, line, message, here, capsys):
    before = sorted(here.iterdir())
    assert augment(line) != 0
    said = capsys.readouterr().err.strip()
    assert message in said
    assert said.count("\n") == 0
    assert sorted(here.iterdir()) == before

"""A job that was killed goes on where it was, gives the same bytes, and leaves nothing behind."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bibert.errors import BibertError
from bibert.files import sha256_of
from bibert.runtime import classifier as classifiers
from bibert.runtime.journal import is_complete, journal_of, open_journal, task_of
from bibert.runtime.tables import Source, label_table
from bibert.runtime.writers import Labeller, open_output

TASK = {"model": "one"}
DATA = b"text\n" + b"".join(b"text %d\n" % number for number in range(40))


class Model:
    """A model that counts what it is asked, and whose labels are texts in capitals."""

    columns, min_score, label_blank = {"label": str, "score": float}, None, False

    def __init__(self):
        self.counts, self.asked = {"cut": 0}, 0

    def __call__(self, texts, where):  # noqa: ARG002
        self.asked += len(texts)
        self.counts["cut"] += len(texts)
        return [[text.upper() for text in texts], [len(text) / 3 for text in texts]]


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


def label(path, target, kill_after=None, task=TASK):
    """Label a file, up to a kill after some chunks of 4 rows; return the model."""
    model, chunks = Model(), 0

    def watch(_):
        nonlocal chunks
        chunks += 1
        if chunks == kill_after:
            raise Killed

    source = Source(path, "csv", rows_per_chunk=4)
    with open_journal(target, task) as journal, open_output(target, journal.finish) as file:
        label_table(source, file, model, watch=watch, journal=journal)
    return model


@pytest.fixture
def job(write, tmp_path):
    """The input, the output, and the bytes of an uninterrupted job."""
    path, whole = write("in.csv", DATA), io.BytesIO()
    label_table(Source(path, "csv", rows_per_chunk=4), whole, Model())
    return path, tmp_path / "out.csv", whole.getvalue()


@pytest.mark.parametrize("kill_after", [1, 5, 10])
def test_rows_that_were_labelled_before_a_kill_are_not_labelled_again(job, kill_after):
    path, target, whole = job
    with pytest.raises(Killed):
        label(path, target, kill_after)
    assert not target.exists()
    model = label(path, target)
    assert target.read_bytes() == whole
    assert model.asked == 40 - 4 * kill_after
    assert model.counts == {"cut": 40}  # those of the killed process are counted too
    assert sorted(file.name for file in path.parent.iterdir()) == ["in.csv", "out.csv"]


def test_a_journal_cut_or_damaged_anywhere_gives_the_same_bytes(job):
    path, target, whole = job
    with pytest.raises(Killed):
        label(path, target, 3)
    journal = journal_of(target).read_bytes()
    damaged = [journal[:length] for length in range(0, len(journal), 7)]
    damaged += [journal[:place] + b"\0" * 20 + journal[place + 20 :] for place in range(0, len(journal), 50)]
    for data in damaged:
        journal_of(target).write_bytes(data)
        label(path, target)
        assert target.read_bytes() == whole
        target.unlink()


def test_only_the_output_of_the_journal_is_complete_whenever_the_kill_comes(job, monkeypatch):
    path, target, whole = job
    rename = Path.replace

    def killed_before(*_):
        raise Killed

    def killed_after(*paths):
        rename(*paths)
        raise Killed

    for replace in (killed_before, killed_after):
        monkeypatch.setattr(Path, "replace", replace)
        with pytest.raises(Killed):
            label(path, target)
        if replace is killed_before:
            assert not is_complete(target, TASK)
            journal_of(target).write_bytes(journal_of(target).read_bytes()[:-5])  # the last line is cut off
    assert target.read_bytes() == whole
    assert not is_complete(target, {"model": "two"})
    target.write_bytes(whole + b"\n")
    assert not is_complete(target, TASK)
    target.write_bytes(whole)
    assert is_complete(target, TASK)


def test_the_journal_is_closed_before_it_is_removed(job, monkeypatch):
    files, closed, unlink = [], [], Path.unlink
    monkeypatch.setattr("bibert.runtime.journal.lock", lambda file: files.append(file) or True)
    monkeypatch.setattr(Path, "unlink", lambda *path, **more: closed.append(files[0].closed) or unlink(*path, **more))
    label(*job[:2])
    assert closed == [True]  # Windows removes no open file


def test_another_task_does_not_continue_a_journal(job):
    path, target, whole = job
    with pytest.raises(Killed):
        label(path, target, 3)
    assert label(path, target, task={"model": "two"}).asked == 40
    assert target.read_bytes() == whole


def test_a_task_is_another_one_if_model_input_or_options_change(job, write):
    path, _, _ = job
    first, second = write("a.bibert", b"1"), write("b.bibert", b"2")
    source, model, changed = Source(path, "csv"), Model(), Model()
    changed.min_score = 0.5
    tasks = [task_of(source, first, model), task_of(source, second, model), task_of(source, first, changed)]
    path.write_bytes(DATA + b"more\n")
    tasks.append(task_of(source, first, model))
    assert len({json.dumps(task) for task in tasks}) == 4


def test_only_one_process_writes_an_output(job):
    _, target, _ = job
    with open_journal(target, TASK), pytest.raises(BibertError, match="another process"), open_journal(target, TASK):
        pass


def test_a_job_that_fails_at_once_leaves_no_journal_and_a_later_one_keeps_it(job, write):
    path, target, _ = job
    write("in.csv", b"text\n" + b"a\n" * 3 + b"\xff\n")
    with pytest.raises(BibertError, match=r"in\.csv:5"):
        label(path, target)
    assert not journal_of(target).exists()
    write("in.csv", b"text\n" + b"a\n" * 9 + b"\xff\n")
    with pytest.raises(BibertError, match=r"in\.csv:11"):
        label(path, target)
    kept = journal_of(target).read_bytes()
    write("in.csv", b"\xff\n")
    with pytest.raises(BibertError, match=r"in\.csv:1"):
        label(path, target)  # fails before it comes to the first block
    assert journal_of(target).read_bytes() == kept


def test_the_file_of_an_output_with_a_longer_name_is_left_alone(tmp_path):
    names = [".a[1].csv.0123abcd.tmp", ".a[1].csv.gz.0123abcd.tmp", ".a1.csv.0123abcd.tmp"]
    for name in names:
        (tmp_path / name).touch()
    with open_journal(tmp_path / "a[1].csv", TASK):
        assert sorted(path.name for path in tmp_path.glob("*.tmp")) == sorted(names[1:])


FORMATS = ["out.csv", "out.tsv", "out.jsonl", "out.txt", "out.parquet", "out.csv.gz"]


@pytest.mark.parametrize("name", FORMATS)
def test_kills_at_random_moments_change_no_byte(name, packed_file, tmp_path):
    chance, rows = random.Random(name), [f"film number {number}, a fine one" for number in range(3_000)]
    rows[::100] = [""] * 30
    pyarrow.parquet.write_table(pyarrow.table({"text": rows, "n": range(3_000)}), tmp_path / "in.parquet")
    words = ["predict", "-m", str(packed_file), "-i", str(tmp_path / "in.parquet"), "--proba", "--threads", "1"]
    command = [sys.executable, "-m", "bibert", *words]
    (tmp_path / "whole").mkdir()
    subprocess.run([*command, "-o", str(tmp_path / "whole" / name)], check=True, capture_output=True)
    again, journal = [*command, "-o", str(tmp_path / name)], journal_of(tmp_path / name)
    for _ in range(2):
        before = journal.stat().st_size if journal.exists() else 0
        moment = before + chance.randrange(1, 20_000)
        with subprocess.Popen(again, stderr=subprocess.PIPE) as process:
            while process.poll() is None and (not journal.exists() or journal.stat().st_size < moment):
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
    done = subprocess.run(again, check=False, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / name).exists()) == (0, True), done.stderr
    assert (tmp_path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.parquet", name, "whole"])


def test_a_kill_behind_the_last_rename_is_no_error(packed_file, tmp_path, write, bibert):
    path, out = write("in.csv", DATA), tmp_path / "out.csv"
    words = ["predict", "-m", packed_file, "-i", path, "-o", out]
    assert bibert(*words) == 0
    whole = out.read_bytes()
    with classifiers.load(packed_file) as classifier:
        task = task_of(Source(path, "csv"), packed_file, Labeller(classifier))
    journal_of(out).write_text(json.dumps(task) + "\n")  # of predict --force, killed before it had an output
    os.utime(journal_of(out), ns=(0, 0))  # older than the output
    assert bibert(*words) == 2
    journal_of(out).write_text(json.dumps(task) + "\n" + json.dumps({"output": sha256_of(out)}) + "\n")
    assert bibert(*words) == 0
    assert not journal_of(out).exists()
    assert out.read_bytes() == whole
    assert bibert(*words) == 2  # it exists

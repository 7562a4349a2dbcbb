"""The C examples build without warnings, print the logits of the reference, and report errors in one line."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bibert.models import shipped_file
from bibert.packed.file import load, save
from bibert.runtime import reference

ROOT = Path(__file__).parents[2]
IDS = (2, 45, 7, 7, 0, 31, 3)


def call(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"thresholds": ("key", "context"), "labels": 1},
        {"thresholds": (), "score_thresholds": False},
        {"ffn_levels": "sign"},
    ],
    ids=["all parts", "some parts", "no thresholds", "sign"],
)
def test_the_example_prints_the_logits_of_the_reference(changes, classify, new_model, tmp_path):
    model = new_model(**changes)
    save(model, tmp_path / "model.bibert")
    done = call(classify, tmp_path / "model.bibert", *IDS)
    assert done.stderr == ""
    found = np.array(done.stdout.split(), dtype=np.float32)  # nine digits identify every float32
    assert found.tobytes() == reference.logits(model, [IDS])[0].tobytes()


def test_the_example_reports_errors_in_one_line(classify, model_file, tmp_path):
    whole = model_file.read_bytes()
    (tmp_path / "cut").write_bytes(whole[:5000])
    (tmp_path / "other").write_bytes(b"something else entirely")
    (tmp_path / "odd").write_bytes(whole.replace(rb"\"heads\":2", rb"\"heads\":0", 1))
    for arguments, facts in {
        (model_file, 50): "sequence 0, token 0.* 50.* 49",
        (model_file, *range(25)): "sequence 0.* 25 tokens.* 24",
        (tmp_path / "cut", 1): "truncated",
        (tmp_path / "other", 1): "not a packed model",
        (tmp_path / "odd", 1): "heads is 0.* 1 to 256",
        (tmp_path / "none", 1): "open",
        (model_file,): "usage: classify FILE ID",
    }.items():
        done = call(classify, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(f"classify: .*{facts}.*\n", done.stderr)


def test_the_short_example_prints_the_logits_of_the_model_in_the_package(example):
    shipped = shipped_file("sst2")
    done = call(example("logits"), shipped)
    assert done.stderr == ""
    found = np.array(done.stdout.split(), dtype=np.float32)
    assert found.tobytes() == reference.logits(load(shipped), [[101, 1037, 9882, 2143, 102]])[0].tobytes()


def test_the_document_shows_the_example_as_it_is_and_every_name_of_the_header():
    document = (ROOT / "docs" / "c-api.md").read_text(encoding="utf-8")
    header = (ROOT / "native" / "include" / "bibert.h").read_text(encoding="utf-8")
    names = re.findall(r"^BIBERT_API .*?\b(bibert_\w+)\(|^  (BIBERT_[A-Z_]+) = \d(?! <<)", header, re.MULTILINE)
    assert len(names) == 9 + 7
    assert [name for pair in names for name in pair if name and f"`{name}" not in document] == []
    assert f"```c\n{(ROOT / 'native' / 'examples' / 'logits.c').read_text(encoding='utf-8')}```\n" in document

"""Students of every position of the dial after training; a real one on real rows if BIBERT_STUDENT is its folder."""

import os
from dataclasses import replace

import numpy as np
import pytest

from bibert.data.examples import Split
from bibert.data.glue import load_glue
from bibert.export import pack
from bibert.nn.checkpoint import load_classifier
from bibert.packed.file import load, save
from bibert.training.evaluate import predict_logits
from bibert.training.student import distill

MAX_LENGTH = 64  # of SST-2
SST2_ROWS = 872


@pytest.mark.parametrize("scheme", ["bibert_plus", "bibert_2", "bibert_4"])
def test_a_student_gives_the_same_bits_after_training(
    scheme, teacher, data, teacher_recipe, runtimes, assert_same_bits, tmp_path
):
    distill(teacher, scheme, data, tmp_path, replace(teacher_recipe, epochs=1))
    student, rows = load_classifier(tmp_path / "model"), data.dev["dev"]
    packed = pack(student, rows, max_length=16)
    expected = predict_logits(student, rows, 16)
    encoded = student.tokenizer(list(rows.texts), truncation=True, max_length=16)
    for logits in runtimes(packed).values():
        assert_same_bits(np.concatenate([logits(np.array([ids])) for ids in encoded["input_ids"]]), expected)


@pytest.fixture(scope="module")
def student():
    folder = os.environ.get("BIBERT_STUDENT")
    if not folder:
        pytest.skip("set BIBERT_STUDENT to the folder of a student trained on SST-2 to run this")
    return load_classifier(folder)


@pytest.fixture(scope="module")
def rows(glue_folder) -> Split:
    return load_glue("sst2", glue_folder).dev["dev"]


@pytest.mark.slow
@pytest.mark.timeout(900)  # every row alone, also through the two plain and slow runtimes
def test_a_student_trained_on_sst2_gives_the_same_bits_on_all_dev_rows(
    student, rows, runtimes, assert_same_bits, tmp_path
):
    save(pack(student, rows, max_length=MAX_LENGTH), tmp_path / "student.bibert")
    packed = load(tmp_path / "student.bibert")
    expected = predict_logits(student, rows, MAX_LENGTH)
    assert expected.shape == (SST2_ROWS, 2)
    encoded = student.tokenizer(list(rows.texts), truncation=True, max_length=MAX_LENGTH)
    for logits in runtimes(packed).values():
        found = [logits(np.array([ids])) for ids in encoded["input_ids"]]
        assert_same_bits(np.concatenate(found), expected)

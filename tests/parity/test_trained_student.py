"""A really trained student on real rows: set BIBERT_STUDENT to its folder and BIBERT_GLUE to GLUE's files."""

import os

import numpy as np
import pytest

from bibert.data.examples import Split
from bibert.data.glue import load_glue
from bibert.export import pack
from bibert.nn.checkpoint import load_classifier
from bibert.packed.file import load, save
from bibert.training.evaluate import predict_logits

MAX_LENGTH = 64
SST2_ROWS = 872


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

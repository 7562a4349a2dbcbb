"""Files of every version, made once: they load, are written again as the same bytes and give the same bits."""

import json
from pathlib import Path

import numpy as np
import pytest

from bibert.packed.file import load, save
from bibert.runtime import reference
from bibert.runtime.engine import Engine, available_isas

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.bibert"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_file_of_an_older_bibert_gives_the_bits_it_gave_then(path, tmp_path):
    batch = json.loads(path.with_suffix(".json").read_text())
    expected = np.array(batch.pop("logits"), dtype=np.float32)
    packed = load(path)
    np.testing.assert_array_equal(reference.logits(packed, **batch), expected)
    for isa in available_isas():
        np.testing.assert_array_equal(Engine.from_packed(packed, isa=isa).logits(**batch), expected)
    save(packed, tmp_path / "again.bibert")
    assert (tmp_path / "again.bibert").read_bytes() == path.read_bytes()


def test_there_is_a_file_of_each_version():
    assert [path.stem for path in GOLDEN] == ["version-1", "version-2"]

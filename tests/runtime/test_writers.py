"""Output files appear whole or not at all, and the same rows give the same bytes; formats are tested with tables."""

import gzip

import pytest

from bibert.errors import BibertError, DataError
from bibert.runtime.writers import open_output


def write_half(file):
    file.write(b"half")
    raise DataError("broken")


def test_an_output_is_whole_or_not_there(tmp_path):
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(DataError, match="broken"), open_output(tmp_path / "out.csv") as file:
        write_half(file)
    assert (tmp_path / "out.csv").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(BibertError, match="the folder"), open_output(tmp_path / "no" / "out.csv"):
        pass


def test_a_compressed_output_is_the_same_every_time(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        with open_output(tmp_path / name) as file:
            file.write(b"{}\n" * 1000)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == b"{}\n" * 1000

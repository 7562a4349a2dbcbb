"""The same rows give the same bytes; formats are tested with tables, torn output with `bibert predict`."""

import gzip

from bibert.runtime.writers import open_output


def test_a_compressed_output_is_the_same_every_time(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        with open_output(tmp_path / name) as file:
            file.write(b"{}\n" * 1000)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == b"{}\n" * 1000

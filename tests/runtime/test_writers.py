"""The same rows give the same bytes; formats are tested with tables, torn output with `bibert predict`."""

import csv
import gzip
import io
import json

from bibert.runtime.classifier import load
from bibert.runtime.tables import Source, label_table
from bibert.runtime.writers import Labeller, open_output


def test_csv_gives_back_every_line_end_quote_and_comma(write, packed_file):
    labeller, texts = Labeller(load(packed_file)), ["good\rfilm", "good\nfilm", "good\r\nfilm", 'a "good", film; \t']
    path, out = write("in.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts)), io.BytesIO()
    label_table(Source(path, "jsonl"), out, labeller, written="csv")
    assert [row["text"] for row in csv.DictReader(io.StringIO(out.getvalue().decode(), newline=""))] == texts


def test_a_compressed_output_is_the_same_every_time(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        with open_output(tmp_path / name) as file:
            file.write(b"{}\n" * 1000)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == b"{}\n" * 1000

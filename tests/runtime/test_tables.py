"""Files that are labelled while they stream by: rows come out as they went in, and bad files name the bad line."""

import csv
import gzip
import io
import json
import re
import tracemalloc

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from bibert.data import readers
from bibert.data.columns import Columns
from bibert.data.lines import LONGEST_LINE, Decoding
from bibert.data.readers import format_of
from bibert.errors import DataError, EngineError
from bibert.packed.file import save
from bibert.runtime.classifier import load
from bibert.runtime.tables import Source, label_table
from bibert.runtime.writers import WRITTEN, Labeller


def lengths(texts, where=None):  # noqa: ARG001
    """A model whose label is the text in capitals, with the pair behind it, and whose score is half its length."""
    pairs = [(text, "") if isinstance(text, str) else text for text in texts]
    return [text.upper() + pair for text, pair in pairs], [len(text) / 2 for text, _ in pairs]


lengths.columns = {"label": str, "score": float}
lengths.counts = {}
BY_NAME = Columns()


def labelled(path, file_format=None, rows_per_chunk=2, columns=BY_NAME, written="", model=lengths, **decoding):
    """The bytes that come out for a file."""
    out = io.BytesIO()
    source = Source(path, file_format or format_of(path), columns, Decoding(**decoding), rows_per_chunk)
    label_table(source, out, model, written=written)
    return out.getvalue()


GOOD = {
    "plain": ("a.txt", b"a\n\nb c\n", b"A\t0.5000\ta\n\t0.0000\t\nB C\t1.5000\tb c\n"),
    "plain without a final line end": ("a.txt", b"a\nb", b"A\t0.5000\ta\nB\t0.5000\tb\n"),
    "plain, CRLF": ("a.txt", b"a\r\nb\r\n", b"A\t0.5000\ta\nB\t0.5000\tb\n"),
    "plain, BOM": ("a.txt", b"\xef\xbb\xbfa\n", b"A\t0.5000\ta\n"),
    "plain, empty": ("a.txt", b"", b""),
    "plain, a tab in the text and the label": ("a.txt", b"a\tb\n", b"A B\t1.5000\ta\tb\n"),
    "CSV": ("a.csv", b"id,text\n7,a\n8,b\n", b"id,text,label,score\n7,a,A,0.5\n8,b,B,0.5\n"),
    "CSV, BOM, CRLF, no end": (
        "a.csv",
        b"\xef\xbb\xbfid,text\r\n7,a\r\n8,b",
        b"id,text,label,score\n7,a,A,0.5\n8,b,B,0.5\n",
    ),
    "CSV, quotes": ("a.csv", b'text,n\n"a, ""b""\nc",1\n', b'text,n,label,score\n"a, ""b""\nc",1,"A, ""B""\nC",4.0\n'),
    "CSV, header only": ("a.csv", b"text,n\n", b"text,n,label,score\n"),
    "CSV, column without a name": ("a.csv", b",text\n0,a\n", b",text,label,score\n0,a,A,0.5\n"),
    "CSV, pairs": ("a.csv", b"premise,hypothesis\na,b\n", b"premise,hypothesis,label,score\na,b,Ab,0.5\n"),
    "TSV": ("a.tsv", b'sentence\tx\n"a\t1\n', b'sentence\tx\tlabel\tscore\n"a\t1\t"A\t1.0\n'),
    "JSONL": (
        "a.jsonl",
        b'{"n": 1.0e5, "text": "a"}\n\n{"text": "\\u00e9" }\n',
        b'{"n": 1.0e5, "text": "a", "label": "A", "score": 0.5}\n'
        b'{"text": "\\u00e9", "label": "\xc3\x89", "score": 0.5}\n',
    ),
    "JSONL, empty": ("a.jsonl", b"", b""),
}


@pytest.mark.parametrize(("name", "data", "expected"), GOOD.values(), ids=GOOD)
def test_rows_come_out_as_they_went_in_with_new_columns(write, name, data, expected):
    assert labelled(write(name, data)) == expected
    assert labelled(write(f"{name}.gz", gzip.compress(data))) == expected


@pytest.mark.parametrize("rows_per_chunk", [1, 7, 1000])
def test_the_size_of_a_chunk_changes_nothing(write, rows_per_chunk):
    path = write("a.csv", b"text\n" + b"".join(b"%d\n" % number for number in range(50)))
    assert labelled(path, rows_per_chunk=rows_per_chunk) == labelled(path)


def test_lines_can_be_written_as_json(write):
    (line,) = labelled(write("a.txt", "é\n".encode()), written="jsonl").decode().splitlines()
    assert line == '{"text": "é", "label": "É", "score": 0.5}'


ROWS = [{"text": "a b", "n": "1"}, {"text": 'c, "d"', "n": ""}]


def as_file(path, rows):
    """Write rows in the format of the suffix."""
    names, cells = list(rows[0]), [list(row.values()) for row in rows]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in (names, *cells):
            book.active.append(row)
        book.save(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if path.suffix == ".tsv" else {}
        with path.open("w", newline="") as file:
            csv.writer(file, **options).writerows([names, *cells])
    return path


def as_rows(data, written):
    """The rows of a file that was written."""
    if written == "parquet":
        return pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    if written == "jsonl":
        return [json.loads(line) for line in data.decode().splitlines()]
    options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if written == "tsv" else {}
    return list(csv.DictReader(io.StringIO(data.decode()), **options))


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.xlsx"])
def test_rows_of_any_format_are_written_in_any_format(name, written, tmp_path):
    out = labelled(as_file(tmp_path / name, ROWS), written=written)
    expected = [{**row, "label": row["text"].upper(), "score": len(row["text"]) / 2} for row in ROWS]
    if written == "txt":
        assert out.decode() == "".join(f"{row['label']}\t{row['score']:.4f}\t{row['text']}\n" for row in expected)
        return
    # An empty cell of Excel is none, and numbers are text in CSV and TSV.
    found = [{**row, "n": row["n"] or "", "score": float(row["score"])} for row in as_rows(out, written)]
    assert found == expected


def test_values_without_a_place_in_the_new_format_are_written_or_named(tmp_path, write):
    path = parquet_file(tmp_path / "a.parquet", text=["a", "b"], x=[float("nan"), 1.5], tags=[["y"], None])
    rows = [json.loads(line) for line in labelled(path, written="jsonl").decode().splitlines()]
    assert [(row["x"], row["tags"]) for row in rows] == [(None, ["y"]), (1.5, None)]
    assert labelled(path, written="csv").decode().splitlines()[1] == 'a,null,"[""y""]",A,0.5'
    path = write("a.jsonl", b'{"text": "a"}\n{"text": "b", "n": 1}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: has a column 'n' that the first row does not have"):
        labelled(path, written="csv")
    assert labelled(path, written="csv", on_error="skip") == b"text,label,score\na,A,0.5\n"
    path = write("b.jsonl", b'{"text": "a", "n": 1}\n{"text": "b", "n": "x"}\n')
    with pytest.raises(DataError, match=r"b\.jsonl:2: these rows do not fit"):
        labelled(path, written="parquet", rows_per_chunk=1)


def test_semicolons_stay_semicolons(write):
    assert labelled(write("a.csv", b"text;n\na,b;1\n")) == b"text;n;label;score\na,b;1;A,B;1.5\n"


def test_a_text_that_the_model_refuses_is_named_or_skipped_alone(write):
    def picky(texts, where):
        for number, text in enumerate(texts):
            if text == "bad":
                raise EngineError(f"{where(number)}: is refused")
        return lengths(texts)

    picky.columns, picky.counts = lengths.columns, {}
    path = write("a.csv", b"text\na\nb\nc\nbad\nd\nbad\nbad\n")
    with pytest.raises(EngineError, match=r"a\.csv:5: is refused"):
        labelled(path, model=picky)
    out, source = io.BytesIO(), Source(path, "csv", decoding=Decoding(on_error="skip"), rows_per_chunk=3)
    progress = label_table(source, out, picky)
    assert out.getvalue() == b"text,label,score\na,A,0.5\nb,B,0.5\nc,C,0.5\nd,D,0.5\n"
    assert (progress.rows, progress.skipped, progress.first_skipped) == (4, 3, f"{path}:5: is refused")


# How files can be malformed is tested with the readers; here is what only prediction refuses or reads.
BAD = {
    "a column that is not there": ("a.csv", b"id,text\n1,a\n", {"columns": Columns("txt")}, "did you mean 'text'?"),
    "our column is taken": (
        "a.csv",
        b"text,label\na,1\n",
        {},
        "'label' already; give the new columns a prefix (--prefix",
    ),
    "our column is taken later": ("a.jsonl", b'{"text": "a"}\n{"text": "b", "score": 1}\n', {}, ":2: has a column"),
    "not UTF-8, below a row of two lines": (
        "a.csv",
        b'text,n\n"a\nb",1\ncaf\xe9,2\n',
        {},
        ":4: byte 0xe9 is not utf-8",
    ),
    "not UTF-8 in the header": ("a.csv", b"text,caf\xe9\na,1\n", {}, ":1: byte 0xe9"),
    "NUL in a line": ("a.txt", b"a\nb\0c\n", {}, ":2: holds a NUL byte"),
    "UTF-16 lines": (
        "a.txt",
        "a\nb".encode("utf-16"),
        {},
        ":1: is UTF-16 text; save it as UTF-8; bibert predict also reads it with --encoding utf-16",
    ),
    "no such encoding": ("a.txt", b"a\n", {"encoding": "klingon"}, "there is no encoding 'klingon'"),
    "UTF-16 without its mark": ("a.txt", b"a\n", {"encoding": "utf-16"}, ":1: is not utf-16"),
    "a line without end": ("a.txt", b"x" * (LONGEST_LINE + 1), {}, f":1: has over {LONGEST_LINE} characters"),
    "JSONL without a text": ("a.jsonl", b'{"text": "a"}\n{"n": 1}\n', {}, ":2: no text in column 'text'"),
    "JSONL, a number": ("a.jsonl", b'{"text": 1}\n', {}, ":1: column 'text' holds a value of type int"),
    "no format": ("reviews", b"text\na\n", {}, "reviews: the suffix shows no known format"),
    "no such format": ("a.csv", b"text\na\n", {"file_format": "cvs"}, "no format 'cvs'; did you mean 'csv'"),
}


@pytest.mark.parametrize(("name", "data", "options", "says"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_place(write, name, data, options, says):
    with pytest.raises(DataError) as caught:
        labelled(write(name, data), **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


SKIPPED = {
    "a.csv": (
        b'id,text\n1,a\n2\n3,\xff\n4,"x"y\n5,b\n',
        b"id,text,label,score\n1,a,A,0.5\n5,b,B,0.5\n",
        ":3: 1 fields",
    ),
    "a.tsv": (b"text\tn\na\t1\nb\nc\t\0\n", b"text\tn\tlabel\tscore\na\t1\tA\t0.5\n", ":3: 1 fields"),
    "a.jsonl": (b'{"text"\n{"text": "a"}\n{}\n', b'{"text": "a", "label": "A", "score": 0.5}\n', ":1: broken JSON"),
    "a.txt": (b"a\n\xff\n\0\n", b"A\t0.5000\ta\n", ":2: byte 0xff"),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_bad_rows_can_be_skipped_and_are_counted(write, name):
    data, expected, first = SKIPPED[name]
    path, out = write(name, data), io.BytesIO()
    progress = label_table(Source(path, format_of(path), decoding=Decoding(on_error="skip")), out, lengths)
    assert out.getvalue() == expected
    assert progress.skipped == len(data.splitlines()) - len(expected.splitlines())
    assert progress.first_skipped.startswith(f"{path}{first}")


def test_bytes_that_are_not_text_can_be_replaced(write):
    assert labelled(write("a.txt", b"caf\xe9\0\n"), on_error="replace").decode().endswith("\tcaf\ufffd\ufffd\n")
    with pytest.raises(DataError, match=":2: 2 fields"):  # only bytes are replaced; a broken row is still refused
        labelled(write("a.csv", b"text\na,b\n"), on_error="replace")
    with pytest.raises(DataError, match=r"'skipp'.*'skip'"):
        Decoding(on_error="skipp")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "UTF8"])
def test_other_encodings_are_read_and_utf8_is_written(write, encoding):
    path = write("a.csv", "text,wo\ncafé,ü\n".encode(encoding))
    assert labelled(path, encoding=encoding).decode() == "text,wo,label,score\ncafé,ü,CAFÉ,2.0\n"


def test_a_line_of_ten_megabytes_is_a_text_like_any_other(write):
    before = csv.field_size_limit()
    for name, head in {"a.txt": b"", "a.csv": b"text\n", "a.tsv": b"text\n"}.items():
        assert f"{10**7 / 2}".encode() in labelled(write(name, head + b"x" * 10**7 + b"\n"))
    assert csv.field_size_limit() == before


def test_memory_does_not_grow_with_the_file(write):
    def peak(rows):
        path = write("a.csv", b"text\n" + (b"x" * 100 + b"\n") * rows)
        with (path.parent / "out.csv").open("wb") as out:
            tracemalloc.start()
            label_table(Source(path, "csv", rows_per_chunk=64), out, lengths)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return most

    peak(100)  # imports and caches
    assert peak(20_000) < 1.2 * peak(2_000)


def test_a_chunk_of_long_rows_has_few_of_them(write, monkeypatch):
    monkeypatch.setattr(readers, "CHARACTERS_PER_CHUNK", 100)
    rows = []
    source = Source(write("a.txt", b"x" * 60 + b"\n" + b"y" * 60 + b"\nz\n"), "txt")
    label_table(source, io.BytesIO(), lengths, watch=lambda progress: rows.append(progress.rows))
    assert rows == [2, 3]


def test_progress_gives_the_share_of_the_file(write):
    shares = []
    source = Source(write("a.txt", b"a\n" * 200_000), "txt", rows_per_chunk=50_000)
    progress = label_table(source, io.BytesIO(), lengths, watch=lambda now: shares.append(now.share))
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1 == shares[-1]
    assert progress.rows == 200_000


def test_a_row_of_a_later_chunk_at_which_the_model_fails_is_named_by_its_line(write, new_packed):
    model, path = write("a.bibert", b""), write("a.csv", 'n,text\n1,a\n2,"a\na"\n3,a\n4,b\n')
    save(new_packed(), model)
    labeller = Labeller(load(model))
    labeller._classifier.encoder.ids_of = {"a": [5], "a\na": [5, 5]}.__getitem__  # fails at any other text
    with pytest.raises(EngineError, match=f"^{re.escape(str(path))}:6"):
        label_table(Source(path, "csv", rows_per_chunk=1), io.BytesIO(), labeller)


def parquet_file(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_parquet_keeps_its_types_and_gains_typed_columns(tmp_path):
    when = pyarrow.array([1, 2, 3], pyarrow.timestamp("ms"))
    names = pyarrow.array(["a", "bb", "ccc"]).dictionary_encode()
    path = parquet_file(tmp_path / "a.parquet", when=when, text=names, tags=[["x"], [], None])
    table = pyarrow.parquet.read_table(io.BytesIO(labelled(path)))
    assert table.select(["when", "text", "tags"]).equals(pyarrow.parquet.read_table(path))
    assert table.schema.field("label").type == pyarrow.string()
    assert table.schema.field("score").type == pyarrow.float32()
    assert table.column("label").to_pylist() == ["A", "BB", "CCC"]
    path = parquet_file(tmp_path / "none.parquet", text=pyarrow.array([], pyarrow.string()))
    assert pyarrow.parquet.read_table(io.BytesIO(labelled(path))).column_names == ["text", "label", "score"]


@pytest.mark.parametrize("name", ["a.parquet", "a.xlsx", "a.jsonl"])
def test_a_text_that_is_null_is_an_empty_one(name, tmp_path):
    rows = [{"text1": "a", "text2": "x"}, {"text1": "b", "text2": None}, {"text1": None, "text2": "z"}]
    out = labelled(as_file(tmp_path / name, rows), written="jsonl")
    assert [json.loads(line)["label"] for line in out.splitlines()] == ["Ax", "B", "z"]


@pytest.mark.parametrize("written", WRITTEN)
def test_half_a_character_of_json_becomes_the_replacement_character_in_other_formats(write, written):
    path = write("a.jsonl", b'{"text": "good \\ud83d film", "tags": ["\\uDC00"]}\n')
    out = labelled(path, written=written)
    if written == "txt":
        assert out.decode().endswith("\tgood \ufffd film\n")
        return
    [row] = as_rows(out, written)
    assert row["text"].encode("utf-16", "surrogatepass").decode("utf-16", "replace") == "good \ufffd film"


def test_parquet_needs_a_free_name(tmp_path):
    with pytest.raises(DataError, match="has a column 'score' already"):
        labelled(parquet_file(tmp_path / "b.parquet", text=["a"], score=[1]))


def test_standard_input_stays_open(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert labelled(None, "txt") == b"A\t0.5000\ta\n"
    assert not stdin.buffer.closed


@pytest.mark.parametrize("raw", ['{"text":"x"}', '{ "text" : "x" }', '{"text": "x", "more": {}}', ' {"text": "x"}  '])
def test_json_lines_stay_json(write, raw):
    (line,) = labelled(write("a.jsonl", raw.encode())).splitlines()
    assert json.loads(line) == json.loads(raw) | {"label": "X", "score": 0.5}

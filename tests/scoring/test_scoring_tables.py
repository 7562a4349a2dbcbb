"""Files that are scored while they stream by: what goes in comes out, and bad files say where they are bad."""

import gzip
import io
import json
import tracemalloc

import pyarrow
import pyarrow.parquet
import pytest

from bibert.data.columns import Columns
from bibert.errors import BibertError, DataError, MissingExtraError
from bibert.scoring import parquet, text_tables
from bibert.scoring.lines import MOST_CHARACTERS, Decoding
from bibert.scoring.rows import Reading, Scorer
from bibert.scoring.tables import form_of, open_output, open_table, score_table


def lengths(texts):
    """A model whose label is the text in capitals, with the pair behind it, and whose score is half its length."""
    pairs = [(text, "") if isinstance(text, str) else text for text in texts]
    return [text.upper() + pair for text, pair in pairs], [len(text) / 2 for text, _ in pairs]


BY_NAME = Columns()
MODEL = Scorer({"label": str, "score": float}, lengths)


def scored(path, form=None, rows_per_chunk=2, columns=BY_NAME, **decoding):
    """The bytes that come out for a file."""
    out = io.BytesIO()
    with open_table(path, form or form_of(path), Reading(columns, Decoding(**decoding))) as table:
        score_table(table, out, MODEL, rows_per_chunk=rows_per_chunk)
    return out.getvalue()


@pytest.fixture
def file(tmp_path):
    """A function that writes a file."""

    def write(name, data):
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


GOOD = {
    "plain": ("a.txt", b"a\n\nb c\n", b"A\t0.5000\ta\n\t0.0000\t\nB C\t1.5000\tb c\n"),
    "plain without a final line end": ("a.txt", b"a\nb", b"A\t0.5000\ta\nB\t0.5000\tb\n"),
    "plain, CRLF": ("a.txt", b"a\r\nb\r\n", b"A\t0.5000\ta\nB\t0.5000\tb\n"),
    "plain, BOM": ("a.txt", b"\xef\xbb\xbfa\n", b"A\t0.5000\ta\n"),
    "plain, empty": ("a.txt", b"", b""),
    "plain, a tab in the text": ("a.txt", b"a\tb\n", b"A B\t1.5000\ta\tb\n"),
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
def test_rows_come_out_as_they_went_in_with_new_columns(file, name, data, expected):
    assert scored(file(name, data)) == expected


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_compressed_file_reads_like_a_plain_one(file, name):
    data = {"a.csv": b"text\na\n", "a.tsv": b"text\na\n", "a.jsonl": b'{"text": "a"}\n', "a.txt": b"a\n"}[name]
    assert scored(file(f"{name}.gz", gzip.compress(data))) == scored(file(name, data))


@pytest.mark.parametrize("rows_per_chunk", [1, 2, 7, 1000])
def test_the_size_of_a_chunk_changes_nothing(file, rows_per_chunk):
    path = file("a.csv", b"text\n" + b"".join(b"%d\n" % number for number in range(50)))
    assert scored(path, rows_per_chunk=rows_per_chunk) == scored(path)


def test_lines_can_be_written_as_json(file):
    (line,) = scored(file("a.txt", "é\n".encode()), "txt as json").decode().splitlines()
    assert line == '{"text": "é", "label": "É", "score": 0.5}'


BAD = {
    "CSV, empty": ("a.csv", b"", {}, ": is empty; a header line is needed"),
    "CSV, no text column": ("a.csv", b"a,b\n1,2\n", {}, ":1: no text column among 'a', 'b'"),
    "CSV, a column that is not there": (
        "a.csv",
        b"id,text\n1,a\n",
        {"columns": Columns("txt")},
        "did you mean 'text'?",
    ),
    "CSV, too few fields": ("a.csv", b"id,text\n1,a\n2\n", {}, ":3: 1 fields where the header has 2"),
    "CSV, open quote": ("a.csv", b'text\nok\n"never\nclosed', {}, ":3: broken row"),
    "CSV, our column is taken": ("a.csv", b"text,label\na,1\n", {}, ":1: has a column 'label' already"),
    "CSV, not UTF-8": (
        "a.csv",
        b'text,n\n"a\nb",1\ncaf\xe9,2\n',
        {},
        ":4: byte 0xe9 is not utf-8; name the file's encoding",
    ),
    "CSV, not UTF-8 in the header": ("a.csv", b"text,caf\xe9\na,1\n", {}, ":1: byte 0xe9"),
    "CSV, gzip": ("a.csv", gzip.compress(b"text\na\n"), {}, ":1: is gzip-compressed"),
    "TSV, commas": ("a.tsv", b"id,text\n1,a\n", {}, ":1: the header is one column"),
    "plain, NUL": ("a.txt", b"a\nb\0c\n", {}, ":2: holds a NUL byte"),
    "plain, UTF-16": ("a.txt", "a\nb".encode("utf-16"), {}, ":1: is UTF-16"),
    "plain, no such encoding": ("a.txt", b"a\n", {"encoding": "klingon"}, "there is no encoding 'klingon'"),
    "plain, UTF-16 without its mark": ("a.txt", b"a\n", {"encoding": "utf-16"}, ":1: is not utf-16"),
    "plain, a line without end": (
        "a.txt",
        b"x" * (MOST_CHARACTERS + 1),
        {},
        f":1: has over {MOST_CHARACTERS} characters",
    ),
    "JSONL, broken": ("a.jsonl", b'{"text": "a"}\n{"text": \n', {}, ":2: broken JSON"),
    "JSONL, no object": ("a.jsonl", b"[]\n", {}, ":1: holds a value of type list"),
    "JSONL, no text": ("a.jsonl", b'{"text": "a"}\n{"n": 1}\n', {}, ":2: no text in column 'text'"),
    "JSONL, a number": ("a.jsonl", b'{"text": 1}\n', {}, ":1: column 'text' holds a value of type int"),
    "JSONL, our column is taken later": (
        "a.jsonl",
        b'{"text": "a"}\n{"text": "b", "score": 1}\n',
        {},
        ":2: has a column 'score'",
    ),
    ".gz without gzip": ("a.csv.gz", b"text\na\n", {}, ": is not gzip-compressed"),
    "cut .gz": ("a.csv.gz", gzip.compress(b"text\na\n")[:-9], {}, ": the compressed data is cut short"),
    "Parquet, cut": ("a.parquet", b"PAR1PAR1", {}, ": is not a readable Parquet file"),
    "no form": ("reviews", b"text\na\n", {}, ": the name does not tell"),
    "compressed Parquet": ("a.parquet.gz", b"", {}, ": the name does not tell"),
}


@pytest.mark.parametrize(("name", "data", "options", "says"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_place(file, name, data, options, says):
    with pytest.raises(DataError) as caught:
        scored(file(name, data), **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv: no such file; the folder"):
        scored(tmp_path / "a.csv")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(DataError, match=r"b\.csv: is a folder, not a file"):
        scored(tmp_path / "b.csv")


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
def test_bad_rows_can_be_skipped_and_are_counted(file, name):
    data, expected, first = SKIPPED[name]
    path, out = file(name, data), io.BytesIO()
    with open_table(path, form_of(path), Reading(decoding=Decoding(on_error="skip"))) as table:
        progress = score_table(table, out, MODEL)
    assert out.getvalue() == expected
    assert progress.skipped == len(data.splitlines()) - len(expected.splitlines())
    assert progress.first_skipped.startswith(f"{path}{first}")


def test_bytes_that_are_no_text_can_be_replaced(file):
    assert scored(file("a.txt", b"caf\xe9\0\n"), on_error="replace").decode().endswith("\tcaf\ufffd\ufffd\n")
    with pytest.raises(DataError, match=":2: 2 fields"):  # only bytes are replaced; a broken row is still refused
        scored(file("a.csv", b"text\na,b\n"), on_error="replace")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "UTF8"])
def test_other_encodings_are_read_and_utf8_is_written(file, encoding):
    path = file("a.csv", "text,wo\ncafé,ü\n".encode(encoding))
    assert scored(path, encoding=encoding).decode() == "text,wo,label,score\ncafé,ü,CAFÉ,2.0\n"


def test_an_unknown_way_to_treat_errors_is_refused():
    with pytest.raises(DataError, match="on_error is 'skipp'; did you mean 'skip'"):
        Decoding(on_error="skipp")


def test_a_line_of_ten_megabytes_is_a_text_like_any_other(file):
    for name, head in {"a.txt": b"", "a.csv": b"text\n", "a.tsv": b"text\n"}.items():
        assert f"{10**7 / 2}".encode() in scored(file(name, head + b"x" * 10**7 + b"\n"))


def test_the_limit_of_the_csv_module_is_as_it_was(file):
    import csv

    before = csv.field_size_limit()
    scored(file("a.csv", b"text\na\n"))
    assert csv.field_size_limit() == before


def test_memory_does_not_grow_with_the_file(file):
    def peak(rows):
        path = file("a.csv", b"text\n" + (b"x" * 100 + b"\n") * rows)
        with open_table(path, "csv", Reading()) as table, (path.parent / "out.csv").open("wb") as out:
            tracemalloc.start()
            score_table(table, out, MODEL, rows_per_chunk=64)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return most

    peak(100)  # what is imported and cached on the way
    assert peak(20_000) < 1.2 * peak(2_000)


def test_a_chunk_of_long_rows_has_few_of_them(file, monkeypatch):
    monkeypatch.setattr(text_tables, "CHARACTERS_PER_CHUNK", 100)
    with open_table(file("a.txt", b"x" * 60 + b"\n" + b"y" * 60 + b"\nz\n"), "txt", Reading()) as table:
        assert [len(chunk.texts) for chunk in table.chunks(1000)] == [2, 1]


def test_progress_tells_the_share_of_the_file(file):
    path, shares = file("a.txt", b"a\n" * 200_000), []
    with open_table(path, "txt", Reading()) as table:
        progress = score_table(table, io.BytesIO(), MODEL, lambda now: shares.append(now.share), 50_000)
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1 == shares[-1]
    assert progress.rows == 200_000


def test_a_label_that_holds_a_tab_does_not_break_a_line(file):
    model = Scorer({"label": str}, lambda texts: [["one\ttwo"] * len(texts)])
    out = io.BytesIO()
    with open_table(file("a.txt", b"a\n"), "txt", Reading()) as table:
        score_table(table, out, model)
    assert out.getvalue() == b"one two\ta\n"


def parquet_file(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_parquet_keeps_its_types_and_gains_typed_columns(tmp_path):
    when = pyarrow.array([1, 2, 3], pyarrow.timestamp("ms"))
    names = pyarrow.array(["a", "bb", "ccc"]).dictionary_encode()
    path = parquet_file(tmp_path / "a.parquet", when=when, text=names, tags=[["x"], [], None])
    table = pyarrow.parquet.read_table(io.BytesIO(scored(path)))
    assert table.select(["when", "text", "tags"]).equals(pyarrow.parquet.read_table(path))
    assert table.schema.field("label").type == pyarrow.string()
    assert table.schema.field("score").type == pyarrow.float32()
    assert table.column("label").to_pylist() == ["A", "BB", "CCC"]


def test_parquet_rows_without_a_text_fail_or_are_skipped(tmp_path):
    path = parquet_file(tmp_path / "a.parquet", text1=["a", "b", None], text2=["x", None, "z"])
    with pytest.raises(DataError, match=r"a\.parquet: row 2: no text in column 'text2'"):
        scored(path)
    table = pyarrow.parquet.read_table(io.BytesIO(scored(path, on_error="skip")))
    assert table.column("label").to_pylist() == ["Ax"]


def test_parquet_without_rows_gains_the_columns_all_the_same(tmp_path):
    path = parquet_file(tmp_path / "a.parquet", text=pyarrow.array([], pyarrow.string()))
    assert pyarrow.parquet.read_table(io.BytesIO(scored(path))).column_names == ["text", "label", "score"]


def test_parquet_columns_that_cannot_be_told_apart_are_refused(tmp_path):
    twins = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    pyarrow.parquet.write_table(twins, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column 'text' is there more than once"):
        scored(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="has a column 'score' already"):
        scored(parquet_file(tmp_path / "b.parquet", text=["a"], score=[1]))


def test_parquet_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "require_extra", raises(MissingExtraError("pip install 'bibert[data]'")))
    with pytest.raises(MissingExtraError):
        scored(parquet_file(tmp_path / "a.parquet", text=["a"]))


def raises(error):
    def fail(*_):
        raise error

    return fail


def print_half(file):
    file.write(b"half")
    raise DataError("broken")


def test_an_output_is_whole_or_not_there(tmp_path):
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(DataError, match="broken"), open_output(tmp_path / "out.csv") as file:
        print_half(file)
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


def test_an_unknown_form_is_refused():
    with (
        pytest.raises(DataError, match="there is no form 'cvs'; did you mean 'csv'"),
        open_table(None, "cvs", Reading()),
    ):
        pass


def test_standard_input_stays_open(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert scored(None, "txt") == b"A\t0.5000\ta\n"
    assert not stdin.buffer.closed


@pytest.mark.parametrize("raw", ['{"text":"x"}', '{ "text" : "x" }', '{"text": "x", "more": {}}', ' {"text": "x"}  '])
def test_what_comes_out_of_json_lines_is_json(file, raw):
    (line,) = scored(file("a.jsonl", raw.encode())).splitlines()
    assert json.loads(line) == json.loads(raw) | {"label": "X", "score": 0.5}

"""Every way a user's data can be wrong: one line that starts with the place and ends with the remedy."""

import gzip
import io
import math
import re
from dataclasses import dataclass, field
from datetime import datetime

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from bibert.data import lines, readers
from bibert.data.columns import Columns
from bibert.data.lines import Decoding, open_input
from bibert.data.tables import load_table, read_table
from bibert.errors import DataError, MissingExtraError

GOOD = b"text,label\ngood film,1\nbad film,0\nfine film,1\npoor film,0\n"
PAIRS = b"sentence1\tsentence2\tscore\na b\tc d\t1.5\n"


def parquet(*names, **columns):
    """A file with some columns, or with the same texts under several names."""
    twins = pyarrow.Table.from_arrays([pyarrow.array(["a", "b"])] * len(names), names=names)
    file = io.BytesIO()
    pyarrow.parquet.write_table(twins if names else pyarrow.table(columns), file)
    return file.getvalue()


def excel(pattern, new):
    """A workbook with some of its bytes overwritten."""
    file, book = io.BytesIO(), openpyxl.Workbook()
    book.active.append(["text", "label"])
    book.save(file)
    return re.sub(pattern, new, file.getvalue())


# What Arrow reads and Python cannot: a string that is not UTF-8, and a time after the year 9999.
NOT_TEXT = pyarrow.array([b"caf\xe9"]).view(pyarrow.string())
LATE = pyarrow.array([10**15], pyarrow.timestamp("ms"))


@dataclass(frozen=True)
class Case:
    """A bad file: its name and bytes, the place the message must start with, a word it must hold."""

    name: str
    data: bytes
    place: str  # what follows the path: ":3" for line 3
    says: str
    options: dict = field(default_factory=dict)


CASES = {
    "empty": Case("a.csv", b"", "", "is empty"),
    "blank lines only": Case("a.tsv", b"\n\r\n", "", "is empty"),
    "a header of spaces": Case("a.tsv", b"\n \nx\n", ":1", "no column has a name"),
    "BOM only": Case("a.jsonl", b"\xef\xbb\xbf", "", "is empty"),
    "header only, CSV": Case("a.csv", b"text,label\n", ":1", "no row"),
    "header only, TSV": Case("a.tsv", b"text\tlabel\r\n", ":1", "no row"),
    "header of empty names": Case("a.csv", b",\n1,2\n", ":1", "no column has a name"),
    "neither text nor label": Case("a.csv", b"a,b\n1,2\n", ":1", "no text column and no label column among 'a', 'b'"),
    "two names that are not there": Case(
        "a.csv", GOOD, ":1", "no column 'txt' and no column 'lable' among", {"text": "txt", "label": "lable"}
    ),
    "no label column": Case("a.csv", b"text,other\na,b\n", ":1", "no label column among 'text', 'other'"),
    "no text column": Case("a.csv", b"foo,label\na,b\n", ":1", "no text column among 'foo', 'label'"),
    "a text and a pair": Case(
        "a.csv",
        b"sentence,premise,hypothesis,label\na,b,c,1\n",
        ":1",
        "text column 'sentence', or the text column 'premise' and the pair column 'hypothesis'",
    ),
    "no header, long text": Case("a.csv", b'"' + b"long " * 500 + b'\n",1\n', ":1", "long long lo...'"),
    "no header": Case("a.csv", b"good film,1\nbad film,0\n", ":1", "add a header line"),
    "missing asked column": Case("a.csv", GOOD, ":1", "no column 'txt' among 'text', 'label'", {"text": "txt"}),
    "same column twice asked": Case("a.csv", GOOD, ":1", "one column for two uses", {"text": "text", "label": "text"}),
    "duplicate header": Case("a.csv", b"text,label,text\na,1,b\n", ":1", "'text'"),
    "commas in .tsv": Case("a.tsv", b"text,label\na,1\n", ":1", "commas, not tabs"),
    "too few fields": Case("a.csv", GOOD + b"short\n", ":6", "1 fields where the header has 2"),
    "too many fields": Case("a.csv", b"text,label\nyes, but no,1\n", ":2", "3 fields where the header has 2"),
    "tab in a TSV text": Case("a.tsv", b"text\tlabel\na\tb\t1\n", ":2", "3 fields"),
    "open quote": Case("a.csv", b'text,label\nok,1\n"never closed,0\nmore,1\n', ":3", "broken row"),
    "text after a quote": Case("a.csv", b'text,label\n"a" b,0\n', ":2", "broken row"),
    "UTF-16": Case("a.csv", GOOD.decode().encode("utf-16"), ":1", "UTF-16"),
    "latin-1": Case("a.csv", b"text,label\nok,1\ncaf\xe9,0\n", ":3", "byte 0xe9 is not utf-8"),
    "NUL": Case("a.tsv", b"text\tlabel\nok\t1\nb\0d\t0\n", ":3", "NUL"),
    "spreadsheet": Case("a.csv", b"PK\x03\x04rest", ":1", "Excel"),
    "Excel that is text": Case("a.xlsx", GOOD, "", "not a readable Excel file"),
    "damaged Excel": Case("a.xlsx", excel(rb"(?s)sheet1\.xml[^P].{8}", b"sheet1.xml" + b"\xff" * 9), "", "decompress"),
    "encrypted Excel": Case("a.xlsx", excel(rb"\x14\0\0\0\x08", b"\x14\0\1\0\x08"), "", "encrypted"),
    "gzip without .gz": Case("a.csv", gzip.compress(GOOD), ":1", "give it a name ending in .gz"),
    ".gz without gzip": Case("a.csv.gz", GOOD, "", "not gzip-compressed"),
    "cut .gz": Case("a.csv.gz", gzip.compress(GOOD)[:-12], "", "cut short"),
    "damaged .gz": Case("a.csv.gz", gzip.compress(GOOD)[:12] + b"\xff" * 40, "", "damaged"),
    "wrong checksum in .gz": Case("a.csv.gz", gzip.compress(GOOD)[:-8] + b"\0" * 8, "", "damaged"),
    "empty .gz": Case("a.csv.gz", b"", "", "not gzip-compressed"),
    "nothing in a .gz": Case("a.csv.gz", gzip.compress(b""), "", "is empty"),
    "unknown format": Case("a.xyz", GOOD, "", "give it a name ending in .txt, .csv"),
    "no format": Case("reviews", GOOD, "", "give it a name ending in .txt, .csv"),
    "broken JSON": Case("a.jsonl", b'{"text": "a", "label": 0}\n{"text": "b", \n', ":2", "broken JSON"),
    "JSON array": Case("a.jsonl", b'[{"text": "a", "label": 0}]\n', ":1", "one JSON object"),
    "JSON number": Case("a.jsonl", b"17\n", ":1", "type int"),
    "JSON twin keys": Case("a.jsonl", b'{"text": "a", "text": "b"}\n', ":1", "twice"),
    "JSON too deep": Case("a.jsonl", b"[" * 100_000, ":1", "broken JSON"),
    "JSON without keys": Case("a.jsonl", b"{}\n{}\n", ":1", "no column has a name"),
    "JSON row without text": Case("a.jsonl", b'{"text": "a", "label": 0}\n{"label": 1}\n', ":2", "empty text"),
    "JSON text is a list": Case("a.jsonl", b'{"text": ["a"], "y": 0}\n{"text": "b", "y": 1}', ":1", "type list"),
    "JSON label is a list": Case("a.jsonl", b'{"text": "a", "label": [0]}\n', ":1", "'label' is of type list"),
    "JSON half surrogate": Case("a.jsonl", b'{"text": "\\ud800", "label": 0}\n{"text": "b", "label": 1}', ":1", "half"),
    "JSON null label": Case("a.jsonl", b'{"text": "a", "label": null}\n', ":1", "no usable label"),
    "JSON NaN score": Case("a.jsonl", b'{"text": "a", "label": 1.5}\n{"text": "b", "label": NaN}', ":2", "no usable"),
    "empty text": Case("a.csv", GOOD + b",1\n", ":6", "empty text in column 'text'"),
    "below quoted lines": Case("a.csv", b'text,label\n"two\nlines",1\nno,0\n,1\n', ":5", "empty text"),
    "blank text": Case("a.tsv", b"text\tlabel\na\t1\n  \t0\n", ":3", "empty text"),
    "empty second text": Case("a.tsv", PAIRS + b"a\t\t2\n", ":3", "empty text in column 'sentence2'"),
    "unlabeled row": Case("a.csv", GOOD + b"what,\n", ":6", "no usable label"),
    "NaN score": Case("a.tsv", PAIRS + b"a\tb\tnan\n", ":3", "no usable label in column 'score' (found 'nan')"),
    "infinite score": Case("a.tsv", PAIRS + b"a\tb\t-inf\n", ":3", "no usable label"),
    "overflowing score": Case("a.tsv", PAIRS + b"a\tb\t1e999\n", ":3", "not a finite number"),
    "word for a score": Case("a.tsv", PAIRS + b"a\tb\thigh\n", ":3", "score 'high'"),
    "decimal comma": Case("a.tsv", PAIRS + b"a\tb\t2,5\n", ":3", "write it like 3.5"),
    "names for scores": Case("a.csv", b"text,label\na,x\nb,y\n", ":2", "score 'x'", {"regression": True}),
    "floats for classes": Case("a.csv", GOOD + b"so,0.5\n", ":6", "0.5 is not a class", {"regression": False}),
    "one class only": Case("a.csv", b"text,label\na,1\nb,1\n", "", "all 2 rows have the label '1'"),
    "one score only": Case("a.csv", b"text,label\na,1.5\nb,1.5\n", "", "all 2 scores are 1.5"),
    "a class a row": Case(
        "a.csv", b"text,label\n" + b"".join(b"t,%d\n" % n for n in range(10**5)), "", "100000 different labels"
    ),
    "two rows to split": Case("a.csv", b"text,label\na,0\nb,1\n", "", "too few to set some aside"),
    "Parquet that is text": Case("a.parquet", GOOD, "", "not a readable Parquet file"),
    "cut Parquet": Case("a.parquet", b"PAR1" + b"\0" * 50, "", "not a readable Parquet file"),
    "Parquet that is not UTF-8": Case("a.parquet", parquet(text=NOT_TEXT, label=[0]), "", "can't decode byte 0xe9"),
    "Parquet after the year 9999": Case("a.parquet", parquet(text=["a"], label=LATE), "", "not a readable Parquet"),
    "Parquet numbers": Case("a.parquet", parquet(text=[1, 2], label=[0, 1]), ": row 1", "type int"),
    "Parquet without a text": Case("a.parquet", parquet(text=["a", None], label=[0, 1]), ": row 2", "empty text"),
    "Parquet null label": Case("a.parquet", parquet(text=["a", "b"], label=[0, None]), ": row 2", "no usable label"),
    "Parquet NaN": Case("a.parquet", parquet(text=["a", "b"], label=[0.5, math.nan]), ": row 2", "no usable label"),
    "Parquet without a row": Case("a.parquet", parquet(text=[], label=[]), "", "no row"),
    "Parquet without a column": Case("a.parquet", parquet(), "", "is empty"),
    "a label of two lines": Case("a.csv", b'text,label\na,0\nb,"1\n2"\n', ":3", "control characters"),
    "Parquet twin columns": Case("a.parquet", parquet("text", "text"), "", "'text' appears more than once"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_data_gives_one_line_with_the_place_and_the_remedy(case, tmp_path):
    path = tmp_path / case.name
    path.write_bytes(case.data)
    options = dict(case.options)
    names = Columns(**{part: options.pop(part) for part in ("text", "label") if part in options})
    with pytest.raises(DataError) as caught:
        load_table(path, columns=names, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}{case.place}: ")
    assert case.says in message
    assert "\n" not in message
    assert ";" in message  # the remedy follows


def test_a_field_without_end_is_a_broken_row(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LONGEST_LINE", 1000)
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,label\nok,1\n"' + b"x\n" * 600 + b'",1\n')
    with pytest.raises(DataError, match=r"a\.csv:3: .*field limit \(1000\)"):
        load_table(path)


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_csv_file_is_found_in_its_header(mark, write):
    path = write("a.csv", f'text{mark}"a,b;c|d"{mark}label\n"x,y;z|\t"{mark}{mark}0\n')
    assert read_table(path).columns == {"text": ["x,y;z|\t"], "a,b;c|d": [""], "label": ["0"]}


def test_a_delimiter_can_be_named_and_must_be_one_character(write):
    path = write("a.csv", "text^label\nso, so^1\n")
    assert read_table(path, "^").columns["text"] == ["so, so"]
    assert read_table(write("a.tsv", "text;label\na;1\n"), ";").columns["label"] == ["1"]
    assert Decoding(delimiter="tab").delimiter == Decoding(delimiter="\\t").delimiter == "\t"
    with pytest.raises(DataError, match="must be one character"):
        Decoding(delimiter=";;")


def test_the_delimiter_of_a_models_data_is_for_csv_files_that_have_it(write):
    delimiter = Columns().beside({"data": {"columns": {"delimiter": "^"}}}).delimiter
    for name, mark in {"a.csv": "^", "b.csv": ";", "a.tsv": "\t"}.items():
        assert read_table(write(name, f"text{mark}label\na, b{mark}1\n"), delimiter).columns["text"] == ["a, b"]


def test_an_open_quote_is_found_within_some_lines_and_skips_its_row_alone(write):
    fine = b"fine,1\n" * (2 * readers.MOST_LINES_OF_A_ROW)
    path = write("a.csv", b'text,label\n"open,1\n' + fine + b'"a\nb",0\n')
    with pytest.raises(DataError, match=r"a\.csv:2: broken row \(a quote is still open after 10,000 lines\)"):
        load_table(path)
    with open_input(path) as source:
        rows = [row for chunk in readers.Csv(source, Decoding(on_error="skip")).chunks(1000) for row in chunk]
    errors = [str(row) for row in rows if isinstance(row, DataError)]
    assert len(errors) == 1
    assert len(rows) == 2 * readers.MOST_LINES_OF_A_ROW + 2
    assert (rows[-1].number, rows[-1].cells["text"]) == (2 * readers.MOST_LINES_OF_A_ROW + 3, "a\nb")


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
def test_a_line_that_is_too_long_can_be_skipped(name, write, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    line = {"a.jsonl": b'{"text": "%s"}\n'}.get(name, b"%s\n")
    path = write(name, (b"text\n" if name in ("a.csv", "a.tsv") else b"") + line % (b"x" * 250) + line % b"fine")
    with open_input(path) as source:
        reader = readers.FORMATS[readers.format_of(path)](source, Decoding(on_error="skip"))
        broken, fine = (row for chunk in reader.chunks(10) for row in chunk)
    assert "has over 100 characters" in str(broken)
    assert fine.cells == {"text": "fine"}


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_hundred_thousand_columns_are_read_in_one_pass(name, write):
    names = [f"c{number}" for number in range(100_000)] + ["text"]
    twice = [*names, "c7"]
    for columns in (names, twice):
        data = parquet(*columns) if name == "a.parquet" else f"{','.join(columns)}\n".encode()
        with open_input(write(name, data)) as source:
            if columns is names:
                assert len(readers.FORMATS[name[2:]](source, Decoding()).names) == len(names)
                continue
            with pytest.raises(DataError, match="column 'c7' appears more than once"):
                readers.FORMATS[name[2:]](source, Decoding())


def test_the_first_sheet_of_an_excel_file_is_a_table(tmp_path):
    book = openpyxl.Workbook()
    for row in (["text", "when", "label"], ["good", datetime(2026, 1, 2), 1], [None] * 3, ["bad", None, 0.0]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    table = read_table(tmp_path / "a.xlsx")
    assert table.columns == {"text": ["good", "bad"], "when": ["2026-01-02 00:00:00", None], "label": [1, 0]}
    assert table.where(1).endswith("a.xlsx:4")


def test_parquet_needs_its_extra(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(parquet(text=["a", "b"], label=[0, 1]))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bibert\[data\]'"):
        load_table(tmp_path / "a.parquet")


MISSING = {
    "a file": ("trian.csv", r"trian\.csv: no such file; the folder .* has 'train\.csv'"),
    "a folder": ("nowhere/train.csv", r"no such file; the folder .*nowhere does not exist"),
    "a folder for a file": (".", r"is a folder, .* has 'train\.csv'"),
    "a name that is too long": ("x" * 300 + ".csv", "cannot be read"),
}


@pytest.mark.parametrize(("name", "says"), MISSING.values(), ids=MISSING)
def test_a_wrong_path_is_named_with_what_is_there(name, says, tmp_path):
    (tmp_path / "train.csv").write_bytes(GOOD)
    with pytest.raises(DataError, match=says):
        load_table(tmp_path / name)


DEV_CASES = {
    "unknown label": (b"text,label\nok,1\nso so,2\n", ":3: unknown label '2'"),
    "another text column": (b"sentence,label\nok,1\n", ":1: no column 'text'"),
    "header only": (b"text,label\n", ":1: no row"),
}


@pytest.mark.parametrize(("data", "says"), DEV_CASES.values(), ids=DEV_CASES)
def test_bad_dev_file_is_named_with_its_line(data, says, tmp_path):
    (tmp_path / "train.csv").write_bytes(GOOD)
    (tmp_path / "dev.csv").write_bytes(data)
    with pytest.raises(DataError) as caught:
        load_table(tmp_path / "train.csv", tmp_path / "dev.csv")
    assert str(caught.value).startswith(f"{tmp_path / 'dev.csv'}{says}")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_dev_share_outside_zero_to_one_is_refused(share, tmp_path):
    (tmp_path / "train.csv").write_bytes(GOOD)
    with pytest.raises(DataError, match=f"dev_share is {share}, .* 0 and 1"):
        load_table(tmp_path / "train.csv", dev_share=share)


WHOLE_FILES = {
    "a.csv": lambda: GOOD,
    "a.tsv": lambda: PAIRS + b"x\ty\t2.5\nz\tz\t3\n",
    "a.jsonl": lambda: b'{"text": "a", "label": 0}\n{"text": "b", "label": 1}\n{"text": "c", "label": 1}\n',
    "a.csv.gz": lambda: gzip.compress(GOOD, mtime=0),
    "a.parquet": lambda: parquet(text=list("abcd"), label=[0, 1, 0, 1]),
}


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_a_file_cut_anywhere_is_read_or_refused_in_one_line(name, tmp_path):
    path, whole = tmp_path / name, WHOLE_FILES[name]()
    path.write_bytes(whole)
    assert len(load_table(path).train) >= 2
    messages = []
    for length in range(0, len(whole), max(1, len(whole) // 200)):
        path.write_bytes(whole[:length])
        try:
            load_table(path)
        except DataError as error:
            messages.append(str(error))
    assert messages
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages)

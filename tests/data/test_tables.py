"""A user's own data in every form it may come in. What is refused is in test_readers."""

import csv
import gzip
import json
from collections import Counter

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from bibert.data.columns import Columns
from bibert.data.examples import Split, describe
from bibert.data.tables import load_table, split_off_dev, with_unlabelled
from bibert.errors import DataError

TEXTS = tuple(f"film number {n}" for n in range(40))
LABELS = tuple("good" if n % 4 else "bad" for n in range(40))


def lines_of(delimiter):
    return "".join(
        f"{text}{delimiter}{label}\n" for text, label in zip(("text", *TEXTS), ("label", *LABELS), strict=True)
    )


def write_jsonl(path):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)))


WRITERS = {
    ".csv": lambda path: path.write_text(lines_of(",")),
    ".tsv": lambda path: path.write_text(lines_of("\t")),
    ".jsonl": write_jsonl,
    ".ndjson": write_jsonl,
    ".parquet": lambda path: pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "label": LABELS}), path),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("suffix", WRITERS)
def test_every_form_gives_the_same_data(suffix, packed, tmp_path):
    path = tmp_path / f"reviews{suffix}"
    WRITERS[suffix](path)
    if packed:
        plain, path = path, tmp_path / f"reviews{suffix}.gz"
        path.write_bytes(gzip.compress(plain.read_bytes()))
    data = load_table(path, path)
    assert data.train.texts == data.dev["dev"].texts == TEXTS
    assert data.train.pairs is None
    assert data.label_names == ("bad", "good")
    assert data.train.labels == tuple(int(label == "good") for label in LABELS)
    assert data.metrics == ("accuracy", "macro_f1")
    assert data.train.origin == data.source == str(path)


LONG = "word " * 200_000
READ = {
    "BOM and CRLF": ("a.tsv", b"\xef\xbb\xbftext\tlabel\r\ngood\t1\r\nbad\t0\r\n\r\n", ("good", "bad")),
    "quotes in TSV are letters": (
        "a.tsv",
        b'text\tlabel\n"open and\t1\nhe said "no"\t0\n',
        ('"open and', 'he said "no"'),
    ),
    "other line separators": (
        "a.tsv",
        "text\tlabel\none\u2028two\x85three\t1\nfour\rfive\t0\n".encode(),
        ("one\u2028two\x85three", "four\rfive"),
    ),
    "quotes in CSV": ("a.csv", b'text,label\n"yes, ""it"" is\nfine",1\nno,0\n', ('yes, "it" is\nfine', "no")),
    "a long text": ("a.tsv", f"text\tlabel\n{LONG}\t1\nno\t0\n".encode(), (LONG, "no")),
    "long fields": ("a.csv", f'text,label\n"{LONG}",1\n{LONG}again,0\n'.encode(), (LONG, f"{LONG}again")),
    "an unnamed column": ("a.csv", b",text,label\n0,yes,1\n1,no,0\n", ("yes", "no")),
}


@pytest.mark.parametrize(("name", "content", "texts"), READ.values(), ids=READ)
def test_texts_are_read_as_they_are_written(name, content, texts, write):
    before = csv.field_size_limit()
    path = write(name, content)
    data = load_table(str(path), path)
    assert data.train.texts == texts
    assert data.label_names == ("0", "1")
    assert csv.field_size_limit() == before  # one for the whole process


HEADERS = {
    "single": ("Review,Sentiment", Columns("Review", "", "Sentiment")),
    "pair": ("id,PREMISE,hypothesis,label", Columns("PREMISE", "hypothesis", "label")),
    "pair beside a title": ("title,question,answer,label", Columns("question", "answer", "label")),
    "half a pair has the name of a text": ("question,sentence,label", Columns("question", "sentence", "label")),
    "question and answer": ("id,question,answer,class", Columns("question", "answer", "class")),
    "label before score": ("score,text,label", Columns("text", "", "label")),
}


@pytest.mark.parametrize(("header", "expected"), HEADERS.values(), ids=HEADERS)
def test_columns_are_found_by_the_names_people_use(header, expected, write):
    names = header.split(",")
    rows = [",".join(f"{name} {row % 2}" for name in names) for row in range(4)]
    path = write("a.csv", "\n".join([header, *rows]))
    data = load_table(path, path)
    assert data.train.texts[0] == f"{expected.text} 0"
    assert data.train.pairs == (tuple(f"{expected.pair} {row % 2}" for row in range(4)) if expected.pair else None)
    assert data.label_names == (f"{expected.label} 0", f"{expected.label} 1")


def test_given_columns_win_and_their_case_does_not_matter(write):
    path = write("a.csv", "text,label,Body,Stars,sentence1,sentence2\na,0,one,5,c,d\nb,1,two,3,e,f\n")
    data = load_table(path, path, Columns(text="body", label="stars"))
    assert data.train.texts == ("one", "two")
    assert data.label_names == ("3", "5")
    assert load_table(path, path, Columns(text="sentence2")).train.pairs is None  # not found by name then


LABEL_FORMS = {
    "names are sorted": (["pos", " neg ", "pos", "neg"], ("neg", "pos"), (1, 0, 1, 0)),
    "numbers sort as numbers": (["10", "9", "10", "9"], ("9", "10"), (1, 0, 1, 0)),
    "whole floats are classes": (["1.0", "0.0", "1", "0"], ("0", "1"), (1, 0, 1, 0)),
    "leading zeros stay": (["007", "001", "007", "001"], ("001", "007"), (1, 0, 1, 0)),
    "fractions are scores": (["1", "0.5", "1", "2"], (), (1.0, 0.5, 1.0, 2.0)),
    "a version is a name": (["v1.5", "v2", "v1.5", "v2"], ("v1.5", "v2"), (0, 1, 0, 1)),
}


@pytest.mark.parametrize(("written", "names", "labels"), LABEL_FORMS.values(), ids=LABEL_FORMS)
def test_labels_are_inferred(written, names, labels, write):
    path = write("a.tsv", "text\tlabel\n" + "".join(f"t\t{label}\n" for label in written))
    data = load_table(path, path)
    assert data.label_names == names
    assert data.train.labels == labels
    assert {type(label) for label in data.train.labels} == {int if names else float}


def test_json_values_are_labels_and_whole_numbers_are_scores_when_asked(write):
    path = write("a.jsonl", '{"text": "a", "label": true}\n{"text": "b", "label": false}\n')
    assert load_table(path, path).label_names == ("false", "true")
    path = write("a.tsv", "text\tstars\na\t5\nb\t3\n")
    data = load_table(path, path, regression=True)
    assert data.label_names == ()
    assert data.train.labels == (5.0, 3.0)
    assert data.metrics == ("spearman", "pearson")


def test_the_made_dev_split_is_stratified_and_loses_nothing(tmp_path):
    WRITERS[".csv"](tmp_path / "a.csv")
    data = load_table(tmp_path / "a.csv", dev_share=0.2, seed=3)
    dev = data.dev["dev"]
    assert Counter(dev.labels) == {0: 2, 1: 6}
    assert sorted(data.train.texts + dev.texts) == sorted(TEXTS)
    truth = dict(zip(TEXTS, LABELS, strict=True))
    assert all(data.label_names[int(label)] == truth[text] for text, label in zip(dev.texts, dev.labels, strict=True))
    assert list(data.train.texts) == sorted(data.train.texts, key=TEXTS.index)


def test_the_made_dev_split_follows_the_seed_alone(tmp_path):
    WRITERS[".csv"](tmp_path / "a.csv")
    write_jsonl(tmp_path / "a.jsonl")
    first, again = (load_table(tmp_path / name, seed=1).dev["dev"].texts for name in ("a.csv", "a.jsonl"))
    other = load_table(tmp_path / "a.csv", seed=2).dev["dev"].texts
    assert first == again
    assert first != other


def test_a_class_of_one_row_stays_in_train_and_a_class_of_two_is_in_both():
    split = Split(tuple("abcdefg"), None, (0, 0, 0, 0, 1, 1, 2), "here")
    train, dev = split_off_dev(split, 0.1, seed=0, stratify=True)
    assert Counter(dev.labels) == {0: 1, 1: 1}
    assert Counter(train.labels) == {0: 3, 1: 1, 2: 1}


def test_scores_and_pairs_are_split_together():
    split = Split(tuple("abcd"), tuple("ABCD"), (0.1, 0.2, 0.3, 0.4), "here")
    train, dev = split_off_dev(split, 0.25, seed=0, stratify=False)
    assert (len(train), len(dev)) == (3, 1)
    rows = {(t, p, s) for part in (train, dev) for t, p, s in zip(part.texts, part.pairs, part.labels, strict=True)}
    assert rows == set(zip(split.texts, split.pairs, split.labels, strict=True))


def dataset(labels=(1, 0, 1, 0), names=("ugly", "nice")):
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))}
    )
    return datasets.Dataset.from_dict({"sentence": list("abcd"), "label": list(labels)}, features=features)


def test_a_dataset_keeps_the_order_of_its_class_names_and_dev_is_matched_by_name():
    data = load_table(dataset().with_format("numpy"), dataset(names=("nice", "ugly")))
    assert data.label_names == ("ugly", "nice")
    assert data.train.labels == (1, 0, 1, 0)
    assert data.dev["dev"].labels == (0, 1, 0, 1)


def test_a_dataset_dict_brings_its_validation_split_and_its_test_split_is_never_used():
    data = load_table(datasets.DatasetDict(train=dataset(), validation=dataset((0, 0, 1, 1)), test=dataset()))
    assert data.dev["dev"].labels == (0, 0, 1, 1)
    assert data.dev["dev"].origin == "dataset['validation']"
    data = load_table(datasets.DatasetDict(train=dataset(), test=dataset()))
    assert (len(data.train), len(data.dev["dev"])) == (2, 2)
    assert set(data.train.texts).isdisjoint(data.dev["dev"].texts)


def test_a_dev_file_beside_a_dataset_dict_wins(write):
    dev = write("dev.csv", "sentence,label\nz,nice\n")
    data = load_table(datasets.DatasetDict(train=dataset(), validation=dataset()), dev)
    assert data.dev["dev"].texts == ("z",)


def test_texts_without_labels_are_kept_once_and_none_that_is_measured(write):
    dev = write("dev.csv", "text,label\nSo Bad!,1\n")
    data = load_table(write("a.csv", "text,label\n" + "a film,0\nno,1\n" * 4), dev)
    lines = write("more.txt.gz", gzip.compress(b"so   bad\nnew\n \n\nA film?\nnew\nIt's  GOOD\n"))
    table = write("more.csv", 'sentence,label\nnew,1\n"so, bad...",\nnewer,x\n')
    found, left_out = with_unlabelled(data, [lines, table], tested=[Split(("it 's go-od",), None, (0,), "test.csv")])
    assert (found.unlabelled.texts, left_out) == (("new", "A film?", "newer"), 3)  # a training row may come again
    assert (found.unlabelled.origin, found.train, found.dev) == ("more.txt.gz, more.csv", data.train, data.dev)
    assert "3 rows" in describe(found)[-1]
    rows = "sentence1,sentence2,label\na,b,0\nc,d,1\n"
    pairs = load_table(write("pairs.csv", rows), write("dev.csv", rows))
    found, left_out = with_unlabelled(pairs, [write("b.csv", "sentence1,sentence2\nA,b.\nb,a\nc,\n")])
    assert (found.unlabelled.texts_or_pairs, left_out) == ([("b", "a")], 1)
    for of, remedy in ((data, "add texts"), (pairs, "two columns")):
        with pytest.raises(DataError, match=rf"more\.txt.*{remedy}"):
            with_unlabelled(of, [write("more.txt", "so bad\n\n")])


OBJECTS = {
    "unlabeled": (lambda: (dataset((1, 0, -1, 0)),), "dataset: row 3: no usable label"),
    "no train": (lambda: (datasets.DatasetDict(test=dataset()),), "no split 'train' (found 'test')"),
    "empty": (lambda: (dataset().select([]),), "dataset: has no row"),
    "stream": (lambda: (dataset().to_iterable_dataset(),), "dataset: is a stream"),
    "no label": (lambda: (dataset().remove_columns("label"),), "dataset: no label column among 'sentence'"),
    "a list": (lambda: ([("a", 1)],), "dataset: is a list; pass a path"),
    "splits for dev": (lambda: (dataset(), datasets.DatasetDict(train=dataset())), "dev dataset: holds the splits"),
}


@pytest.mark.parametrize(("make", "says"), OBJECTS.values(), ids=OBJECTS)
def test_bad_objects_are_named(make, says):
    with pytest.raises(DataError) as caught:
        load_table(*make())
    assert says in str(caught.value)

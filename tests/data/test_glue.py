"""GLUE's tasks from their TSV files, from a stand-in for the Hub, and from the real files where they are."""

import datasets
import pytest

from bibert.data.augment import load_rows, save_rows
from bibert.data.columns import Columns
from bibert.data.glue import TASKS, get_task, load_glue, load_glue_from_hub, load_glue_split
from bibert.errors import DataError

MNLI_HEADER = "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
# Two rows of each task as GLUE writes them; the second row has the class with id 1.
FILES = {
    "CoLA": "gj04\t0\t*\tfirst text\ngj04\t1\t\tsecond text\n",
    "SST-2": "sentence\tlabel\nfirst text \t0\nsecond text \t1\n",
    "MRPC": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "0\t1\t2\tfirst text\tpair\n1\t3\t4\tsecond text\tpair\n",
    "STS-B": "index\tsentence1\tsentence2\tscore\n0\tfirst text\tpair\t0.000\n1\tsecond text\tpair\t1.000\n",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "0\t1\t2\tfirst text\tpair\t0\n1\t3\t4\tsecond text\tpair\t1\n",
    "MNLI": MNLI_HEADER + "0\tx\tfirst text\tpair\tneutral\tentailment\n1\tx\tsecond text\tpair\tneutral\tneutral\n",
    "QNLI": "index\tquestion\tsentence\tlabel\n0\tfirst text\tpair\tentailment\n1\tsecond text\tpair\tnot_entailment\n",
    "RTE": "index\tsentence1\tsentence2\tlabel\n"
    "0\tfirst text\tpair\tentailment\n1\tsecond text\tpair\tnot_entailment\n",
}
SINGLE = ("CoLA", "SST-2")


@pytest.fixture
def folder(tmp_path):
    """All tasks in GLUE's own form."""
    for name, text in FILES.items():
        (tmp_path / name).mkdir()
        for file in ("train", *(f"dev{end}" for end in get_task(name).dev.values())):
            (tmp_path / name / f"{file}.tsv").write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_task_is_read_from_its_own_columns(name, folder):
    data = load_glue(name, folder)
    assert [text.strip() for text in data.train.texts] == ["first text", "second text"]
    assert data.train.pairs == (None if name in SINGLE else ("pair", "pair"))
    assert data.train.labels == (0, 1)
    assert data.name == name
    assert data.source == folder / name
    assert {type(label) for label in data.train.labels} == {float if name == "STS-B" else int}
    assert list(data.dev) == (["dev", "dev_mismatched"] if name == "MNLI" else ["dev"])


def test_tasks_and_metrics_are_the_papers():
    assert [task.name for task in TASKS.values()] == list(FILES)
    assert [task.variants for task in TASKS.values()] == [30, 20, 30, 30, 10, 10, 20, 30]  # of an augmented text
    first = {name: task.metrics[0] for name, task in TASKS.items()}
    assert first.pop("cola") == "matthews"
    assert first.pop("stsb") == "spearman"
    assert set(first.values()) == {"accuracy"}
    assert [name for name, task in TASKS.items() if "f1" in task.metrics] == ["mrpc", "qqp"]


def test_case_and_dashes_of_a_name_do_not_matter():
    assert {get_task(name).name for name in ("sst-2", "SST2", "sst_2", "Sst-2")} == {"SST-2"}
    with pytest.raises(DataError, match=r"'SST-3'.*'sst2'"):
        get_task("SST-3")


def test_the_folder_of_the_task_serves_as_well_and_may_be_named_as_on_the_hub(folder):
    assert load_glue("rte", folder / "RTE") == load_glue("rte", folder)
    (folder / "SST-2").rename(folder / "sst2")
    assert load_glue("SST-2", folder).source == folder / "sst2"


def test_mismatched_dev_is_the_second_dev_file_and_another_training_file_can_be_named(folder):
    (folder / "MNLI" / "dev_mismatched.tsv").write_text(MNLI_HEADER + "0\tx\tother\tpair\tneutral\tcontradiction\n")
    data = load_glue("mnli", folder)
    assert data.dev["dev"].texts == ("first text", "second text")
    assert data.dev["dev_mismatched"].texts == ("other",)
    assert data.dev["dev_mismatched"].labels == (2,)
    (folder / "RTE" / "train_augmented.tsv").write_text(FILES["RTE"].replace("first", "changed"))
    assert load_glue("rte", folder, "train_augmented.tsv").train.texts[0] == "changed text"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_augmentation_writes_is_read_like_its_own(name, folder):
    file = load_rows(folder / name / "train.tsv", Columns(), name)
    assert save_rows(folder / name / "twice.tsv", file, [[row, row] for row in file.rows]) == 4
    once, twice = (load_glue_split(name, folder / name / f"{part}.tsv") for part in ("train", "twice"))
    assert twice.texts_or_pairs == [row for row in once.texts_or_pairs for _ in range(2)]
    assert twice.labels == tuple(label for label in once.labels for _ in range(2))


def test_the_known_broken_rows_of_qqp_are_left_out_with_a_warning_and_more_are_an_error(folder, caplog):
    path = folder / "QQP" / "train.tsv"
    path.write_text(FILES["QQP"] + "2\t5\t6\tcut short\n3\t7\t8\tno second question\t\t0\n4\t9\t9\tlast\tpair\t1\n")
    split = load_glue_split("qqp", path)
    assert split.texts == ("first text", "second text", "last")
    assert "2 broken rows" in caplog.text
    path.write_text(FILES["QQP"] + "2\t5\t6\tcut short\n" * 101)
    with pytest.raises(DataError, match=r"train\.tsv:4: empty text in column 'question2'"):
        load_glue_split("qqp", path)


BAD_FILES = {
    "cut row": ("index\tquestion\tsentence\tlabel\n0\ta\tb\n", ":2: 3 fields where the header has 4"),
    "empty text": ("index\tquestion\tsentence\tlabel\n0\ta\t\tentailment\n", ":2: empty text in column 'sentence'"),
    "another task": ("sentence\tlabel\na\t0\n", ":1: no column 'question' among 'sentence', 'label'"),
    "label by number": ("index\tquestion\tsentence\tlabel\n0\ta\tb\t1\n", ":2: unknown label '1'"),
    "no rows": ("index\tquestion\tsentence\tlabel\n", ":1: no row"),
    "test file": ("index\tquestion\tsentence\n0\ta\tb\n", ":1: no column 'label'"),
}


@pytest.mark.parametrize(("text", "says"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_named_with_its_line(text, says, folder):
    path = folder / "QNLI" / "dev.tsv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load_glue("qnli", folder)
    assert str(caught.value).startswith(f"{path}{says}")


def test_missing_places_are_named(folder):
    with pytest.raises(DataError, match=r"nowhere: no such folder; .*RTE/train\.tsv"):
        load_glue("rte", folder / "nowhere")
    with pytest.raises(DataError, match="is a file, not a folder"):
        load_glue("rte", folder / "RTE" / "dev.tsv")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"no folder RTE in it \(found no folder\)"):
        load_glue("rte", folder / "empty")
    (folder / "RTE" / "train.tsv").unlink()
    with pytest.raises(DataError, match=r"train\.tsv: no such file; the folder .* has 'dev\.tsv'"):
        load_glue("rte", folder)


def hub_split(task):
    """Two rows as the Hub has them; the test split has no labels there."""
    columns = task.hub_columns
    label = datasets.ClassLabel(names=list(task.label_names)) if task.label_names else datasets.Value("float32")
    rows = {columns.text: ["first text", "second text"], columns.label: [0, 1], "idx": [0, 1]}
    if columns.pair:
        rows[columns.pair] = ["pair", "pair"]
    return datasets.Dataset.from_dict(rows).cast_column(columns.label, label)


@pytest.mark.parametrize("name", FILES)
def test_the_hub_gives_the_same_data_as_the_files(name, folder, monkeypatch):
    asked = []

    def load_dataset(*args):
        asked.append(args)
        task = get_task(name)
        return datasets.DatasetDict(
            {part: hub_split(task) for part in ("train", *(f"validation{e}" for e in task.dev.values()))}
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    here, there = load_glue(name, folder), load_glue_from_hub(name)
    assert asked == [("nyu-mll/glue", get_task(name).key)]
    assert there.train.labels == here.train.labels
    assert there.train.pairs == here.train.pairs
    assert list(there.dev) == list(here.dev)
    assert (there.label_names, there.metrics) == (here.label_names, here.metrics)
    assert there.source == "nyu-mll/glue"


def test_a_hub_out_of_reach_or_without_the_split_is_refused_with_a_remedy(monkeypatch):
    def load_dataset(*_args):
        raise ConnectionError("Couldn't reach the Hub\nmore lines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"RTE \(Couldn't reach the Hub\); check the network"):
        load_glue_from_hub("rte")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_args: {"train": hub_split(get_task("rte"))})
    with pytest.raises(DataError, match=r"glue/rte: no split 'validation' \(found 'train'\)"):
        load_glue_from_hub("rte")


TRAIN_SIZES = dict(zip(FILES, (8551, 67_349, 3668, 5749, 363_846, 392_702, 104_743, 2490), strict=True))
DEV_SIZES = dict(zip(FILES, (1043, 872, 408, 1500, 40_430, 9815, 5463, 277), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_the_real_files_have_their_published_sizes(name, glue_folder):
    task = get_task(name)
    files = [glue_folder / name / "train.tsv", glue_folder / name / f"dev{task.dev['dev']}.tsv"]
    here = [
        (file, size) for file, size in zip(files, (TRAIN_SIZES[name], DEV_SIZES[name]), strict=True) if file.is_file()
    ]
    if not here:
        pytest.skip(f"no files of {name} there")
    for file, size in here:
        split = load_glue_split(name, file)
        # Counts of QQP differ by the broken rows that a release keeps.
        assert abs(len(split) - size) <= task.broken_rows
        classes = set(range(len(task.label_names)))
        assert set(split.labels) == classes or (min(split.labels), max(split.labels)) == (0, 5)

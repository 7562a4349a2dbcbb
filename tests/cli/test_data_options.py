"""Options for labelled texts: which files they read, and which combinations they refuse."""

import pytest

from bibert.cli.options import DataOptions, EvaluationOptions, usual_length
from bibert.data import MAX_LENGTH
from bibert.errors import DataError

ROWS = "sentence\tlabel\na fine film\t1\na dull film\t0\n"


@pytest.fixture
def glue(tmp_path):
    """A folder of GLUE with SST-2 and an augmented training file beside its own."""
    folder = tmp_path / "SST-2"
    folder.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(ROWS, encoding="utf-8")
    (folder / "train_aug.tsv").write_text(ROWS + "a grand film\t1\n", encoding="utf-8")
    return tmp_path


def test_a_task_is_trained_on_its_own_file_or_on_the_one_that_is_named(glue):
    assert len(DataOptions(data=glue, task="sst-2").load().train) == 2
    named = DataOptions(data=glue, task="sst-2", train_file="train_aug.tsv").load()
    assert named.train.texts[-1] == "a grand film"
    assert len(named.dev["dev"]) == 2


@pytest.mark.parametrize(
    "options",
    [{"dev": "dev.tsv"}, {"text_column": "sentence"}, {"label_column": "label"}, {"regression": False}],
)
def test_options_of_a_file_are_refused_with_a_task(options, glue):
    with pytest.raises(DataError, match=r"--task sst-2 .*leave out"):
        DataOptions(data=glue, task="sst-2", **options).load()


def test_another_training_file_needs_a_task_and_its_folder(glue):
    for options in ({"data": glue / "SST-2" / "train.tsv"}, {"task": "sst-2"}):
        with pytest.raises(DataError, match=r"train_aug\.tsv needs --task and the folder"):
            DataOptions(train_file="train_aug.tsv", **options).load()


@pytest.mark.parametrize(
    ("options", "labels", "named"),
    [({"pair_column": "x"}, ("negative", "positive"), "columns"), ({}, ("no", "yes"), "'no', 'yes'")],
)
def test_evaluation_refuses_columns_of_a_task_and_labels_that_the_model_does_not_know(options, labels, named, glue):
    with pytest.raises(DataError, match=named):
        EvaluationOptions(data=glue, task="sst-2", **options).load_splits(labels)


@pytest.mark.parametrize(
    ("recipe", "positions", "expected"), [({}, 512, MAX_LENGTH), ({"max_length": 384}, 512, 384), ({}, 64, 64)]
)
def test_a_length_is_that_of_the_training_and_within_the_positions(recipe, positions, expected):
    assert usual_length(recipe, positions) == expected

"""Options that commands share: changes to a recipe, and labelled texts, which files they read and what they refuse."""

import pytest

from bibert.cli.options import DataOptions, EvaluationOptions, parse_changes, usual_length
from bibert.data import MAX_LENGTH
from bibert.errors import DataError, RecipeError

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
    ("options", "named"),
    [
        ({"dev": "dev.tsv", "regression": True}, "--dev, --regression"),
        ({"text_column": "sentence", "label_column": "label"}, "--text-column, --label-column"),
        ({"regression": False}, "--classes"),
    ],
)
def test_options_of_a_file_are_refused_by_name_with_a_task(options, named, glue):
    with pytest.raises(DataError, match=f"--task sst-2 .*leave out {named}$"):
        DataOptions(data=glue, task="sst-2", **options).load()


def test_another_training_file_needs_a_task_and_its_folder(glue):
    for options in ({"data": glue / "SST-2" / "train.tsv"}, {"task": "sst-2"}):
        with pytest.raises(DataError, match=r"train_aug\.tsv needs --task and the folder"):
            DataOptions(train_file="train_aug.tsv", **options).load()


@pytest.mark.parametrize(
    ("options", "labels", "named"),
    [({"pair_column": "x"}, ("negative", "positive"), "leave out --pair-column$"), ({}, ("no", "yes"), "'no', 'yes'")],
)
def test_evaluation_refuses_columns_of_a_task_and_labels_that_the_model_does_not_know(options, labels, named, glue):
    with pytest.raises(DataError, match=named):
        EvaluationOptions(data=glue, task="sst-2", **options).load_splits(labels, {})


@pytest.mark.parametrize(
    ("recipe", "positions", "expected"), [({}, 512, MAX_LENGTH), ({"max_length": 384}, 512, 384), ({}, 64, 64)]
)
def test_a_length_is_that_of_the_training_and_within_the_positions(recipe, positions, expected):
    assert usual_length(recipe, positions) == expected


def test_changes_are_read_as_toml_and_bare_words_as_strings():
    words = ["learning_rate=2e-4", "clip=global", "mask_padding = false", "weights.gold=0.5", "weights.hidden=0"]
    assert parse_changes(words) == {
        "learning_rate": 2e-4,
        "clip": "global",
        "mask_padding": False,
        "weights": {"gold": 0.5, "hidden": 0},
    }


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["seed"], "KEY=VALUE"),
        (["seed="], "KEY=VALUE"),
        (["=7"], "KEY=VALUE"),
        (["weights=0.5", "weights.gold=1"], "0.5"),
    ],
)
def test_a_change_without_key_value_or_table_is_refused(words, named):
    with pytest.raises(RecipeError, match=named):
        parse_changes(words)

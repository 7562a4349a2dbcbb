"""Options that several commands share: what they read, and what they refuse instead of passing it over."""

import pytest

from bibert.cli.options import DataOptions, ScoringOptions, TextOptions, parse_changes
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
    ("options", "flag"),
    [
        ({"dev": "dev.tsv"}, "--dev"),
        ({"text_column": "sentence"}, "--text-column"),
        ({"label_column": "label"}, "--label-column"),
        ({"regression": False}, "--classes"),
        ({"regression": True}, "--regression"),
    ],
)
def test_what_a_task_settles_itself_is_refused_by_name(options, flag, glue):
    with pytest.raises(DataError, match=f"{flag} does not go with --task"):
        DataOptions(data=glue, task="sst-2", **options).load()


def test_scoring_refuses_columns_of_a_task_and_labels_that_the_model_does_not_know(glue):
    with pytest.raises(DataError, match="--pair-column does not go with --task"):
        ScoringOptions(data=glue, task="sst-2", pair_column="x").load_splits(("negative", "positive"))
    with pytest.raises(DataError, match="the task it was trained for"):
        ScoringOptions(data=glue, task="sst-2").load_splits(("no", "yes"))


def test_another_training_file_needs_a_task_and_its_folder(glue):
    with pytest.raises(DataError, match="goes with --task only"):
        DataOptions(data=glue / "SST-2" / "train.tsv", train_file="train_aug.tsv").load()
    with pytest.raises(DataError, match="needs the folder"):
        DataOptions(task="sst-2", train_file="train_aug.tsv").load()


def test_a_line_of_a_file_of_texts_ends_where_the_line_ends_and_nowhere_else(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffa film\u2028of two lines\r\n\na first\ta second\n".encode())
    assert TextOptions(texts=path).load() == ["a film\u2028of two lines", ("a first", "a second")]


def test_changes_are_read_as_toml_and_bare_words_as_strings():
    words = ["learning_rate=2e-4", "clip=global", "mask_padding = false", "weights.gold=0.5", "weights.hidden=0"]
    assert parse_changes(words) == {
        "learning_rate": 2e-4,
        "clip": "global",
        "mask_padding": False,
        "weights": {"gold": 0.5, "hidden": 0},
    }


@pytest.mark.parametrize("word", ["seed", "seed=", "=7"])
def test_a_change_without_key_or_value_is_refused(word):
    with pytest.raises(RecipeError, match="write KEY=VALUE"):
        parse_changes([word])


def test_a_table_that_was_set_to_a_number_has_no_terms():
    with pytest.raises(RecipeError, match=r"weights was set to 0.5 before"):
        parse_changes(["weights=0.5", "weights.gold=1"])

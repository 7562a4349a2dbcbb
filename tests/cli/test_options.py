"""Changes to a recipe on the command line."""

import pytest

from bibert.cli.options import parse_changes
from bibert.errors import RecipeError


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

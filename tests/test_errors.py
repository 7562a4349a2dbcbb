"""The small words that all error messages share."""

import pytest

from bibert.errors import did_you_mean, one_line


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no such file", "no such file"),
        ("\n  first\n\nsecond", "first"),
        ("the fields are wrong:\n  size is 3\nmore", "the fields are wrong: size is 3"),
        ("", "OSError"),
    ],
)
def test_another_librarys_message_becomes_one_line(message, shown):
    assert one_line(OSError(message)) == shown


def test_a_wrong_name_is_answered_with_the_closest_one_or_with_all():
    assert did_you_mean("bibret", ["bibert", "baseline"]) == "did you mean 'bibert'?"
    assert did_you_mean("x", ["bibert", "baseline"]) == "choose one of bibert, baseline"

"""The JSON of a header has one spelling, is refused if `json` alone would be lenient, and never takes long to parse."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bibert.errors import ModelFileError
from bibert.packed.header import MOST_DIGITS, MOST_NESTING, parse_json, write_json

numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
letters = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | numbers | letters,
    lambda inner: st.lists(inner) | st.dictionaries(letters, inner),
    max_leaves=8,
)


@given(values)
def test_a_value_survives_a_round_trip_with_the_same_spelling(value):
    text = write_json(value, "it")
    assert parse_json(text, "it") == value
    assert write_json(parse_json(text, "it"), "it") == text
    assert parse_json(text, "it") == json.loads(text)


def test_the_spelling_has_sorted_keys_no_spaces_and_no_needless_escapes():
    assert write_json({"b": (1, 2.5), "a": 'ä"\n', "é": None}, "it") == '{"a":"ä\\"\\n","b":[1,2.5],"é":null}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: .* 0 of 0"),
        ("[1,]", "not JSON: .* [23] of 4"),
        ("[1] 2", "not JSON: .* 4 of 5"),
        ('"\n"', "not JSON"),
        ("\ufeff1", "not JSON: .*BOM"),
        ('{"a":1,"b":2,"a":3}', "'a' is there 2 times"),
        ('[{"a":{"b":1,"b":1}}]', "'b' is there 2 times"),
        ("NaN", "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("1e999", "1e999"),
        ("9" * 5000, f"5000 digits, at most {MOST_DIGITS}"),
        ("[" * 17 + "]" * 17, f"nested 17 .* at most {MOST_NESTING}"),
        ('{"a":' * 100_000, "nested 17"),
    ],
)
def test_json_that_the_standard_library_tolerates_is_refused(text, message):
    with pytest.raises(ModelFileError, match=f"^it: .*{message}"):
        parse_json(text, "it")


def test_brackets_count_only_outside_strings_and_while_they_are_open():
    assert parse_json('["' + "[" * 100 + '\\"[[[[[[[[[[[[[[[[[["]', "it") == ["[" * 100 + '"' + "[" * 18]
    assert parse_json("[" + ",".join(["[]"] * 100) + "]", "it") == [[]] * 100
    assert parse_json("[" * MOST_NESTING + "]" * MOST_NESTING, "it")


@pytest.mark.parametrize("piece", ['"', '\\"', "\\", '"a', "[]", "[}", '"\\'])
def test_a_megabyte_of_garbage_is_refused_quickly(piece):
    text = '"' + piece * (10**6 // len(piece))
    start = time.perf_counter()
    with pytest.raises(ModelFileError, match="is not JSON"):
        parse_json(text, "it")
    assert time.perf_counter() - start < 5  # a search that starts anew at every quote takes minutes


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def circle():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, {1, 2}, b"a", "\ud800", {"a": object()}, {"a": 1, 2: 3}, nested(10**5), circle()]
)
def test_a_value_that_json_cannot_represent_is_refused(value):
    with pytest.raises(ModelFileError, match=r"^it: .*JSON"):
        write_json(value, "it")

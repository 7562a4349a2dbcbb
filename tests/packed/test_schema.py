"""The schema: ranges of the config, and the names, types, shapes and places that follow from it."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibert.errors import ModelFileError
from bibert.packed.bits import words_for
from bibert.packed.schema import DTYPES, LIMITS, PackedConfig, columns_of_bits, linears, tensor_specs

MINILM = PackedConfig(6, 384, 12, 32, 1536, 30522, 512, 2, 2)


@settings(max_examples=50)
@given(data=st.data())
def test_tensors_follow_each_other_without_a_gap_and_in_the_order_of_their_alignment(data, small_configs):
    specs = tensor_specs(data.draw(small_configs), 7)
    assert specs[0].offset == 0
    assert all(before.offset + before.nbytes == after.offset for before, after in pairwise(specs))
    sizes = [DTYPES[spec.dtype].itemsize for spec in specs]
    assert sizes == sorted(sizes, reverse=True)
    assert all(spec.offset % DTYPES[spec.dtype].itemsize == 0 for spec in specs)
    assert len({spec.name for spec in specs}) == len(specs)


@settings(max_examples=50)
@given(data=st.data())
def test_the_columns_of_bits_are_those_of_the_tensors_of_words(data, small_configs):
    config = data.draw(small_configs)
    shapes = {spec.name: spec.shape for spec in tensor_specs(config, 1) if spec.dtype == "U64"}
    words = {name: shape[1] for name, shape in shapes.items()}
    assert {name: words_for(count) for name, count in columns_of_bits(config).items()} == words
    for layer in range(config.layers):
        for name, (outputs, inputs) in linears(config, layer).items():
            assert shapes[f"{name}.bits"] == (outputs, words_for(inputs))


@pytest.mark.parametrize("name", LIMITS)
def test_every_size_is_accepted_at_its_limits_and_refused_beyond(name):
    fitting = dataclasses.replace(MINILM, heads=1, head_size=1)
    for value in (1, LIMITS[name]):
        assert getattr(dataclasses.replace(fitting, **{name: value}), name) == value
    for value in (0, -1, LIMITS[name] + 1, 2**60, 1.0, True, None, "1"):
        with pytest.raises(ModelFileError, match=f"config: {name} is .* 1 to {LIMITS[name]}"):
            dataclasses.replace(fitting, **{name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 100, "head_size": 64}, "100 heads of 64 .* 6400 .* 4096"),
        *(({"norm_eps": eps}, f"norm_eps is {eps}") for eps in (0.0, 1, 1.5, float("nan"))),
        ({"thresholds": ("queries",)}, r"thresholds is \('queries',\), must list"),
        ({"score_thresholds": 1}, "score_thresholds is 1"),
        ({"ffn_levels": "ternary"}, "ffn_levels is 'ternary'"),
        ({"thresholds": ("value", "query")}, r"thresholds is \('value', 'query'\).* in this order"),
        ({"thresholds": ("query", "query")}, r"thresholds is \('query', 'query'\).* once"),
        ({"activation_bits": 4}, r"are \(4, 1\)"),
        ({"attention_bits": 2}, r"are \(1, 2\)"),
    ],
)
def test_invalid_options_are_refused(change, message):
    with pytest.raises(ModelFileError, match=message):
        dataclasses.replace(MINILM, **change)


@pytest.mark.parametrize(("thresholds", "shown"), [([["query"]], r"\(\['query'\],\)"), (1, "1")])
def test_invalid_values_of_a_config_are_refused(thresholds, shown):
    with pytest.raises(ModelFileError, match=f"thresholds is {shown}"):
        PackedConfig.from_dict(MINILM.to_dict() | {"thresholds": thresholds})

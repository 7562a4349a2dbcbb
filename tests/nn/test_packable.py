"""Which schemes a packed file can hold, why not the others, and the levels of the second FFN layer."""

import re

import pytest

from bibert.nn.packable import FFN_LEVELS, ffn_levels, why_not_packable
from bibert.nn.schemes import SCHEMES, get_scheme
from bibert.packed import schema


def test_the_dial_and_one_bit_schemes_with_bi_attention_can_be_packed():
    packable = {name for name, row in SCHEMES.items() if why_not_packable(row) is None}
    one_bit = {"bibert", "bibert_plus", "baseline+bi_attention", "attention_bool_max_entropy"}
    assert packable == one_bit | {"bibert_2", "bibert_4"}
    assert set(FFN_LEVELS.values()) == set(schema.FFN_LEVELS)


@pytest.mark.parametrize(
    ("name", "levels"),
    {
        "bibert": "sign",
        "bibert(kept=)": "sign",
        "bibert(ffn_hidden=sign)": "sign",
        "bibert(ffn_activation=linear)": "sign",
        "bibert_plus": "bool",
        "bibert_plus(ffn_hidden=,ffn_activation=gelu)": "sign",
        "bibert_plus(ffn_hidden=)": "sign",
    }.items(),
)
def test_the_second_ffn_layer_of_a_packable_scheme_has_levels(name, levels):
    scheme = get_scheme(name)
    assert why_not_packable(scheme) is None
    assert ffn_levels(scheme) == levels


@pytest.mark.parametrize(
    ("name", "reason"),
    {
        "full_precision": "32-32-32",
        "bibert_plus_1-1-2": "1-1-2",
        "baseline": "softmax",
        "binarybert_1-1-4": "sum of two",
        "attention_sign_max_entropy": "'sign'.*'bool'",
        "bibert(weight=bwn)": "bwn, sign",
        "bibert(kept=mha+pooler)": "mha and pooler in full precision",
        "bibert(ffn_activation=relu,thresholds=ffn_hidden)": "FFN.*sign after relu",
        "bibert(ffn_hidden=bwn)": "FFN.*bwn after gelu",
    }.items(),
)
def test_the_reason_is_the_first_thing_the_file_cannot_hold(name, reason):
    assert re.search(reason, why_not_packable(get_scheme(name)))

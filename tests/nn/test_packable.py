"""Which schemes a packed file can express, why not the others, and what it says of the second FFN layer."""

import pytest

from bibert.nn.packable import FFN_LEVELS, ffn_levels, why_not_packable
from bibert.nn.schemes import SCHEMES, get_scheme, half_width_ternary
from bibert.packed import schema


def test_only_bibert_and_its_like_can_be_packed():
    packable = {name for name, row in SCHEMES.items() if why_not_packable(row) is None}
    assert packable == {"bibert", "bibert_plus", "baseline+bi_attention", "attention_bool_max_entropy"}


def test_every_level_is_one_the_file_has():
    assert set(FFN_LEVELS.values()) == set(schema.FFN_LEVELS)


@pytest.mark.parametrize(
    ("name", "levels"),
    {
        "bibert": "sign",
        "bibert(kept=)": "sign",
        "bibert(ffn_input=sign)": "sign",
        "bibert(ffn_activation=linear)": "sign",
        "bibert_plus": "bool",
        "bibert_plus(ffn_input=,ffn_activation=gelu)": "sign",
        "bibert_plus(ffn_input=)": "sign",
    }.items(),
)
def test_the_second_ffn_layer_of_a_packable_scheme_has_levels(name, levels):
    scheme = get_scheme(name)
    assert why_not_packable(scheme) is None
    assert ffn_levels(scheme) == levels


@pytest.mark.parametrize(
    ("name", "reason"),
    {
        "full_precision": "it has 32-32-32 bits",
        "bibert_plus_1-1-2": "it has 1-1-2 bits",
        "baseline": "its attention has a softmax",
        "binarybert_1-1-1": "its attention has a softmax",
        "attention_sign_max_entropy": "its attention weights are 'sign'",
        "bibert(weight=bwn)": "it quantizes by bwn, sign, sign",
        "bibert(kept=mha+pooler)": "it keeps mha and pooler in full precision",
        "bibert(ffn_activation=relu,thresholds=ffn_hidden)": "its second FFN layer takes sign after relu",
        "bibert(ffn_input=bwn)": "its second FFN layer takes bwn after gelu",
    }.items(),
)
def test_the_reason_is_the_first_thing_the_file_cannot_hold(name, reason):
    assert why_not_packable(get_scheme(name)).startswith(reason)


def test_the_first_student_of_binarybert_cannot_be_packed_either():
    assert why_not_packable(half_width_ternary(SCHEMES["binarybert_1-1-1"])).startswith("it has 2-2-1 bits")

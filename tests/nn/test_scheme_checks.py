"""What a scheme may say: names as the network has them, bits that are true, and a refusal when it is made."""

import json
import re
from dataclasses import replace

import pytest
import torch
from transformers.activations import ACT2FN

from bibert.errors import SchemeError
from bibert.lab.cost import EMBEDDING_SCALES, FFN_ACTIVATION_FLOPS, QUANTIZER_FLOPS, WEIGHT_SCALES
from bibert.nn.attention import ATTENTION, BI_ATTENTION
from bibert.nn.quantizers import ELEMENTWISE, LEARNED, MEASURED, quantize_weight
from bibert.nn.scheme_checks import ATTENTION_OF_NORMALIZER, NAMES, PART_OF_FIELD, QUANTIZER_BITS, WITHOUT_SCALE
from bibert.nn.schemes import (
    DMD,
    LABELS_ONLY,
    SCHEMES,
    TWO_STAGES_TWICE,
    Bits,
    Scheme,
    get_scheme,
    half_width_ternary,
)

MADE_OF_OTHERS = {"gelu_sign"}  # a sign with a GELU before it; no field says so
WITH_AN_ARGUMENT = {"quantile"}

# ------------------------------------------------------------------------------------- the tables of the network


def test_the_quantizers_a_scheme_can_name_are_those_that_exist():
    assert {*QUANTIZER_BITS, *MADE_OF_OTHERS} == {*ELEMENTWISE, *MEASURED, *LEARNED, *WITH_AN_ARGUMENT}
    assert {name for field in PART_OF_FIELD for name in NAMES[field]} - {""} == set(QUANTIZER_BITS)


def test_weights_take_only_what_the_functions_of_weights_know():
    assert {*NAMES["weight"], *NAMES["embedding"]} <= {"none", "sign", *MEASURED}


def test_a_gain_needs_a_scale():
    weight = torch.linspace(-1, 1, 16).view(4, 4)
    scaled = {name for name in set(NAMES["weight"]) - {"none"} if quantize_weight(name, weight, 2).scale is not None}
    assert set(NAMES["weight"]) - scaled == set(WITHOUT_SCALE)


def test_the_normalizers_and_what_goes_with_them_are_those_of_the_attention():
    assert set(ATTENTION_OF_NORMALIZER) == set(ATTENTION)
    assert set(ATTENTION_OF_NORMALIZER["none"]) == set(BI_ATTENTION)
    assert {name for names in ATTENTION_OF_NORMALIZER.values() for name in names} == set(NAMES["attention"])


def test_what_the_network_knows_the_rules_of_size_and_work_know_too():
    assert set(WEIGHT_SCALES) == set(NAMES["weight"])
    assert set(EMBEDDING_SCALES) == set(NAMES["embedding"])
    assert {*NAMES["activation"], *NAMES["ffn_input"], *NAMES["attention"]} - {""} == set(QUANTIZER_FLOPS)
    assert set(FFN_ACTIVATION_FLOPS) == set(NAMES["ffn_activation"]) <= set(ACT2FN)


def with_quantizer(field: str, name: str, bits: int) -> Scheme:
    """A scheme with one quantizer in one place, at some bits, and plain ones elsewhere."""
    places = {"weight": 1, "embedding": 1, "activation": 1} | {PART_OF_FIELD[field]: bits}
    plain = {"weight": "sign", "embedding": "sign", "activation": "affine", "attention": "sign"}
    plain |= {"ffn_activation": "linear"} if name == "bool" else {}
    argument = 0.5 if name == "quantile" else None
    return Scheme("one", Bits(**places), **{**plain, field: name}, quantile=argument)


ALLOWED = [
    (field, name, bits)
    for field in PART_OF_FIELD
    for name in NAMES[field]
    if name not in ("", "none")
    for bits in sorted({QUANTIZER_BITS[name][0], QUANTIZER_BITS[name][-1]})
]


@pytest.mark.parametrize(("field", "name", "bits"), ALLOWED)
def test_every_name_of_a_field_makes_a_network_that_computes(field, name, bits, new_model, new_batch):
    model, batch = new_model(scheme=with_quantizer(field, name, bits).to_dict()), new_batch((5, 3))
    assert model.eval()(**batch).logits.isfinite().all()
    loss = model.train()(**batch, labels=torch.tensor([0, 1])).loss
    loss.backward()
    assert loss.isfinite()
    assert all(value.grad.isfinite().all() for value in model.parameters() if value.grad is not None)


# ------------------------------------------------------------------------------------- what is refused

WRONG_NAMES = {
    "bibert(weight=foo)": "weight is 'foo', must be one of none, sign, bwn, twn, symmetric, group_affine",
    "bibert(weight=lsq)": "weight is 'lsq', must be one of none, sign",
    "bibert(weight=)": "weight is '', must be one of none, sign",
    "bibert(embedding=group_affine)": "embedding is 'group_affine', must be one of none, sign",
    "bibert(activation=bool)": "activation is 'bool', must be one of none, sign",
    "bibert(ffn_input=gelu_sign)": "ffn_input is 'gelu_sign', must be one of '', none, sign",
    "bibert(normalizer=foo)": "normalizer is 'foo', must be one of softmax, none",
    "baseline(attention=group_affine)": "attention is 'group_affine', must be one of none, sign",
    "bibert(ffn_activation=foo)": "ffn_activation is 'foo', must be one of gelu, relu, linear",
    "bibert(attention=mean)": "attention is 'mean', with normalizer='none' one of bool, sign",
    "full_precision(normalizer=none)": "attention is 'none', with normalizer='none' one of bool, sign",
}
WRONG_BITS = {
    "baseline(activation=symmetric)": "activation is 'symmetric', which has 2 to 8 bits, but a 1-1-1 scheme has 1",
    "bibert(embedding=none)": "embedding is 'none', which has 32 bits, but a 1-1-1 scheme has 1 there, so one of sign",
    "bibert(weight=twn)": "weight is 'twn', which has 2 bits, but a 1-1-1 scheme has 1 there, so one of sign, bwn",
    "bibert(ffn_input=none)": "ffn_input is 'none', which has 32 bits",
    "baseline(attention=lsq)": "attention is 'lsq', which has 2 to 8 bits",
    "ternarybert_2-2-8(activation=twn)": "activation is 'twn', which has 2 bits, but a 2-2-8 scheme has 8",
    "ternarybert_2-2-8(attention=none)": "attention is 'none', which has 32 bits",
    "full_precision(attention=bool)": "attention is 'bool', which has 1 bit, but a 32-32-32 scheme has 32",
    "full_precision(ffn_input=sign)": "ffn_input is 'sign', which has 1 bit",
}
WRONG_FFN = {
    "bibert(ffn_input=bool)": "ffn_input is 'bool' behind ffn_activation='gelu', which is 0 or more",
    "bibert_plus(ffn_activation=relu)": "ffn_input is 'bool' behind ffn_activation='relu'",
    "bibert(ffn_activation=relu)": "a sign behind ffn_activation='relu' is always +1",
}
WRONG_SCHEDULES = {
    "bibert(split=true)": "split is true, but its schedule (dmd) does not go from half-width stages",
    "binarybert_1-1-1(split=false)": "split is false, but its schedule (ternary-layers, ternary-logits, ",
}


@pytest.mark.parametrize(("name", "says"), (WRONG_NAMES | WRONG_BITS | WRONG_FFN | WRONG_SCHEDULES).items())
def test_what_no_network_can_be_is_refused_by_name(name, says):
    with pytest.raises(SchemeError, match=re.escape(f"scheme {name!r}: {says}")):
        get_scheme(name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schedule": ()}, "schedule is empty, must have at least one stage"),
        ({"split": True, "schedule": TWO_STAGES_TWICE[:2]}, "does not go from half-width stages to others"),
        ({"split": True, "schedule": TWO_STAGES_TWICE[::-1]}, "its half-width stages must come before all others"),
        ({"schedule": (*DMD, *TWO_STAGES_TWICE[:1])}, "its half-width stages must come before all others"),
        ({"schedule": TWO_STAGES_TWICE}, "split is false, but its schedule"),
        ({"bits": Bits(32, 1, 1), "weight": "none"}, "activation is 'sign', must be none"),
    ],
)
def test_a_scheme_of_ones_own_is_checked_alike(changes, says):
    with pytest.raises(SchemeError, match=f"scheme 'mine': .*{re.escape(says)}"):
        replace(SCHEMES["bibert"], name="mine", **changes)


def test_a_saved_scheme_is_checked_when_it_is_read():
    saved = SCHEMES["bibert"].to_dict()
    with pytest.raises(SchemeError, match="weight is 'foo'"):
        Scheme.from_dict(saved | {"weight": "foo"})
    with pytest.raises(SchemeError, match="schedule is empty"):
        Scheme.from_dict({key: value for key, value in saved.items() if key != "schedule"})


# ------------------------------------------------------------------------------------- what is not

VALID = [
    "bibert_plus(gain=none)",
    "bibert_plus(thresholds=)",
    "bibert_plus(score_thresholds=false)",
    "bibert_plus(scaled_context=false)",
    "bibert_plus(ffn_input=,ffn_activation=gelu)",
    "bibert(gain=row,scaled_context=true)",
    "bibert(ffn_activation=relu,thresholds=ffn_hidden)",
    "bibert(ffn_input=bool,ffn_activation=linear)",
    "bibert(weight=bwn)",
    "bibert(attention=sign)",
    "bibert(normalizer=softmax,attention=mean)",
    "ternarybert_2-2-8(attention=bool)",
    "baseline(kept=mha+pooler)",
    "baseline(without=attention)",
    "binarybert_1-1-1(without=attention)",
    "baseline_quantile(30)",
]


@pytest.mark.parametrize("name", VALID)
def test_a_row_with_other_fields_of_the_same_bits_is_a_scheme(name):
    scheme = get_scheme(name)
    assert Scheme.from_dict(json.loads(json.dumps(scheme.to_dict()))) == scheme


@pytest.mark.parametrize("name", [name for name, row in SCHEMES.items() if row.split])
def test_the_ternary_student_that_is_split_later_survives_json(name):
    ternary = half_width_ternary(SCHEMES[name])
    assert Scheme.from_dict(json.loads(json.dumps(ternary.to_dict()))) == ternary
    assert (ternary.bits.weight, ternary.split) == (2, False)


def test_weights_alone_may_have_few_bits():
    scheme = Scheme("weights", Bits(1, 1, 32), weight="sign", embedding="sign", schedule=LABELS_ONLY)
    assert (scheme.activation, scheme.attention) == ("none", "none")

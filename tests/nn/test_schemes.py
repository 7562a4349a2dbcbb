"""Schemes: the rows of the paper's tables, variants by name, and fields that contradict each other."""

import json
import re
from dataclasses import replace

import pytest
import torch
from transformers.activations import ACT2FN

from bibert.distill.objective import Objective
from bibert.errors import SchemeError
from bibert.nn.quantizers import quantize_weight
from bibert.nn.schemes import (
    QUANTIZER_FIELDS,
    QUANTIZERS,
    SCHEDULES,
    SCHEMES,
    STRUCTURES,
    VALUES,
    Bits,
    Scheme,
    baseline_quantile,
    get_scheme,
)

PROBES = [get_scheme(f"baseline(kept={structure})") for structure in STRUCTURES]
PROBES += [get_scheme(f"baseline(without={term})") for term in SCHEMES["baseline"].schedule[0].weights]
ALL = [*SCHEMES.values(), baseline_quantile(30), *PROBES]


# ---------------------------------------------------------------------------------------------- rows and variants


def test_every_row_of_the_papers_tables_is_there():
    assert set(SCHEMES) >= {
        *("full_precision", "bibert", "baseline", "baseline+bi_attention", "baseline+dmd"),
        *("baseline_asym", "baseline_mu", "baseline_50"),
        *("attention_sign", "attention_bool", "attention_sign_max_entropy", "attention_bool_max_entropy"),
        *("q_bert", "q2bert", "ternarybert_2-2-8", "ternarybert_2-2-2", "ternarybert_2-2-1"),
        *("binarybert_1-1-4", "binarybert_1-1-2", "binarybert_1-1-1", "binarybert_50"),
    }
    assert str(SCHEMES["q_bert"].bits) == str(SCHEMES["q2bert"].bits) == "2-8-8"
    for name in ("ternarybert_2-2-8", "ternarybert_2-2-1", "binarybert_1-1-4"):
        assert name.endswith(str(SCHEMES[name].bits))
    assert [row.name for row in ALL if not row.is_quantized] == ["full_precision"]


PLUS = ("gain=none", "thresholds=", "score_thresholds=false", "scaled_context=false", "ffn_hidden=,ffn_activation=gelu")
VALID = [
    *(f"bibert_plus({change})" for change in PLUS),
    *("bibert(gain=row,scaled_context=true)", "bibert(ffn_activation=relu,thresholds=ffn_hidden)"),
    *("bibert(ffn_hidden=bool,ffn_activation=linear)", "bibert(weight=bwn)", "bibert(attention=sign)"),
    *("bibert(normalizer=softmax,attention=mean)", "ternarybert_2-2-8(attention=bool)"),
    *("baseline(kept=mha+pooler)", "binarybert_1-1-1(without=attention)"),
]


@pytest.mark.parametrize("name", [row.name for row in ALL] + VALID)
def test_a_scheme_survives_json_and_its_terms_exist(name):
    scheme = get_scheme(name)
    assert scheme.name == name
    assert Scheme.from_dict(json.loads(json.dumps(scheme.to_dict()))) == scheme
    for stage in scheme.schedule:
        assert Objective(stage.weights).weights == stage.weights


def test_a_scheme_saved_before_a_field_existed_or_was_renamed_is_read():
    before = {key: value for key, value in SCHEMES["bibert"].to_dict().items() if key != "kept"}
    assert Scheme.from_dict(before) == SCHEMES["bibert"]
    saved = SCHEMES["bibert_plus"].to_dict()
    before = {"ffn_input" if key == "ffn_hidden" else key: value for key, value in saved.items()}
    before["schedule"] = [{"name": stage.name, "terms": stage.weights} for stage in SCHEMES["bibert_plus"].schedule]
    assert Scheme.from_dict(before) == SCHEMES["bibert_plus"]
    assert get_scheme("bibert_plus(ffn_input=sign)").ffn_hidden == "sign"


@pytest.mark.parametrize(("name", "share"), [("baseline_quantile(10)", 0.1), ("baseline_quantile(12.5)", 0.125)])
def test_a_quantile_of_any_percentage_is_a_scheme(name, share):
    row = get_scheme(name)
    assert (row.name, row.quantile, row.attention) == (name, share, "quantile")


def test_a_row_with_changed_fields_is_written_in_parentheses_and_lists_are_in_the_order_of_the_network():
    scheme = get_scheme("bibert(gain=row, scaled_context=true, thresholds=value+attention_input)")
    assert (scheme.gain, scheme.scaled_context) == ("row", True)
    assert scheme.thresholds == ("attention_input", "value")  # in the order of the file
    assert replace(scheme, name="bibert", gain="none", scaled_context=False, thresholds=()) == get_scheme("bibert")
    assert get_scheme("bibert_plus(thresholds=)").thresholds == ()
    scheme = get_scheme("baseline(kept=pooler+mha)")
    assert scheme.kept == ("mha", "pooler")
    assert scheme.part("mha").weight == "none"
    assert scheme.part("output") is scheme


def test_a_removed_term_is_gone_from_the_schedule_and_nothing_else_changes():
    scheme, baseline = get_scheme("baseline(without=attention)"), SCHEMES["baseline"]
    assert [stage.weights for stage in scheme.schedule] == [{"mha": 1.0, "hidden": 1.0, "prediction": 1.0}]
    assert scheme.to_dict() | {"name": "baseline", "schedule": None} == baseline.to_dict() | {"schedule": None}
    twice = get_scheme("baseline(without=mha,without=hidden)")
    assert twice.schedule == get_scheme("baseline(without=hidden+mha)").schedule
    both = get_scheme("baseline(kept=mha,without=hidden+mha)")
    assert set(both.schedule[0].weights) == {"attention", "prediction"}


@pytest.mark.parametrize(
    ("name", "quantizer"),
    {
        "bibert": "gelu_sign",
        "bibert(ffn_activation=linear)": "sign",
        "bibert_plus": "bool",
        "binarybert_1-1-4": "lsq_unsigned",
    }.items(),
)
def test_a_sign_includes_the_gelu_before_it_in_its_gradient(name, quantizer):
    assert get_scheme(name).ffn_quantizer == quantizer
    assert get_scheme("bibert(kept=output)").part("output").ffn_quantizer == "none"


# ---------------------------------------------------------------------------------------------- quantizers


def with_quantizer(field: str, name: str, bits: int) -> Scheme:
    """A scheme with one quantizer in one place, at some bits, and plain ones elsewhere."""
    parts = {"weight": 1, "embedding": 1, "activation": 1} | {QUANTIZER_FIELDS[field]: bits}
    plain = {"weight": "sign", "embedding": "sign", "activation": "affine", "attention": "sign"}
    plain |= {"ffn_activation": "linear"} if name == "bool" else {}
    share = 0.5 if name == "quantile" else None
    return Scheme("one", Bits(**parts), **{**plain, field: name}, quantile=share)


ALLOWED = [
    (field, name, bits)
    for field in QUANTIZER_FIELDS
    for name, quantizer in QUANTIZERS.items()
    if ("softmax" if field == "attention" else field) in quantizer.places and name not in ("none", "levels")
    for bits in sorted({quantizer.bits[0], quantizer.bits[-1]})
]


@pytest.mark.parametrize(("field", "name", "bits"), ALLOWED)
def test_every_quantizer_makes_a_network_that_computes_wherever_it_is_allowed(field, name, bits, new_model, new_batch):
    model, batch = new_model(scheme=with_quantizer(field, name, bits).to_dict()), new_batch((5, 3))
    assert model.eval()(**batch).logits.isfinite().all()
    loss = model.train()(**batch, labels=torch.tensor([0, 1])).loss
    loss.backward()
    assert loss.isfinite()
    assert all(value.grad.isfinite().all() for value in model.parameters() if value.grad is not None)


@pytest.mark.parametrize("name", [name for name, row in QUANTIZERS.items() if "weight" in row.places])
def test_a_gain_needs_a_weight_with_a_scale_and_an_ffn_activation_the_library(name):
    bits = QUANTIZERS[name].bits[0]
    has_scale = name != "none" and quantize_weight(name, torch.ones(2, 2), bits).scale is not None
    row = Scheme("one", Bits(bits, 1, 32), weight=name, embedding="sign")
    if has_scale:
        assert replace(row, gain="row").gain == "row"
    else:
        with pytest.raises(SchemeError, match=f"gain is 'row'.*weight='{name}'"):
            replace(row, gain="row")
    assert set(VALUES["ffn_activation"]) <= set(ACT2FN)


# ---------------------------------------------------------------------------------------------- errors

WRONG_NAMES = {  # the name, and what the message says about it
    "bibret": "'bibret'.*did you mean 'bibert'",
    "bibret(gain=row)": "'bibret'.*did you mean 'bibert'",
    "bibert(gian=row)": "'gian'.*did you mean 'gain'",
    "bibert(bits=2)": "'bits'",
    "baseline(schedule=mha)": "'schedule'",
    "bibert(gain=column)": "gain is 'column'.*none, layer, row",
    "bibert(scaled_context=yes)": "scaled_context is 'yes'.*false, true",
    "bibert(normalizer=foo)": "normalizer is 'foo'.*softmax, none",
    "bibert(ffn_activation=foo)": "ffn_activation is 'foo'.*gelu, relu, linear",
    "bibert(thresholds=context+nowhere)": "thresholds.*'nowhere'",
    "baseline(kept=mah)": "kept.*'mah'.*did you mean 'mha'",
    "baseline(without=atention)": "'atention'.*did you mean 'attention'",
    "bibert(without=attention)": "'attention'.*dmd_query",
    "baseline(without=)": "no stage has the term ''.*attention, mha",
    "binarybert_1-1-1(without=prediction)": "stage 'ternary-logits'",
    # Quantizers that do not exist, or not there.
    "bibert(weight=foo)": "weight is 'foo'.*one of sign, bwn",
    "bibert(weight=lsq)": "weight is 'lsq'.*one of sign, bwn",
    "bibert(weight=)": "weight is ''.*one of sign, bwn",
    "bibert(embedding=group_affine)": "embedding is 'group_affine'.*one of sign, bwn",
    "bibert(activation=bool)": "activation is 'bool'.*one of sign, bwn",
    "bibert(ffn_hidden=gelu_sign)": "ffn_hidden is 'gelu_sign'.*one of sign, bool, bwn",
    "baseline(attention=group_affine)": "attention is 'group_affine'.*one of sign",
    "bibert(attention=mean)": "attention is 'mean'.*one of sign, bool.*normalizer='none'",
    "full_precision(normalizer=none)": "attention is 'none'.*normalizer='none'",
    # Quantizers of other bits.
    "baseline(activation=symmetric)": "activation is 'symmetric'.*2, 3, 4.*1-1-1 .*1 bit",
    "bibert(embedding=none)": "embedding is 'none'.*32.*one of sign, bwn.*1-1-1",
    "bibert(weight=twn)": "weight is 'twn'.*2.*one of sign, bwn.*1-1-1",
    "bibert(ffn_hidden=none)": "ffn_hidden is 'none'.*32",
    "baseline(attention=lsq)": "attention is 'lsq'",
    "ternarybert_2-2-8(activation=twn)": "activation is 'twn'.*2-2-8 .*8 bits",
    "ternarybert_2-2-8(attention=none)": "attention is 'none'.*32",
    "full_precision(attention=bool)": "attention is 'bool'.*32-32-32",
    "full_precision(ffn_hidden=sign)": "ffn_hidden is 'sign'",
    # Fields that contradict each other.
    "q_bert(gain=row)": "gain is 'row'.*weight='group_affine'",
    "binarybert_1-1-1(gain=row)": "split.*gain",
    "binarybert_1-1-1(kept=mha)": "split.*kept",
    "baseline(score_thresholds=true)": "Bi-Attention.*'softmax'",
    "bibert(ffn_hidden=bool)": "'bool'.*'gelu'.*linear",
    "bibert_plus(ffn_activation=relu)": "'bool'.*'relu'.*linear",
    "bibert(ffn_activation=relu)": "sign.*'relu'.*ffn_hidden",
    "bibert(split=true)": r"split is true.*\(dmd\)",
    "binarybert_1-1-1(split=false)": r"split is false.*\(ternary-layers, ternary-logits, ",
    "baseline_quantile(0)": "quantile is 0.0.*between 0 and 1",
    "baseline_quantile(100)": "quantile is 1.0.*between 0 and 1",
}


@pytest.mark.parametrize(("name", "says"), WRONG_NAMES.items())
def test_a_wrong_name_raises_with_the_reason(name, says):
    with pytest.raises(SchemeError, match=f"scheme.*{says}"):
        get_scheme(name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schedule": ()}, "schedule is empty"),
        ({"schedule": 2 * SCHEDULES["dmd"]}, "schedule is dmd, dmd; each stage needs a name of its own"),
        ({"split": True, "schedule": SCHEDULES["two_stages_twice"][:2]}, "split is true"),
        ({"split": True, "schedule": SCHEDULES["two_stages_twice"][::-1]}, "half-width stages must come first"),
        ({"schedule": (*SCHEDULES["dmd"], *SCHEDULES["two_stages_twice"][:1])}, "half-width stages must come first"),
        ({"schedule": SCHEDULES["two_stages_twice"]}, "split is false"),
        ({"bits": Bits(32, 1, 1), "weight": "none"}, "activation is 'sign', must be none"),
        ({"quantile": 0.5}, "attention is 'bool' and quantile is 0.5"),
    ],
)
def test_a_users_own_scheme_is_checked_too(changes, says):
    with pytest.raises(SchemeError, match=f"scheme 'mine': .*{re.escape(says)}"):
        replace(SCHEMES["bibert"], name="mine", **changes)


def test_a_saved_scheme_is_checked_when_it_is_read_and_an_unknown_name_raises_with_all_names():
    saved = SCHEMES["bibert"].to_dict()
    with pytest.raises(SchemeError, match="weight is 'foo'"):
        Scheme.from_dict(saved | {"weight": "foo"})
    with pytest.raises(SchemeError, match="schedule is empty"):
        Scheme.from_dict({key: value for key, value in saved.items() if key != "schedule"})
    with pytest.raises(SchemeError, match="'wieght'; did you mean 'weight'"):
        Scheme.from_dict(saved | {"wieght": "sign"})
    with pytest.raises(SchemeError) as caught:
        get_scheme("xyz")
    assert all(name in str(caught.value) for name in SCHEMES)

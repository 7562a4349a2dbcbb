"""Structures that stay in full precision: they alone are not quantized, and with all kept a student is its teacher."""

import json
import re

import pytest
import torch

from bibert.errors import SchemeError
from bibert.nn.attention import BiAttention, SoftmaxAttention
from bibert.nn.binarization import binarize
from bibert.nn.layers import QuantEmbedding, QuantLinear, Shift
from bibert.nn.packable import why_not_packable
from bibert.nn.schemes import SCHEMES, STRUCTURES, Scheme, get_scheme

PLACES = {
    "mha": (r"attention\.self\.(query|key|value)$", r"attention\.output\.dense$"),
    "intermediate": (r"\d\.intermediate\.dense$",),
    "output": (r"\d\.output\.dense$",),
    "pooler": (r"pooler\.dense$",),
    "embedding": (r"word_embeddings$",),
}
ROWS = ("baseline", "bibert", "bibert_plus", "ternarybert_2-2-8", "q_bert")


def structure_of(name):
    return next(part for part, places in PLACES.items() if any(re.search(place, name) for place in places))


def quantizers(model):
    """The quantizer of every linear layer and of the word embedding, by name."""
    kinds = (QuantLinear, QuantEmbedding)
    return {name: module.quantizer for name, module in model.named_modules() if isinstance(module, kinds)}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_exactly_the_kept_structure_is_not_quantized(row, structure, new_model):
    teacher = new_model()
    whole, kept = binarize(teacher, row), binarize(teacher, f"{row}(kept={structure})")
    expected = {
        name: "none" if structure_of(name) == structure else quantizer for name, quantizer in quantizers(whole).items()
    }
    assert quantizers(kept) == expected
    for block in kept.bert.encoder.layer:
        softmax = structure == "mha" or SCHEMES[row].normalizer == "softmax"
        assert isinstance(block.attention.self.attention, SoftmaxAttention if softmax else BiAttention)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_thresholds_and_gains_belong_to_what_is_quantized(structure, new_model):
    kept = binarize(new_model(), f"bibert_plus(kept={structure})")
    learned = {name.rpartition(".")[0] for name, _ in kept.named_parameters() if name.endswith((".threshold", ".gain"))}
    own = {
        "mha": ".attention.",
        "intermediate": ".intermediate.",
        "output": "layer.0.output.",
        "pooler": ".pooler.",
        "embedding": "word_embeddings",
    }
    assert not [name for name in learned if own[structure] in name]
    assert any(isinstance(module, Shift) for module in kept.modules())


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_kept_structure_is_the_teachers(structure, new_model):
    teacher = new_model()
    weights = binarize(teacher, f"baseline(kept={structure})").state_dict()
    for name, value in teacher.state_dict().items():
        assert torch.equal(weights[name], value)


@pytest.mark.parametrize("row", ROWS)
@torch.no_grad()
def test_with_all_structures_kept_the_student_answers_as_its_teacher(row, new_model, new_batch):
    teacher, batch = new_model(), new_batch((12, 7, 9, 4))
    student = binarize(teacher, f"{row}(kept={'+'.join(STRUCTURES)})").eval()
    expected = teacher(**batch).logits
    # LayerNorm rounds its input to 2^-16 in a student; nothing else may differ.
    torch.testing.assert_close(student(**batch).logits, expected, atol=1e-4, rtol=0)
    assert not torch.allclose(binarize(teacher, row).eval()(**batch).logits, expected, atol=1e-2)


@torch.no_grad()
def test_the_activation_between_the_ffn_layers_goes_with_the_second(new_model, new_batch):
    """In front of a sign GELU is folded away, and `linear` goes with `bool`; a float layer needs the GELU itself."""
    batch = new_batch((5, 3))
    for row in ("baseline", "bibert_plus"):
        student = binarize(new_model(), f"{row}(kept=output)").eval()
        trace = student(**batch, trace=True).trace
        assert trace.layers[0].ffn_hidden.min() > -0.2  # the lowest value of GELU is -0.17
    folded = binarize(new_model(), "baseline(kept=intermediate)").eval()
    assert folded(**batch, trace=True).trace.layers[0].ffn_hidden.min() < -0.2


@torch.no_grad()
def test_a_kept_attention_has_the_teachers_softmax(new_model, new_batch):
    teacher, batch = new_model(), new_batch((9, 5))
    student = binarize(teacher, "bibert(kept=mha+embedding)").eval()
    mine, theirs = (model(**batch, trace=True).trace.layers[0].weights for model in (student, teacher))
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)


def test_several_are_kept_in_the_order_of_the_network():
    scheme = get_scheme("baseline(kept=pooler+mha)")
    assert scheme.kept == ("mha", "pooler")
    assert scheme.part("mha").weight == "none"
    assert scheme.part("output") is scheme
    assert why_not_packable(get_scheme("bibert(kept=pooler)"))
    assert why_not_packable(get_scheme("bibert(kept=)")) is None


def test_a_scheme_comes_back_from_plain_values():
    for scheme in (*SCHEMES.values(), get_scheme("baseline(kept=mha)")):
        assert Scheme.from_dict(json.loads(json.dumps(scheme.to_dict()))) == scheme
    before = {key: value for key, value in SCHEMES["bibert"].to_dict().items() if key != "kept"}
    assert Scheme.from_dict(before) == SCHEMES["bibert"]  # as a version without the field wrote it


WRONG = {
    "baseline(kept=mah)": "there is no structure 'mah' to keep; did you mean 'mha'",
    "binarybert_1-1-1(kept=mha)": "a split student has half of the teacher's width",
    "baseline(schedule=mha)": "'schedule' is not a field to change",
    "baseline(without=atention)": "no stage has the term 'atention'; did you mean 'attention'",
    "bibert(without=attention)": "no stage has the term 'attention'",
    "baseline(without=)": "says without what?",
    "binarybert_1-1-1(without=prediction)": "nothing is left to learn from in the stage 'ternary-logits'",
}


@pytest.mark.parametrize(("name", "says"), WRONG.items())
def test_what_cannot_be_kept_or_left_out_is_refused(name, says):
    with pytest.raises(SchemeError, match=re.escape(says)):
        get_scheme(name)


def test_a_term_that_is_left_out_is_gone_from_the_schedule_and_nothing_else_changes():
    scheme, baseline = get_scheme("baseline(without=attention)"), SCHEMES["baseline"]
    assert [dict(stage.terms) for stage in scheme.schedule] == [{"mha": 1.0, "hidden": 1.0, "prediction": 1.0}]
    assert scheme.to_dict() | {"name": "baseline", "schedule": None} == baseline.to_dict() | {"schedule": None}
    assert Scheme.from_dict(scheme.to_dict()) == scheme
    twice = get_scheme("baseline(without=mha,without=hidden)")
    assert twice.schedule == get_scheme("baseline(without=hidden+mha)").schedule
    both = get_scheme("baseline(kept=mha,without=hidden+mha)")
    assert set(both.schedule[0].terms) == {"attention", "prediction"}

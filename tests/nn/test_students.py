"""Students: the teacher's weights under a scheme, calibration by one batch, and BinaryBERT's cut and split."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bibert.errors import SchemeError
from bibert.nn.functional import dequantize
from bibert.nn.packable import why_not_packable
from bibert.nn.quantizers import Scope, bwn, twn
from bibert.nn.schemes import SCHEMES, STRUCTURES, Scheme, baseline_quantile, get_scheme
from bibert.nn.students import (
    binarize,
    calibrate,
    first_student,
    half_width,
    half_width_ternary,
    split_student,
    split_ternary,
    with_scheme,
)

PLAIN = [row for row in SCHEMES.values() if not row.split]
PLAIN += [baseline_quantile(12.5), *(get_scheme(f"baseline(kept={structure})") for structure in STRUCTURES)]
SPLIT = [name for name, row in SCHEMES.items() if row.split]
PER_TENSOR, PER_ROW = (-2, -1), (-1,)


@pytest.mark.parametrize("scheme", PLAIN, ids=lambda scheme: scheme.name)
def test_a_student_starts_from_the_teachers_latent_weights(scheme, new_model):
    teacher = new_model(id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={"no": 0, "yes": 1, "maybe": 2})
    student = binarize(teacher, scheme)
    assert student.config.quantization == scheme
    assert student.config.id2label == teacher.config.id2label
    mine = dict(student.named_parameters())
    for key, value in teacher.named_parameters():
        assert torch.equal(mine[key], value)
        assert mine[key].data_ptr() != value.data_ptr()  # a copy: training one does not move the other
    new = mine.keys() - dict(teacher.named_parameters()).keys()
    assert all(key.endswith((".step", ".threshold", ".gain")) for key in new)


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_student_comes_from_a_half_width_ternary_one(name, new_model):
    teacher = new_model()
    ternary = first_student(teacher, SCHEMES[name])
    assert ternary.config.quantization == half_width_ternary(SCHEMES[name])
    assert (ternary.config.num_attention_heads, ternary.config.intermediate_size) == (2, 24)
    assert ternary.config.head_size == teacher.config.head_size
    student = binarize(teacher, name)
    assert student.config.quantization == SCHEMES[name]
    assert student.config.kept_heads == ternary.config.kept_heads
    assert student.config.id2label == teacher.config.id2label
    twins = [key for key in student.state_dict() if key.endswith("twin_weight")]
    assert len(twins) == 6 * 2 + 2  # six linear layers in each block, pooler, word embedding


def test_a_split_model_cannot_become_another_scheme(new_model):
    student = binarize(new_model(), "binarybert_1-1-1")
    with pytest.raises(SchemeError, match=r"'binarybert_1-1-1'.*'bibert'.*split.*teacher"):
        with_scheme(student, SCHEMES["bibert"])
    with pytest.raises(SchemeError, match="'bibert' is not split"):
        half_width_ternary(SCHEMES["bibert"])


@pytest.mark.parametrize("name", SPLIT)
def test_the_scheme_of_the_ternary_student_survives_json_and_cannot_be_packed(name):
    ternary = half_width_ternary(SCHEMES[name])
    assert Scheme.from_dict(json.loads(json.dumps(ternary.to_dict()))) == ternary
    assert (ternary.bits.weight, ternary.split) == (2, False)
    assert str(ternary.bits) in why_not_packable(ternary)


@pytest.mark.parametrize(("name", "sites"), [("q2bert", 21), ("binarybert_1-1-4", 21), ("bibert", 0)])
def test_calibration_sets_every_range_and_step_and_nothing_else(name, sites, new_model, new_batch):
    teacher = new_model()
    student = first_student(teacher, SCHEMES[name]).train()
    before = {key: value.clone() for key, value in student.state_dict().items()}
    calibrate(student, new_batch((9, 5, 7)) | {"labels": torch.tensor([0, 1, 0])}, teacher)
    assert student.training
    assert not any(getattr(module, "calibrating", False) for module in student.modules())
    after = student.state_dict()
    changed = {key for key in after if not torch.equal(after[key], before[key])}
    assert changed == {key for key in after if key.endswith((".range", ".step"))}
    assert len(changed) == sites  # ten in each block, and the pooler
    assert all(after[key] > 0 for key in changed)


def test_signs_get_the_size_of_what_they_stand_for(new_model, new_batch):
    source, batch = first_student(new_model(), SCHEMES["bibert_4"]), new_batch((9, 5, 7))
    calibrate(source, batch, new_model())
    source.bert.encoder.layer[0].attention.output.dense.gain.data.fill_(2.0)
    student = first_student(source, SCHEMES["bibert_plus"])
    calibrate(student, batch, source)
    trace, layer = source.eval()(**batch, trace=True).trace, student.bert.encoder.layer[0]
    real, inside = batch["attention_mask"].bool(), trace.layers[0]
    positive = inside.ffn_hidden[real][inside.ffn_hidden[real] > 0]
    for linear, gain in (
        (layer.attention.self.key, trace.hidden_states[0][real].abs().mean()),
        (layer.attention.output.dense, 2 * inside.context[real].abs().mean()),
        (layer.output.dense, positive.mean()),
        (student.bert.pooler.dense, trace.hidden_states[-1][:, 0].abs().mean()),
    ):
        torch.testing.assert_close(linear.gain, gain.expand_as(linear.gain))
    again = first_student(student, SCHEMES["bibert_plus"])
    calibrate(again, batch, student)
    assert torch.equal(again.bert.pooler.dense.gain, student.bert.pooler.dense.gain)


def test_splitting_keeps_the_steps_of_the_ternary_student(new_model, new_batch):
    row = SCHEMES["binarybert_1-1-4"]
    teacher = new_model()
    ternary = first_student(teacher, row)
    calibrate(ternary, new_batch((9, 5)), teacher)
    steps = {key: value for key, value in ternary.state_dict().items() if key.endswith(".step")}
    student = split_student(ternary, row)
    calibrate(student, new_batch((7, 3)), ternary)
    assert len(steps) == 21
    assert all(torch.equal(student.state_dict()[key], value) for key, value in steps.items())


def test_steps_for_other_bits_are_not_taken_over(new_model, new_batch):
    four = first_student(new_model(), SCHEMES["binarybert_1-1-4"])
    calibrate(four, new_batch((9, 5)), new_model())
    bits = replace(SCHEMES["binarybert_1-1-4"].bits, activation=2)
    two = first_student(new_model(), replace(SCHEMES["binarybert_1-1-4"], bits=bits))
    two.load_state_dict(four.state_dict())
    calibrate(two, new_batch((9, 5)), four)
    steps = [key for key in two.state_dict() if key.endswith(".step")]
    assert not any(torch.equal(two.state_dict()[key], four.state_dict()[key]) for key in steps)


def binary_of(weight, dims):
    return dequantize(bwn(weight, Scope(1, dims)))


@pytest.mark.parametrize("dims", [PER_TENSOR, PER_ROW], ids=["per tensor", "per row"])
@pytest.mark.parametrize("shape", [(3, 5), (64, 48), (200, 768)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_two_binary_weights_are_one_ternary_weight(dims, shape, dtype):
    weight = 0.05 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)) + 0.003
    first, second = split_ternary(weight, dims)
    tolerance = {torch.float64: 1e-15, torch.float32: 2e-8}[dtype]
    torch.testing.assert_close(first + second, weight, atol=tolerance, rtol=0)
    found = binary_of(first, dims) + binary_of(second, dims)
    torch.testing.assert_close(found, dequantize(twn(weight, Scope(2, dims))), atol=tolerance, rtol=2e-6)
    signs = bwn(first, Scope(1, dims)).levels + bwn(second, Scope(1, dims)).levels
    assert torch.equal(signs / 2, twn(weight, Scope(2, dims)).levels)  # the levels are exact in either precision


rows = npst.arrays(np.float64, (2, 12), elements=st.floats(-1, 1, allow_subnormal=False).map(lambda v: round(v, 3)))


@given(rows)
def test_splitting_is_exact_unless_the_small_weights_outweigh_the_large_ones(values):
    weight = torch.from_numpy(values)
    levels = twn(weight, Scope(2, PER_ROW)).levels
    kept = (weight.abs() * levels.abs()).sum(1)
    leaning = (weight * (levels == 0)).sum(1).abs()
    assume(bool((kept > leaning + 1e-6).all()))
    first, second = split_ternary(weight, PER_ROW)
    torch.testing.assert_close(first + second, weight, atol=1e-12, rtol=0)
    found = binary_of(first, PER_ROW) + binary_of(second, PER_ROW)
    torch.testing.assert_close(found, dequantize(twn(weight, Scope(2, PER_ROW))), atol=1e-12, rtol=0)
    assert not torch.stack(split_ternary(torch.zeros(2, 6), PER_ROW)).any()


@pytest.mark.parametrize("name", SPLIT)
@torch.no_grad()
def test_the_split_student_answers_as_the_ternary_one_did(name, new_model, new_batch):
    ternary = first_student(new_model(), SCHEMES[name]).eval()
    student = split_student(ternary, SCHEMES[name]).eval()
    for seed in range(5):
        batch = new_batch((11, 6, 3, 8), seed)
        torch.testing.assert_close(student(**batch).logits, ternary(**batch).logits, atol=1e-4, rtol=0)


def test_half_the_width_keeps_the_hidden_size_and_the_stronger_heads(new_model):
    teacher = new_model()
    narrow = half_width(teacher)
    assert (narrow.config.num_attention_heads, narrow.config.head_size, narrow.config.hidden_size) == (2, 8, 32)
    assert narrow.config.intermediate_size == 24
    for wide, thin, kept in zip(
        teacher.bert.encoder.layer, narrow.bert.encoder.layer, narrow.config.kept_heads, strict=True
    ):
        output = wide.attention.output.dense.weight.view(32, 4, 8)
        strength = output.pow(2).sum(dim=(0, 2))
        assert set(kept) == set(strength.topk(2).indices.tolist())
        assert torch.equal(thin.attention.output.dense.weight.view(32, 2, 8), output[:, kept])
        for name in ("query", "key", "value"):
            mine, theirs = getattr(thin.attention.self, name), getattr(wide.attention.self, name)
            assert torch.equal(mine.weight.view(2, 8, 32), theirs.weight.view(4, 8, 32)[kept])
            assert torch.equal(mine.bias.view(2, 8), theirs.bias.view(4, 8)[kept])
        size = wide.output.dense.weight.pow(2).sum(0)
        neurons = size.topk(24).indices.sort().values
        assert torch.equal(thin.output.dense.weight, wide.output.dense.weight[:, neurons])
        assert torch.equal(thin.intermediate.dense.weight, wide.intermediate.dense.weight[neurons])
        assert torch.equal(thin.intermediate.dense.bias, wide.intermediate.dense.bias[neurons])


@torch.no_grad()
def test_heads_and_neurons_that_write_nothing_are_the_ones_left_out(new_model, new_batch):
    teacher = new_model()
    for layer in teacher.bert.encoder.layer:
        layer.attention.output.dense.weight.view(32, 4, 8)[:, [0, 3]] = 0
        layer.output.dense.weight[:, 10:34] = 0
    narrow = half_width(teacher).eval()
    assert narrow.config.kept_heads == [[1, 2], [1, 2]]
    batch = new_batch((9, 5))
    torch.testing.assert_close(narrow(**batch).logits, teacher(**batch).logits, atol=1e-5, rtol=0)
    assert half_width(new_model(num_attention_heads=1)).config.num_attention_heads == 1

"""Ternary weight splitting is exact, and the half-width model is the teacher without its weaker half."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bibert.nn.binarization import first_student, split_student
from bibert.nn.functional import dequantize
from bibert.nn.quantizers import Scope, bwn, twn
from bibert.nn.schemes import SCHEMES
from bibert.nn.splitting import half_width, split_ternary

PER_TENSOR, PER_ROW = (-2, -1), (-1,)


def ternary_of(weight, dims):
    return dequantize(twn(weight, Scope(2, dims)))


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
    torch.testing.assert_close(found, ternary_of(weight, dims), atol=tolerance, rtol=2e-6)
    signs = bwn(first, Scope(1, dims)).levels + bwn(second, Scope(1, dims)).levels
    assert torch.equal(signs / 2, twn(weight, Scope(2, dims)).levels)  # the levels are exact in either precision


rows = npst.arrays(np.float64, (2, 12), elements=st.floats(-1, 1, allow_subnormal=False).map(lambda v: round(v, 3)))


@given(rows)
@settings(deadline=None)
def test_splitting_is_exact_unless_the_small_weights_outweigh_the_large_ones(values):
    weight = torch.from_numpy(values)
    levels = twn(weight, Scope(2, PER_ROW)).levels
    kept = (weight.abs() * levels.abs()).sum(1)
    leaning = (weight * (levels == 0)).sum(1).abs()
    assume(bool((kept > leaning + 1e-6).all()))
    first, second = split_ternary(weight, PER_ROW)
    torch.testing.assert_close(first + second, weight, atol=1e-12, rtol=0)
    found = binary_of(first, PER_ROW) + binary_of(second, PER_ROW)
    torch.testing.assert_close(found, ternary_of(weight, PER_ROW), atol=1e-12, rtol=0)


def test_a_row_of_zeros_splits_into_zeros():
    first, second = split_ternary(torch.zeros(2, 6), PER_ROW)
    assert (first == 0).all()
    assert (second == 0).all()


@pytest.mark.parametrize("name", ["binarybert_1-1-4", "binarybert_1-1-2", "binarybert_1-1-1", "binarybert_50"])
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


def test_a_single_head_is_not_halved(new_model):
    assert half_width(new_model(num_attention_heads=1)).config.num_attention_heads == 1

"""Parameter groups, the released code's Adam against its formula, and the two ways of clipping."""

import copy

import pytest
import torch
from torch import nn

from bibert.nn.layers import BiBertConfig
from bibert.nn.model import BiBertForSequenceClassification
from bibert.nn.schemes import SCHEMES
from bibert.nn.students import with_scheme
from bibert.training.optimizer import BertAdam, clip_all, clip_each, make_optimizer, not_finite, parameter_groups
from bibert.training.recipe import Recipe


@pytest.fixture
def student():
    """A student with learned quantizer steps."""
    config = BiBertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    row = SCHEMES["ternarybert_2-2-8"]
    learned = type(row).from_dict(row.to_dict() | {"activation": "lsq", "attention": "lsq_unsigned"})
    return with_scheme(BiBertForSequenceClassification(config), learned)


def test_every_parameter_is_in_one_group(student):
    groups = parameter_groups(student, Recipe())
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in student.parameters())
    assert len(groups) == 3


def test_matrices_decay_and_biases_norms_and_steps_do_not(student):
    decayed, plain, steps = parameter_groups(student, Recipe(weight_decay=0.3, step_learning_rate=7e-4))
    names = {id(p): name for name, p in student.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert plain["weight_decay"] == steps["weight_decay"] == 0.0
    assert all(names[id(p)].endswith("weight") and p.dim() == 2 for p in decayed["params"])
    assert all("LayerNorm" in names[id(p)] or names[id(p)].endswith("bias") for p in plain["params"])
    assert all(names[id(p)].endswith(".step") for p in steps["params"])
    assert steps["lr"] == 7e-4


def test_frozen_parameters_and_empty_groups_are_left_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    model[0].requires_grad_(False)
    (group,) = parameter_groups(model, Recipe())
    assert group["params"] == [model[1].weight]


def test_bias_correction_chooses_the_optimizer():
    model = nn.Linear(2, 2)
    recipe = Recipe(learning_rate=3e-4, adam_epsilon=1e-7)
    adam = make_optimizer(model, recipe)
    assert isinstance(adam, torch.optim.AdamW)
    assert (adam.defaults["lr"], adam.defaults["eps"]) == (3e-4, 1e-7)
    assert isinstance(make_optimizer(model, Recipe(bias_correction=False)), BertAdam)


def test_bert_adam_is_its_formula():
    """m ← β₁m + (1 - β₁)g, v ← β₂v + (1 - β₂)g², w ← w - lr (m / (√v + ε) + λw): no bias correction."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    gradients = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    parameter = nn.Parameter(start.clone())
    optimizer = BertAdam([{"params": [parameter], "weight_decay": 0.1}], lr=0.01, eps=1e-6)
    expected, mean, square = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for gradient in gradients:
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        expected = expected - 0.01 * (mean / (square.sqrt() + 1e-6) + 0.1 * expected)
        parameter.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(parameter.data, expected)


def test_bert_adam_resumes_from_its_saved_state():
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizers = [BertAdam([p], lr=0.1, eps=1e-6) for p in parameters]
    parameters[0].grad = torch.tensor([1.0, -2.0])
    optimizers[0].step()
    parameters[1].data.copy_(parameters[0].data)
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for parameter, optimizer in zip(parameters, optimizers, strict=True):
        parameter.grad = torch.tensor([0.5, 0.5])
        optimizer.step()
    assert torch.equal(parameters[0], parameters[1])


def test_bert_adam_leaves_parameters_without_a_gradient_alone():
    parameter = nn.Parameter(torch.ones(2))
    BertAdam([parameter], lr=0.1, eps=1e-6).step()
    assert torch.equal(parameter.data, torch.ones(2))


def parameters_with_gradients(*gradients):
    parameters = [nn.Parameter(torch.zeros(len(values))) for values in gradients]
    for parameter, values in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(values)
    return parameters


def test_clipping_each_scales_every_tensor_separately():
    parameters = [*parameters_with_gradients([3.0, 4.0], [0.3, 0.4]), nn.Parameter(torch.zeros(1))]
    norm = clip_each(parameters, 1.0)
    torch.testing.assert_close(norm, torch.tensor((25 + 0.25) ** 0.5))
    torch.testing.assert_close(parameters[0].grad, torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(parameters[1].grad, torch.tensor([0.3, 0.4]))


def test_clipping_all_scales_by_one_factor():
    parameters = parameters_with_gradients([3.0, 0.0], [0.0, 4.0])
    assert clip_all(parameters, 1.0) == 5
    torch.testing.assert_close(parameters[0].grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(parameters[1].grad, torch.tensor([0.0, 0.8]))


@pytest.mark.parametrize("clip", [clip_each, clip_all])
def test_small_gradients_are_not_touched(clip):
    parameters = parameters_with_gradients([0.1, 0.2], [0.3])
    clip(parameters, 1.0)
    assert torch.equal(parameters[0].grad, torch.tensor([0.1, 0.2]))
    assert torch.equal(parameters[1].grad, torch.tensor([0.3]))


@pytest.mark.parametrize("clip", [clip_each, clip_all])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_found_after_clipping(clip, value):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model[1].weight.grad[0, 0] = value
    assert not torch.isfinite(clip(model.parameters(), 1.0))
    assert not_finite(model) == "1.weight"

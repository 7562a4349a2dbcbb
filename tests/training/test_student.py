"""The frozen teacher, the teachers that are refused, and the objective of each stage."""

from dataclasses import replace

import pytest
import torch

from bibert.errors import CheckpointError, RecipeError
from bibert.nn.checkpoint import load_classifier
from bibert.nn.schemes import SCHEMES
from bibert.training.recipe import Recipe
from bibert.training.student import FrozenTeacher, load_teacher, stage_objectives

INPUTS = {"input_ids": torch.tensor([[2, 7, 8, 9, 3]])}


@pytest.fixture
def frozen(start):
    """A teacher that would drop half of everything if it were in train mode."""
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), 0.5)
    return FrozenTeacher(load_classifier(start, overrides=rates).model)


def test_the_teacher_takes_no_gradient_and_has_a_trace_only_on_request(frozen):
    output = frozen(INPUTS, trace=True)
    assert len(output.trace.layers) == 2
    assert frozen(INPUTS, trace=False).trace is None
    assert not output.logits.requires_grad
    assert not any(state.requires_grad for state in output.trace.hidden_states)
    assert not any(parameter.requires_grad for parameter in frozen.model.parameters())


def test_the_teacher_never_drops_in_any_mode(frozen):
    expected = frozen(INPUTS, trace=False).logits
    for _ in range(3):
        frozen.model.train()
        assert torch.equal(frozen(INPUTS, trace=False).logits, expected)
        assert not frozen.model.training


@pytest.mark.parametrize(
    ("labels", "named"), [(("no", "yes"), "no, yes"), (("positive", "negative"), "positive, negative"), ((), "scores")]
)
def test_a_teacher_of_other_labels_is_refused_with_both_lists(teacher, data, labels, named):
    with pytest.raises(CheckpointError, match=f"negative, positive, .*{named}; fine-tune"):
        load_teacher(teacher, replace(data, label_names=labels), Recipe())


def test_the_recipe_sets_the_dropout_of_the_students(teacher, data):
    config = load_teacher(teacher, data, Recipe(dropout=0.25, max_length=16)).model.config
    rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.classifier_dropout)
    assert rates == (0.25, 0.25, 0.25)


def test_a_scheme_brings_its_terms():
    (objective,) = stage_objectives(SCHEMES["bibert"], Recipe()).values()
    assert set(objective.weights) == {"dmd_query", "dmd_key", "dmd_value", "hidden_direction", "prediction"}
    assert (objective.norm_scope, objective.mask_padding) == ("sample", True)


def test_a_recipe_changes_weights_adds_terms_and_drops_those_of_weight_zero():
    recipe = Recipe(weights={"dmd_key": 0.0, "prediction": 2.0, "mha": 0.5}, norm_scope="batch", mask_padding=False)
    (objective,) = stage_objectives(SCHEMES["bibert"], recipe).values()
    expected = {"dmd_query": 1.0, "dmd_value": 1.0, "hidden_direction": 1.0, "prediction": 2.0, "mha": 0.5}
    assert objective.weights == expected
    assert (objective.norm_scope, objective.mask_padding) == ("batch", False)


def test_stages_keep_their_terms_apart_and_gold_goes_with_the_logits():
    objectives = stage_objectives(SCHEMES["binarybert_1-1-2"], Recipe(weights={"gold": 0.5, "hidden": 3.0}))
    assert [dict(objective.weights) for objective in objectives.values()] == [
        {"attention": 1.0, "hidden": 3.0},
        {"prediction": 1.0, "gold": 0.5},
        {"attention": 1.0, "hidden": 3.0},
        {"prediction": 1.0, "gold": 0.5},
    ]


@pytest.mark.parametrize(
    ("scheme", "weights", "message"),
    [
        ("bibert", {"dmd_querry": 1.0}, r"no distillation term 'dmd_querry'; did you mean 'dmd_query'\?"),
        ("binarybert_1-1-2", {"golld": 1.0}, r"no distillation term 'golld'; did you mean 'gold'\?"),
        (
            "binarybert_1-1-2",
            {"dmd_key": 1.0},
            "weights.dmd_key applies to no stage of 'binarybert_1-1-2'.*attention, gold, hidden",
        ),
        ("bibert", {"gold": -1.0}, "'gold' is -1.0"),
        ("q_bert", {"gold": 0.0}, "weight 0"),
    ],
)
def test_weights_of_unknown_terms_and_out_of_range_are_refused(scheme, weights, message):
    with pytest.raises(RecipeError, match=message):
        stage_objectives(SCHEMES[scheme], Recipe(weights=weights))

"""Training with products in bfloat16: only training steps are, weights and scores are as exact as ever."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

from bibert.data.examples import TextData
from bibert.nn.checkpoint import load_classifier
from bibert.nn.model import BiBertForSequenceClassification
from bibert.training.evaluate import evaluate
from bibert.training.recipe import Recipe
from bibert.training.student import distill
from bibert.training.teacher import finetune

RECIPE = Recipe(
    learning_rate=1e-2, epochs=6, batch_size=16, max_length=16, eval_every=4, log_every=1, precision="bfloat16"
)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> set[tuple[bool, bool]]:
    """Of every forward pass of a classifier: whether it was of training, and whether under autocast."""
    seen: set[tuple[bool, bool]] = set()
    forward = BiBertForSequenceClassification.forward

    def watched(self, *args, **kwargs):
        seen.add((self.training, torch.is_autocast_enabled("cpu")))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(BiBertForSequenceClassification, "forward", watched)
    return seen


def test_a_student_learns_and_its_scores_are_those_of_float32(teacher: Path, data: TextData, tmp_path: Path, passes):
    metrics = distill(teacher, "bibert", data, tmp_path, RECIPE)
    teaching = (False, True)  # the teacher, who is in eval mode, in a training step
    assert passes == {(True, True), teaching, (False, False)}
    classifier = load_classifier(tmp_path / "model")
    assert evaluate(classifier, data.dev["dev"], data.metrics, RECIPE.max_length)["accuracy"] == metrics["dev_accuracy"]
    assert {value.dtype for value in classifier.model.state_dict().values()} == {torch.float32}
    assert metrics["dev_accuracy"] > 0.7


def test_a_teacher_is_scored_in_float32(start: Path, data: TextData, teacher_recipe: Recipe, tmp_path: Path, passes):
    finetune(start, data, tmp_path, replace(teacher_recipe, precision="bfloat16", max_steps=4, eval_every=2))
    assert passes == {(True, True), (False, False)}


class Stop(TrainerCallback):
    """Ends a run in the middle of it, behind a checkpoint."""

    def on_step_begin(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == 5:
            raise KeyError("stopped")


def test_a_run_that_was_stopped_ends_with_the_same_weights(teacher: Path, data: TextData, tmp_path: Path, weights_of):
    recipe = replace(RECIPE, max_steps=8)
    distill(teacher, "bibert", data, tmp_path / "whole", recipe)
    with pytest.raises(KeyError, match="stopped"):
        distill(teacher, "bibert", data, tmp_path / "stopped", recipe, callbacks=[Stop()])
    distill(teacher, "bibert", data, tmp_path / "stopped", recipe)
    assert weights_of(tmp_path / "stopped" / "model") == weights_of(tmp_path / "whole" / "model")


def test_without_it_nothing_is_under_autocast(teacher: Path, data: TextData, tmp_path: Path, passes):
    distill(teacher, "bibert", data, tmp_path, replace(RECIPE, precision="float32", max_steps=2, eval_every=2))
    assert passes == {(True, False), (False, False)}

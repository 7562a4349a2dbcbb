"""The running mean of the weights: what it is, that training goes on without it, and that it survives a kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from bibert.data.examples import TextData
from bibert.errors import NumericError
from bibert.files import read_json_lines
from bibert.nn.checkpoint import load_classifier
from bibert.training.evaluate import evaluate, predict_logits
from bibert.training.recipe import Recipe
from bibert.training.student import distill

RECIPE = Recipe(learning_rate=1e-3, batch_size=16, max_length=16, max_steps=6, eval_every=2, average=0.5)
Tensors = dict[str, torch.Tensor]


class Steps(TrainerCallback):
    """Keeps the weights before the first step and after every step; breaks them before step `broken`."""

    def __init__(self, broken: int | None = None) -> None:
        self.weights: list[Tensors] = []
        self.broken = broken

    def keep(self, model: torch.nn.Module) -> None:
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        self.keep(model)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        if state.global_step == self.broken:
            model.bert.embeddings.LayerNorm.bias.data.fill_(torch.nan)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        self.keep(model)


@pytest.mark.parametrize("scheme", ["bibert_plus", "q2bert"])
def test_every_checkpoint_has_the_mean_and_the_weights(teacher: Path, data: TextData, tmp_path: Path, scheme: str):
    steps = Steps()
    distill(teacher, scheme, data, tmp_path, RECIPE, callbacks=[steps])
    mean, *others = steps.weights
    for weights in others:
        mean = {name: torch.lerp(mean[name], weights[name], 0.5) for name in mean}
    (checkpoint,) = tmp_path.glob("stages/*/checkpoint-6")
    saved, latent = load_file(checkpoint / "model.safetensors"), load_file(checkpoint / "latent.safetensors")
    for name in mean:
        torch.testing.assert_close(saved[name], mean[name])
        assert torch.equal(latent[name], steps.weights[-1][name])


def test_training_goes_on_with_the_weights(teacher: Path, data: TextData, tmp_path: Path):
    averaged, plain = Steps(), Steps()
    distill(teacher, "bibert", data, tmp_path / "averaged", RECIPE, callbacks=[averaged])
    distill(teacher, "bibert", data, tmp_path / "plain", replace(RECIPE, average=0.0), callbacks=[plain])
    for mine, theirs in zip(averaged.weights, plain.weights, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_saved_model_is_the_mean_that_was_scored_best(teacher: Path, data: TextData, tmp_path: Path):
    metrics = distill(teacher, "bibert", data, tmp_path, RECIPE)
    scored = evaluate(load_classifier(tmp_path), data.dev["dev"], data.metrics, RECIPE.max_length)
    assert {f"dev_{name}": value for name, value in scored.items()} == metrics
    means = [load_file(path) for path in tmp_path.glob("stages/*/checkpoint-*/model.safetensors")]
    model = load_file(tmp_path / "model" / "model.safetensors")
    assert any(all(torch.equal(mean[name], model[name]) for name in model) for mean in means)


def test_evaluations_are_those_of_the_mean(teacher: Path, data: TextData, tmp_path: Path):
    distill(teacher, "bibert", data, tmp_path, RECIPE)
    student, (last,) = load_classifier(tmp_path), tmp_path.glob("stages/*/checkpoint-6")
    losses = {}
    for name in ("model", "latent"):
        student.model.load_state_dict(load_file(last / f"{name}.safetensors"))
        logits = torch.from_numpy(predict_logits(student, data.dev["dev"], RECIPE.max_length))
        labels = torch.tensor(data.dev["dev"].labels, dtype=torch.long)
        losses[name] = torch.nn.functional.cross_entropy(logits, labels).item()
    events = [event for event in read_json_lines(tmp_path / "log.jsonl") if "eval_dev_loss" in event]
    found = next(event["eval_dev_loss"] for event in events if event["step"] == 6)
    assert found == pytest.approx(losses["model"], rel=1e-5)
    assert found != pytest.approx(losses["latent"], rel=1e-3)


def test_a_mean_survives_a_kill(teacher: Path, data: TextData, tmp_path: Path):
    with pytest.raises(NumericError):
        distill(teacher, "bibert_plus", data, tmp_path / "killed", RECIPE, callbacks=[Steps(broken=5)])
    distill(teacher, "bibert_plus", data, tmp_path / "killed", RECIPE)
    distill(teacher, "bibert_plus", data, tmp_path / "whole", RECIPE)
    for place in ("model/model.safetensors", "stages/dmd/checkpoint-6/latent.safetensors"):
        assert (tmp_path / "killed" / place).read_bytes() == (tmp_path / "whole" / place).read_bytes()

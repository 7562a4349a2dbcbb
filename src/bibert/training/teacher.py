"""The teacher: a full-precision BERT fine-tuned on labelled text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback, set_seed

from bibert.data.examples import TextData
from bibert.errors import CheckpointError, DataError, RecipeError
from bibert.nn import model_folder
from bibert.nn.checkpoint import load_classifier
from bibert.training.callbacks import JsonLog
from bibert.training.loop import BertTrainer, dropout_overrides, encode_data, training_arguments
from bibert.training.provenance import request_of
from bibert.training.recipe import Recipe
from bibert.training.run import finish, finished_metrics, opened

STAGE = "finetune"


class TeacherTrainer(BertTrainer):
    """Trains on gold labels."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **kwargs: Any) -> Any:  # noqa: ARG002
        """Cross-entropy by the recipe, or mean squared error for scores."""
        with self.precision(model):
            outputs = model(**inputs)
        loss = self.gold_loss(inputs["labels"])(outputs.logits) if model.training else outputs.loss
        return (loss, outputs) if return_outputs else loss


def finetune(
    checkpoint: str | Path,
    data: TextData,
    output: Path,
    recipe: Recipe,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    **arguments: Any,
) -> dict[str, float]:
    """Fine-tune a BERT on `data`; return the dev metrics of the best model, as `{"dev_accuracy": 0.9, …}`.

    `checkpoint` is a folder or a name on the Hub. The model is saved in the run folder `output`, in `model/`; if
    `output` holds the same run, killed, training resumes. `arguments` change those of the Trainer, such as `report_to`.

    Raises `RecipeError` if the recipe has distillation terms; `CheckpointError` if the checkpoint is a quantized
    student; `Interrupted` on SIGTERM or Ctrl-C, after a checkpoint, from which the same call resumes.
    """
    for name in ("weights", "norm_scope", "mask_padding"):
        if getattr(recipe, name) != getattr(Recipe(), name):
            reason = "a teacher learns from gold labels and has no distillation terms"
            raise RecipeError(f"recipe: {name} is {getattr(recipe, name)!r}, but {reason}; use a teacher's recipe")
    if data.unlabelled is not None:
        raise DataError(f"{data.unlabelled.origin}: has no labels, which a teacher learns from; give it to the student")
    checkpoint = model_folder(checkpoint)
    with opened(output, request_of("finetune", data, recipe, checkpoint=checkpoint)) as run:
        if (done := finished_metrics(run)) is not None:
            return done
        set_seed(recipe.seed)
        classifier = load_classifier(checkpoint, data.label_names, dropout_overrides(recipe))
        scheme = classifier.model.config.quantization
        if scheme.is_quantized:
            student = f"a student of the scheme {scheme.name!r} ({scheme.bits} bits)"
            raise CheckpointError(f"{checkpoint}: is {student}; give a full-precision BERT")
        encoded = encode_data(data, classifier, recipe)
        training = training_arguments(recipe, encoded, run.stage(STAGE), **arguments)
        trainer = TeacherTrainer(classifier, recipe, training, encoded, [JsonLog(run.log, STAGE), *callbacks])
        trainer.train_from_last_checkpoint()
        metrics = trainer.dev_metrics()
        finish(run, classifier, metrics, trainer.temperature())
        return metrics

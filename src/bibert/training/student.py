"""The student: binarized from a teacher and trained by the losses of its scheme, stage by stage.

Most schemes have one stage; BinaryBERT has four, the first two on a half-width ternary student. The losses are in
`distill`, the students in `nn.binarization`, the Trainer in `trainer`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, set_seed

from bibert.data.encoding import Collator, EncodedSplit, check_length
from bibert.data.examples import TextData
from bibert.distill.objective import Objective, check_weights, match_layers
from bibert.errors import CheckpointError, RecipeError
from bibert.nn.binarization import calibrate, first_student, split_student
from bibert.nn.config import as_scheme
from bibert.nn.loading import Classifier, label_names_of, load_classifier, model_folder
from bibert.nn.model import BiBertForSequenceClassification, BiBertOutput
from bibert.nn.schemes import Scheme, Stage
from bibert.training.callbacks import JsonLog
from bibert.training.loop import BertTrainer, TrainingData, dropout_overrides, encode_data, training_arguments
from bibert.training.provenance import request_of
from bibert.training.recipe import Recipe
from bibert.training.resume import is_whole
from bibert.training.run import RunFolder, finish, finished_metrics, opened, save_stage


class FrozenTeacher:
    """A teacher that cannot learn and never drops anything: eval mode, no gradients, at every call."""

    def __init__(self, model: BiBertForSequenceClassification, device: torch.device | str = "cpu") -> None:
        self.model = model.to(device).requires_grad_(False)

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Tensor], trace: bool) -> BiBertOutput:
        """The teacher's logits, and the inside of its forward pass if a loss looks there."""
        self.model.eval()
        return self.model(**inputs, trace=trace)  # type: ignore[no-any-return]


class DistillTrainer(BertTrainer):
    """Trains a student on the terms of an objective."""

    def __init__(self, *args: Any, teacher: FrozenTeacher, objective: Objective, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = teacher
        self.objective = objective
        self.match = match_layers(self.model, teacher.model)

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **kwargs: Any) -> Any:  # noqa: ARG002
        """The weighted sum of the terms in training; the label loss in evaluation."""
        if not model.training:
            outputs = model(**inputs)
            return (outputs.loss, outputs) if return_outputs else outputs.loss
        texts = {name: value for name, value in inputs.items() if name != "labels"}
        trace = self.objective.needs_trace
        with self.precision(model):
            student = model(**texts, trace=trace)
            taught = self.teacher(texts, trace) if self.objective.needs_teacher else student
        loss = self.objective(student, taught, inputs["labels"], self.match)
        self.note_terms(loss.terms)
        return (loss.total, student) if return_outputs else loss.total


# Given its file, the name of the stage, the teacher and a dev split, makes the callback.
ProbeMaker = Callable[[Path, str, Classifier, EncodedSplit], TrainerCallback]


@dataclass(frozen=True)
class _Course:
    """What stays the same through the stages of one distillation."""

    teacher: Classifier
    start: Classifier  # what the student is made from; the teacher itself, or another BERT
    scheme: Scheme
    objectives: Mapping[str, Objective]  # by stage
    recipe: Recipe
    data: TrainingData
    run: RunFolder
    probe: ProbeMaker | None
    callbacks: Sequence[TrainerCallback]
    arguments: Mapping[str, Any]


def distill(  # noqa: PLR0913 - a distillation has two models, a scheme, data, a place and a recipe
    teacher: str | Path,
    scheme: Scheme | str,
    data: TextData,
    output: Path,
    recipe: Recipe,
    *,
    start: str | Path | None = None,
    probe: ProbeMaker | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **arguments: Any,
) -> dict[str, float]:
    """Binarize a BERT and distill a teacher into it; goes on where it was killed if `output` holds such a run.

    Args:
        teacher: the folder (or Hub name) of a fine-tuned classifier: full precision, or a student that teaches.
        scheme: a row of `nn.schemes.SCHEMES`, by name or as a value.
        data: labelled texts, with the teacher's labels.
        output: the run folder; the student will be in its `model/`.
        recipe: every hyper-parameter.
        start: the BERT the student is made from, as deep as the teacher or a fraction of it: full precision, or a
            student that learns on; the teacher itself if not given.
        probe: makes a callback that looks into the student while it trains, such as `lab.probe.probe_every(50)`.
        callbacks: of the Trainer, for progress.
        arguments: changes to the Trainer's arguments, such as `report_to`.

    Returns:
        The dev metrics of the best student, as `{"dev_accuracy": 0.9, …}`.

    Raises:
        Interrupted: SIGTERM or Ctrl-C came; the same call goes on from the checkpoint that was written.
    """
    row = as_scheme(scheme)
    objectives = stage_objectives(row, recipe)
    teacher, start = model_folder(teacher), None if start is None else model_folder(start)
    models = {"teacher": teacher} if start is None else {"teacher": teacher, "start": start}
    request = request_of("distill", data, recipe, **models) | {"scheme": row.to_dict()}
    with opened(output, request) as run:
        done = finished_metrics(run)
        if done is not None:
            return done
        set_seed(recipe.seed)
        taught = load_teacher(teacher, data, recipe)
        first = taught if start is None else load_start(start, taught, data, recipe)
        check_length(recipe.max_length, taught.model.config.max_position_embeddings)
        encoded = encode_data(data, first, recipe)
        return _study(_Course(taught, first, row, objectives, recipe, encoded, run, probe, callbacks, arguments))


def load_teacher(teacher: str | Path, data: TextData, recipe: Recipe) -> Classifier:
    """A fine-tuned classifier whose labels are those of the data.

    Its configuration carries the recipe's dropout for the students made from it; the teacher itself never drops.

    Raises:
        CheckpointError: the labels differ, so its logits would mean something else.
    """
    classifier = load_classifier(teacher, overrides=dropout_overrides(recipe))
    if classifier.label_names != data.label_names:
        raise CheckpointError(
            f"{teacher}: the teacher knows {_shown(classifier.label_names)}, the data has {_shown(data.label_names)}; "
            "fine-tune a teacher on this data first: bibert finetune"
        )
    return classifier


def load_start(start: str | Path, teacher: Classifier, data: TextData, recipe: Recipe) -> Classifier:
    """The BERT a student is made from, where that is not the teacher.

    Raises:
        CheckpointError: its tokenizer gives other ids than the teacher's, or it has the same labels in another order.
    """
    learned = label_names_of(start)
    if learned != data.label_names and sorted(learned) == sorted(data.label_names):
        raise CheckpointError(
            f"{start}: knows {_shown(learned)}, the data has {_shown(data.label_names)}, so its answers would be "
            "mistaken for others; start from a model with the labels in this order"
        )
    classifier = load_classifier(start, data.label_names, dropout_overrides(recipe))
    mine, theirs = classifier.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if mine != theirs:
        raise CheckpointError(
            f"{start}: its tokenizer ({len(mine)} tokens) is not the teacher's ({len(theirs)} tokens), and both read "
            "the same ids; start from a BERT with the teacher's vocabulary"
        )
    return classifier


def _shown(label_names: tuple[str, ...]) -> str:
    return f"the labels {', '.join(label_names)}" if label_names else "scores"


def _study(course: _Course) -> dict[str, float]:
    """Run the stages that are not finished yet, each from the result of the one before."""
    student: Classifier | None = None
    metrics: dict[str, float] = {}
    for number, stage in enumerate(course.scheme.schedule):
        result = course.run.stage_result(stage.name)
        if is_whole(result):
            student = load_classifier(result)
            continue
        student = _next_student(course, student, number)
        trainer = _trainer(course, stage, student)
        trainer.train_from_last_checkpoint()
        metrics = trainer.dev_metrics()
        if number + 1 < len(course.scheme.schedule):
            save_stage(course.run, stage.name, student)
    assert student is not None  # a schedule has at least one stage
    finish(course.run, student, metrics)
    return metrics


def _next_student(course: _Course, before: Classifier | None, number: int) -> Classifier:
    """The student that a stage starts from: new, split from the ternary one, or the one before as it is."""
    schedule, tokenizer = course.scheme.schedule, course.start.tokenizer
    if before is None:
        source = course.start.model
        model = first_student(source, course.scheme)
    elif schedule[number - 1].half_width_ternary and not schedule[number].half_width_ternary:
        source = before.model
        model = split_student(source, course.scheme)
    else:
        return before
    rows = [course.data.train[i] for i in range(min(course.recipe.batch_size, len(course.data.train)))]
    calibrate(model, Collator(tokenizer.pad_token_id)(rows), source)
    return Classifier(model, tokenizer)


def _trainer(course: _Course, stage: Stage, student: Classifier) -> DistillTrainer:
    recipe = replace(course.recipe, learning_rate=course.recipe.learning_rate * stage.learning_rate_factor)
    objective = course.objectives[stage.name]
    for head in (student.model.bert.pooler, student.model.classifier):
        head.requires_grad_(objective.reaches_logits)  # distributed training waits for every gradient it was promised
    arguments = training_arguments(recipe, course.data, course.run.stage(stage.name), **course.arguments)
    callbacks: list[TrainerCallback] = [JsonLog(course.run.log, stage.name), *course.callbacks]
    if course.probe is not None:
        texts = next(iter(course.data.dev.values()))
        callbacks.append(course.probe(course.run.probe, stage.name, course.teacher, texts))
    return DistillTrainer(
        student,
        recipe,
        arguments,
        course.data,
        callbacks,
        teacher=FrozenTeacher(course.teacher.model, arguments.device),
        objective=objective,
    )


def stage_objectives(scheme: Scheme, recipe: Recipe) -> dict[str, Objective]:
    """What each stage of the scheme is taught, by its name: the scheme's terms, changed by the recipe's weights.

    A scheme with several stages keeps its terms apart: a change counts in the stages that have the term, and
    gold labels come in where the logits are taught.

    Raises:
        RecipeError: a term does not exist, has no place in the scheme, or every term of a stage has weight 0.
    """
    check_weights(recipe.weights)
    changes = {stage.name: _changes(scheme, stage, recipe) for stage in scheme.schedule}
    for name in recipe.weights:
        if not any(name in change for change in changes.values()):
            known = ", ".join(sorted({term for stage in scheme.schedule for term in stage.terms}))
            raise RecipeError(f"recipe: weights.{name} has no place in {scheme.name!r}; its stages have {known}")
    return {
        stage.name: Objective(
            {**stage.terms, **changes[stage.name]},
            recipe.norm_scope,
            recipe.mask_padding,
        )
        for stage in scheme.schedule
    }


def _changes(scheme: Scheme, stage: Stage, recipe: Recipe) -> dict[str, float]:
    """The weights of the recipe that count in a stage."""
    if len(scheme.schedule) == 1:
        return dict(recipe.weights)
    wanted = {*stage.terms, *(("gold",) if "prediction" in stage.terms else ())}
    return {name: weight for name, weight in recipe.weights.items() if name in wanted}

"""The student: binarized from a teacher and trained on the losses of its scheme, stage by stage.

Most schemes have one stage; BinaryBERT has four, the first two with a half-width ternary student. The losses are in
`distill`, the students in `nn.students`, the Trainer in `loop`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, set_seed

from bibert.data.encoding import Collator, EncodedSplit, check_length
from bibert.data.examples import TextData
from bibert.distill.objective import TERMS, Objective, match_layers
from bibert.errors import CheckpointError, DataError, RecipeError, SchemeError
from bibert.nn import model_folder
from bibert.nn.checkpoint import Classifier, config_of, label_names_of, load_classifier
from bibert.nn.model import BiBertForSequenceClassification, BiBertOutput
from bibert.nn.schemes import SCHEDULES, Scheme, Stage, as_scheme
from bibert.nn.students import calibrate, first_student, split_student
from bibert.training.callbacks import JsonLog
from bibert.training.head import fit_head
from bibert.training.loop import BertTrainer, TrainingData, dropout_overrides, encode_data, training_arguments
from bibert.training.provenance import request_of
from bibert.training.recipe import Recipe
from bibert.training.resume import is_whole
from bibert.training.run import finish, finished_metrics, opened, save_stage

# Makes the callback of a probe from its file, the name of the stage, the teacher and a dev split.
ProbeMaker = Callable[[Path, str, Classifier, EncodedSplit], TrainerCallback]
Engine = Callable[..., Any]  # the method `logits` of a `runtime.engine.Engine`, which this half does not import


class FrozenTeacher:
    """A teacher without gradients and dropout: in eval mode at every call.

    `engine` computes the logits of a packed teacher where nothing else is needed, in a tenth of the time.
    """

    def __init__(
        self, model: BiBertForSequenceClassification, device: torch.device | str = "cpu", engine: Engine | None = None
    ) -> None:
        self.model = model.to(device).requires_grad_(False)
        self.engine = engine

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Tensor], trace: bool | Collection[str]) -> BiBertOutput:
        """The teacher's logits, with the parts of a trace that a loss needs."""
        if self.engine is not None and not trace:
            logits = self.engine(**{name: value.cpu().numpy() for name, value in inputs.items()})
            return BiBertOutput(logits=torch.from_numpy(logits).to(self.model.device))
        self.model.eval()
        return self.model(**inputs, trace=trace)  # type: ignore[no-any-return]


class DistillTrainer(BertTrainer):
    """Trains a student on the terms of an objective."""

    def __init__(self, *args: Any, teacher: FrozenTeacher | None, objective: Objective, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = teacher
        self.objective = objective
        self.match = match_layers(self.model.config, (self.model if teacher is None else teacher.model).config)

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **kwargs: Any) -> Any:  # noqa: ARG002
        """The weighted sum of the terms in training; the label loss in evaluation."""
        if not model.training:
            outputs = model(**inputs)
            return (outputs.loss, outputs) if return_outputs else outputs.loss
        texts = {name: value for name, value in inputs.items() if name != "labels"}
        trace = self.objective.trace
        with self.precision(model):
            # The teacher first, while the student's activations take no memory yet.
            read = self.teacher if self.objective.reads("teacher") else None
            teacher = None if read is None else read(texts, trace)
            student = model(**texts, trace=trace)
        # Without a term that reads the teacher, the student's own output fills its place.
        loss = self.objective(student, teacher or student, self.gold_loss(inputs["labels"]), self.match)
        self.note_terms(loss.values)
        return (loss.total, student) if return_outputs else loss.total


def distill(  # noqa: PLR0913 - a distillation has two models, a scheme, data, a place and a recipe
    teacher: str | Path | None,
    scheme: Scheme | str,
    data: TextData,
    output: Path,
    recipe: Recipe,
    *,
    start: str | Path | None = None,
    probe: ProbeMaker | None = None,
    engine: Engine | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **arguments: Any,
) -> dict[str, float]:
    """Binarize a BERT and distill a teacher into it; returns, resumes and raises as `training.teacher.finetune` does.

    `teacher` is a fine-tuned classifier, in full precision or a student, with the labels of `data`; without one the
    student learns from the labels alone. `start` is the BERT to make the student from, as deep as the teacher or a
    fraction of it; by default the teacher itself. `probe` makes a callback that examines the student while it trains,
    such as `lab.probe.probe_every(50)`. `engine` computes the logits of a packed teacher, see `FrozenTeacher`.
    """
    scheme = as_scheme(scheme)
    if teacher is None:
        if scheme.split:
            raise SchemeError(f"scheme {scheme.name!r} is split from a teacher, and there is none; fine-tune one first")
        scheme = replace(scheme, schedule=SCHEDULES["labels"])
    objectives = stage_objectives(scheme, recipe)
    if teacher is None:
        _check_without_teacher(objectives, data)
    given = {"teacher": teacher, "start": start}
    models = {role: model_folder(model) for role, model in given.items() if model is not None}
    request = request_of("distill", data, recipe, **models) | {"scheme": scheme.to_dict()}
    with opened(output, request) as run:
        if (done := finished_metrics(run)) is not None:
            return done
        set_seed(recipe.seed)
        loaded = load_teacher(models["teacher"], data, recipe) if "teacher" in models else None
        student = _load_start(models["start"], loaded, data, recipe) if "start" in models else loaded
        assert student is not None, "there is neither a teacher nor a start"
        encoded = encode_data(data, student, recipe)
        metrics, temperature = {}, 1.0
        for number, stage in enumerate(scheme.schedule):
            if is_whole(run.stage_result(stage.name)):
                student = load_classifier(run.stage_result(stage.name))
                continue
            student = next_student(student, scheme, number, encoded, recipe.batch_size)
            if number == 0 and "start" in models and not _knows_labels(models["start"], student, data):
                fit_head(student, encoded.train, recipe.precision, recipe.seed)
            objective = objectives[stage.name]
            train_heads(student, objective)
            stage_recipe = replace(recipe, learning_rate=recipe.learning_rate * stage.learning_rate_factor)
            training = training_arguments(stage_recipe, encoded, run.stage(stage.name), **arguments)
            watching: list[TrainerCallback] = [JsonLog(run.log, stage.name), *callbacks]
            if probe is not None:
                watching.append(probe(run.probe, stage.name, loaded or student, next(iter(encoded.dev.values()))))
            frozen = None if loaded is None else FrozenTeacher(loaded.model, training.device, engine)
            trainer = DistillTrainer(
                student, stage_recipe, training, encoded, watching, teacher=frozen, objective=objective
            )
            trainer.train_from_last_checkpoint()
            metrics, temperature = trainer.dev_metrics(), trainer.temperature()
            if number + 1 < len(scheme.schedule):
                save_stage(run, stage.name, student)
        finish(run, student, metrics, temperature)
        return metrics


def _check_without_teacher(objectives: Mapping[str, Objective], data: TextData) -> None:
    """Refuse what only a teacher can give: targets of loss terms, and labels of unlabelled texts."""
    if compared := [name for one in objectives.values() for name in one.weights if TERMS[name].teacher]:
        raise RecipeError(f"recipe: weights.{compared[0]} compares with a teacher, and there is none; leave it out")
    if data.unlabelled is not None:
        raise DataError(f"{data.unlabelled.origin}: has no labels, and there is no teacher to give them; name one")


def next_student(before: Classifier, scheme: Scheme, number: int, data: TrainingData, batch_size: int) -> Classifier:
    """The student that a stage starts from: a new one, the ternary one split, or the one before; calibrated if new."""
    if number == 0:
        model = first_student(before.model, scheme)
    elif scheme.schedule[number - 1].half_width_ternary and not scheme.schedule[number].half_width_ternary:
        model = split_student(before.model, scheme)
    else:
        return before
    batch = [data.train[row] for row in range(min(batch_size, len(data.train)))]
    calibrate(model, Collator(before.tokenizer.pad_token_id)(batch), before.model)
    return Classifier(model, before.tokenizer)


def train_heads(student: Classifier, objective: Objective) -> None:
    """Freeze pooler and classifier unless a term reads them: distributed training waits for every expected gradient."""
    student.model.bert.pooler.requires_grad_(objective.reads("pooled"))
    student.model.classifier.requires_grad_(objective.reads("logits"))


def load_teacher(teacher: str | Path, data: TextData, recipe: Recipe) -> Classifier:
    """A fine-tuned classifier with the labels of the data; raises `CheckpointError` for other labels.

    Its configuration has the recipe's dropout, for the students made from it; the teacher itself never drops.
    """
    classifier = load_classifier(teacher, overrides=dropout_overrides(recipe))
    if classifier.label_names != data.label_names:
        labels = f"{_labels(classifier.label_names)}, the data has {_labels(data.label_names)}"
        raise CheckpointError(f"{teacher}: the teacher has {labels}; fine-tune one on this data with bibert finetune")
    check_length(recipe.max_length, classifier.model.config.max_position_embeddings)
    return classifier


def check_start(start: str | Path, checkpoint: str | Path, data: TextData) -> None:
    """Raise `CheckpointError` if a teacher made from `checkpoint` cannot teach a student made from `start`."""
    match_layers(*(config_of(model_folder(model), data.label_names, {}) for model in (start, checkpoint)))


def _load_start(start: str | Path, teacher: Classifier | None, data: TextData, recipe: Recipe) -> Classifier:
    """The BERT to make a student from; raises `CheckpointError` if it does not fit the teacher."""
    learned = label_names_of(start)
    if learned != data.label_names and sorted(learned) == sorted(data.label_names):
        labels = f"{_labels(learned)}, the data has {_labels(data.label_names)}, so its answers would be swapped"
        raise CheckpointError(f"{start}: has {labels}; start from a model with the labels in this order")
    classifier = load_classifier(start, data.label_names, dropout_overrides(recipe))
    if teacher is not None:
        check_vocabulary(start, classifier, teacher)
    return classifier


def check_vocabulary(start: str | Path, classifier: Classifier, teacher: Classifier) -> None:
    """Raise `CheckpointError` if a start does not read the teacher's tokens."""
    mine, theirs = classifier.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if mine != theirs:
        tokenizers = f"its tokenizer ({len(mine)} tokens) is not the teacher's ({len(theirs)} tokens)"
        remedy = "start from a BERT with the teacher's vocabulary"
        raise CheckpointError(f"{start}: {tokenizers}, and both read the same ids; {remedy}")


def _knows_labels(start: str | Path, student: Classifier, data: TextData) -> bool:
    """Whether the classifier of a start is of use; a general encoder has one for scores whose bias is still 0."""
    same = label_names_of(start) == data.label_names
    return same and (bool(data.label_names) or bool(student.model.classifier.bias.any()))


def _labels(label_names: tuple[str, ...]) -> str:
    return f"the labels {', '.join(label_names)}" if label_names else "scores"


def stage_objectives(scheme: Scheme, recipe: Recipe) -> dict[str, Objective]:
    """The objective of each stage, by its name: the scheme's terms, changed by the recipe's weights.

    With several stages, a weight applies to the stages that have the term, and `gold` to those that teach the logits.
    Raises `RecipeError` if a term does not exist, no stage has it, or every term of a stage has weight 0.
    """
    objectives: dict[str, Objective] = {}
    used: set[str] = set()
    for stage in scheme.schedule:
        weights = dict(recipe.weights)
        if len(scheme.schedule) > 1:
            # A name that is no term stays, so that `Objective` refuses it.
            weights = {k: v for k, v in weights.items() if k in _terms_of(stage) or k not in TERMS}
        used |= weights.keys()
        objectives[stage.name] = Objective({**stage.weights, **weights}, recipe.norm_scope, recipe.mask_padding)
    labels = [name for name in ("class_weights", "label_smoothing") if getattr(recipe, name)]
    if labels and not any("gold" in objective.weights for objective in objectives.values()):
        problem = f"{labels[0]} is for the loss of labels, which {scheme.name!r} does not have"
        raise RecipeError(f"recipe: {problem}; give it a weight with weights.gold, or leave it out")
    if unused := [name for name in recipe.weights if name not in used]:
        known = ", ".join(sorted(set().union(*map(_terms_of, scheme.schedule))))
        problem = f"weights.{unused[0]} applies to no stage of {scheme.name!r}"
        raise RecipeError(f"recipe: {problem}; its stages take {known}")
    return objectives


def _terms_of(stage: Stage) -> set[str]:
    """The terms that a recipe can weigh in one of several stages."""
    return {*stage.weights, *(("gold",) if "prediction" in stage.weights else ())}

"""`bibert train`: a binarized classifier with one command, with or without a teacher, beside baselines."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli import options
from bibert.cli.console import print_metrics, say
from bibert.errors import DataError, require_extra
from bibert.models import shipped_start
from bibert.nn import RUN_MODEL, model_folder
from bibert.nn.schemes import get_scheme

if TYPE_CHECKING:
    from bibert.data.examples import TextData

Metrics = Mapping[str, float]

STUDENT_REMEDY = "it needs more rows or more steps (--set min_steps=2000)"
ONE_BIT_REMEDY = f"{STUDENT_REMEDY}; 1-bit activations take thousands of steps"
TEACHER_REMEDY = (
    "a student will hardly be better; train it longer (bibert recipes teacher > longer.toml, with more epochs there, "
    "then --teacher-recipe longer.toml and another -o), or give another checkpoint"
)


@options.with_option_groups
def train(
    data: options.DataOptions,
    training: options.TrainingOptions,
    student: options.SchemeOptions,
    output: Annotated[
        Path | None, options.option("Run folder (default: runs/ and the name of the data).", "--output", "-o")
    ] = None,
    checkpoint: Annotated[
        str | None,
        options.option("A BERT to fine-tune as teacher: a folder, or a name on the Hub.", "--checkpoint", "-c"),
    ] = None,
    start: options.Start = None,
    test: Annotated[Path | None, options.option("Rows to evaluate the finished models on; they select none.")] = None,
    probe_every: options.ProbeEvery = 0,
    teacher_recipe: Annotated[str, typer.Option(help="The teacher's preset or TOML file.")] = "teacher",
    json: options.Json = False,
) -> None:
    """Train a binarized classifier on labelled text, from the encoder in the package.

    With --checkpoint, that BERT is fine-tuned first and teaches the student, which is made from it unless --start names
    another model. --max-length and --seed apply to both; the other options of the recipe apply to the student.

    The table at the end has two baselines: the majority class and a bag of words.

    Example: bibert train reviews.csv
    """
    require_extra("train", "bibert train")
    from bibert.data.tables import load_split
    from bibert.training.recipe import load_recipe
    from bibert.training.run import is_main_process

    row = get_scheme(student.name)
    if checkpoint is None and (data.texts or teacher_recipe != "teacher"):
        raise DataError("--texts and --teacher-recipe need a teacher; give the BERT to fine-tune with --checkpoint")
    start = start if start or checkpoint else shipped_start(row.bits.activation)
    recipe, arguments = training.load("student" if checkpoint else "labels"), training.trainer_arguments()
    shared = {name: value for name, value in training.all_changes().items() if name in ("max_length", "seed")}
    recipe_of_teacher = load_recipe(teacher_recipe, shared)
    for model in filter(None, (checkpoint, start)):
        model_folder(model)
    texts = data.load_and_report(test)
    columns = replace(data.columns, usual=texts.columns)
    tested = None if test is None else replace(texts, dev={"test": load_split(test, columns, texts.label_names)})
    options.import_quietly()
    from bibert.cli.progress import TrainingProgress
    from bibert.training.student import check_start, distill, stage_objectives
    from bibert.training.teacher import finetune

    output = output or Path("runs", Path(texts.name).stem + ("-taught" if checkpoint else ""))
    floor = _floor(texts, tested) if is_main_process() else {}
    scores, models = dict(floor), {row.name: output / "student" / RUN_MODEL}
    if checkpoint is not None:
        stage_objectives(row, recipe)  # reports a wrong weight before the teacher is trained, and a start that differs
        check_start(start or checkpoint, checkpoint, texts)
        models = {"teacher": output / "teacher" / RUN_MODEL} | models
        scores["teacher"] = finetune(
            checkpoint,
            replace(texts, unlabelled=None),
            output / "teacher",
            recipe_of_teacher,
            callbacks=[TrainingProgress("teacher")],
            **arguments,
        )
        _warn_if_no_better("the teacher", scores["teacher"], floor, TEACHER_REMEDY)
    probe, shown = options.probe_of(probe_every), [TrainingProgress(row.name)]
    arguments |= {"start": start, "probe": probe, "callbacks": shown}
    scores[row.name] = distill(models.get("teacher"), row, texts, output / "student", recipe, **arguments)
    if is_main_process():
        if tested is not None:
            lengths = {"teacher": recipe_of_teacher.max_length, row.name: recipe.max_length}
            scores |= {name: scores[name] | _metrics_of(models[name], tested, lengths[name]) for name in models}
        print_metrics(scores, models, json)
        say(f"next: bibert pack {models[row.name]} -o {output.name}.bibert")
        say(f"then: bibert predict -m {output.name}.bibert --input FILE --output LABELLED")
        _warn_if_no_better(
            row.name, scores[row.name], floor, ONE_BIT_REMEDY if row.bits.activation == 1 else STUDENT_REMEDY
        )


def _metrics_of(model: Path, data: "TextData", max_length: int) -> dict[str, float]:
    """The metrics of a trained model on the splits of `data`."""
    from bibert.data.metrics import score
    from bibert.nn.checkpoint import load_classifier
    from bibert.training.evaluate import predict_logits

    classifier = load_classifier(model)
    metrics: dict[str, float] = {}
    for name, split in data.dev.items():
        found = score(predict_logits(classifier, split, max_length), split.labels, data.metrics)
        metrics |= {f"{name}_{metric}": value for metric, value in found.items()}
    return metrics


def _floor(data: "TextData", tested: "TextData | None") -> dict[str, dict[str, float]]:
    """The metrics of the baselines on the dev rows and on test rows; none for scores."""
    from bibert.training.floor import majority_class, words_alone

    if not data.label_names:
        return {}
    say("training a bag of words as a baseline")
    data = data if tested is None else replace(data, dev=data.dev | tested.dev)
    floor = {"majority class": majority_class(data)}
    try:
        floor["bag of words"] = words_alone(data)
    except DataError as error:  # no reason to stop
        say(f"no bag of words in the table: {error}")
    return floor


def _warn_if_no_better(who: str, metrics: Metrics, floor: Mapping[str, Metrics], remedy: str) -> None:
    metric = next((name for name in metrics if name.startswith("test_")), next(iter(metrics)))  # selected nothing
    for name, reached in floor.items():
        if metrics[metric] <= reached.get(metric, 0.0) and metrics[metric] < 1:
            both = f"{metric} {metrics[metric]:.3f} and {reached[metric]:.3f}"
            say(f"{who} is no better than the {name} ({both}): {remedy}")

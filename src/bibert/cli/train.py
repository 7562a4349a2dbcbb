"""`bibert train`: teacher and student with one command, beside baselines without a network."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli import options
from bibert.cli.console import print_metrics, say
from bibert.errors import DataError
from bibert.nn import RUN_MODEL
from bibert.nn.schemes import get_scheme

if TYPE_CHECKING:
    from bibert.data.examples import TextData

Metrics = Mapping[str, float]

STUDENT_REMEDY = "it needs more steps (--epochs) or more rows; a 1-bit student takes thousands of steps"
TEACHER_REMEDY = (
    "a student will hardly be better; train it longer (bibert recipes teacher > longer.toml, with more epochs there, "
    "then --teacher-recipe longer.toml and another -o), or give another checkpoint"
)


@options.with_option_groups
def train(
    checkpoint: options.Checkpoint,
    output: options.Output,
    data: options.DataOptions,
    training: options.TrainingOptions,
    student: options.SchemeOptions,
    probe_every: options.ProbeEvery = 0,
    teacher_recipe: Annotated[str, typer.Option(help="The teacher's preset or TOML file.")] = "teacher",
    json: options.Json = False,
) -> None:
    """Fine-tune a teacher on labelled text, binarize it and distill it into the student.

    The table at the end shows both beside two baselines: the majority class of the dev set and a bag of words.

    --max-length and --seed apply to both; the other options of the recipe apply to the student.

    Example: bibert train reviews.csv --checkpoint path/to/bert -o runs/reviews
    """
    options.require_torch("bibert train")
    from bibert.cli.progress import TrainingProgress
    from bibert.training.recipe import load_recipe
    from bibert.training.run import is_main_process
    from bibert.training.student import distill, stage_objectives
    from bibert.training.teacher import finetune

    row = get_scheme(student.name)
    recipe, arguments = training.load(), training.trainer_arguments()
    shared = {name: value for name, value in training.all_changes().items() if name in ("max_length", "seed")}
    recipe_of_teacher = load_recipe(teacher_recipe, shared)
    stage_objectives(row, recipe)  # reports a wrong weight before the teacher is trained
    texts = data.load_and_report()
    models = {"teacher": output / "teacher" / RUN_MODEL, row.name: output / "student" / RUN_MODEL}
    progress = [TrainingProgress("teacher")]
    taught = finetune(checkpoint, texts, output / "teacher", recipe_of_teacher, callbacks=progress, **arguments)
    floor = _floor(texts) if is_main_process() else {}
    _warn_if_no_better("the teacher", taught, floor, TEACHER_REMEDY)
    probe, progress = options.probe_of(probe_every), [TrainingProgress(row.name)]
    folder = output / "student"
    learned = distill(models["teacher"], row, texts, folder, recipe, probe=probe, callbacks=progress, **arguments)
    if is_main_process():
        print_metrics({**floor, "teacher": taught, row.name: learned}, models, json)
        _warn_if_no_better(row.name, learned, floor, STUDENT_REMEDY)


def _floor(data: "TextData") -> dict[str, dict[str, float]]:
    """The metrics of the baselines; none for scores."""
    from bibert.training.floor import majority_class, words_alone

    if not data.label_names:
        return {}
    say("training a bag of words as a baseline")
    floor = {"majority class": majority_class(data)}
    try:
        floor["bag of words"] = words_alone(data)
    except DataError as error:  # no reason to stop
        say(f"no bag of words in the table: {error}")
    return floor


def _warn_if_no_better(who: str, metrics: Metrics, floor: Mapping[str, Metrics], remedy: str) -> None:
    metric = next(iter(metrics))
    for name, reached in floor.items():
        if metrics[metric] <= reached.get(metric, 0.0):
            both = f"{metric} {metrics[metric]:.3f} and {reached[metric]:.3f}"
            say(f"{who} is no better than the {name} ({both}): {remedy}")

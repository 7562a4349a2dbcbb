"""`bibert train`: teacher and student in one go."""

from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import say
from bibert.cli.options import (
    Checkpoint,
    DataOptions,
    Json,
    Output,
    ProbeEvery,
    SchemeName,
    TrainingOptions,
    probe_of,
    with_option_groups,
)
from bibert.errors import DataError, require_extra
from bibert.nn.folders import RUN_MODEL
from bibert.nn.schemes import get_scheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bibert.data.examples import TextData

    Metrics = Mapping[str, float]

STUDENT_REMEDY = "it needs more steps (--epochs) or more rows; a 1-bit student takes thousands of steps"
TEACHER_REMEDY = (
    "a student will hardly be better; train it longer (bibert recipes teacher > longer.toml, with more epochs there, "
    "then --teacher-recipe longer.toml and another -o), or give another checkpoint"
)


@with_option_groups
def train(
    checkpoint: Checkpoint,
    output: Output,
    data: DataOptions,
    training: TrainingOptions,
    scheme: SchemeName = "bibert",
    probe_every: ProbeEvery = 0,
    teacher_recipe: Annotated[str, typer.Option(help="The teacher's preset or TOML file.")] = "teacher",
    json: Json = False,
) -> None:
    """Fine-tune a teacher on labelled text, binarize it and distill it into the student.

    The table at the end has both, beside the most frequent class of the dev set and a bag of words.

    --max-length and --seed count for both; the other options of the recipe are the student's.

    Example: bibert train reviews.csv --checkpoint path/to/bert -o runs/reviews
    """
    require_extra("train", "bibert train")
    from bibert.cli.progress import TrainingProgress, quiet_libraries
    from bibert.cli.results import show_metrics
    from bibert.training.recipe import load_recipe
    from bibert.training.run import is_main_process
    from bibert.training.student import distill, stage_objectives
    from bibert.training.teacher import finetune

    quiet_libraries()
    row = get_scheme(scheme)
    recipe, arguments = training.load(), training.trainer_arguments()
    shared = {name: value for name, value in training.given().items() if name in ("max_length", "seed")}
    teachers = load_recipe(teacher_recipe, shared)
    stage_objectives(row, recipe)  # a wrong weight is found now, not when the teacher is trained
    texts = data.load_and_report()
    folders = {"teacher": output / "teacher" / RUN_MODEL, scheme: output / "student" / RUN_MODEL}
    taught = finetune(
        checkpoint,
        texts,
        output / "teacher",
        teachers,
        callbacks=[TrainingProgress("teacher")],
        **arguments,
    )
    floor = _floor(texts) if is_main_process() else {}
    _say_what_is_no_better("the teacher", taught, floor, TEACHER_REMEDY)
    learned = distill(
        folders["teacher"],
        row,
        texts,
        output / "student",
        recipe,
        probe=probe_of(probe_every),
        callbacks=[TrainingProgress(scheme)],
        **arguments,
    )
    show_metrics({**floor, "teacher": taught, scheme: learned}, folders, json)
    _say_what_is_no_better(scheme, learned, floor, STUDENT_REMEDY)


def _say_what_is_no_better(who: str, metrics: "Metrics", floor: "Mapping[str, Metrics]", remedy: str) -> None:
    metric = next(iter(metrics))
    for name, reached in floor.items():
        if metrics[metric] <= reached.get(metric, 0.0):
            both = f"{metric} {metrics[metric]:.3f} and {reached[metric]:.3f}"
            say(f"{who} is no better than the {name} ({both}): {remedy}")


def _floor(data: "TextData") -> dict[str, dict[str, float]]:
    """What one gets without a network, on the same dev rows; nothing for scores."""
    from bibert.training.floor import majority_class, words_alone

    if not data.label_names:
        return {}
    say("counting words, to compare with")
    floor = {"majority class": majority_class(data)}
    try:
        floor["bag of words"] = words_alone(data)
    except DataError as error:  # it is only beside the result
        say(f"the table has no bag of words: {error}")
    return floor

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
    with_option_groups,
)
from bibert.errors import DataError, require_extra
from bibert.nn.folders import RUN_MODEL
from bibert.nn.schemes import get_scheme

if TYPE_CHECKING:
    from bibert.data.examples import TextData


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
    from bibert.training.distiller import distill, stage_objectives
    from bibert.training.recipe import load_recipe
    from bibert.training.run import is_main_process
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
    learned = distill(
        folders["teacher"],
        row,
        texts,
        output / "student",
        recipe,
        probe_every=probe_every,
        callbacks=[TrainingProgress(scheme)],
        **arguments,
    )
    floor = _floor(texts) if is_main_process() else {}
    show_metrics({**floor, "teacher": taught, scheme: learned}, folders, json)
    for name, reached in floor.items():
        metric = next(iter(learned))
        if learned[metric] <= reached.get(metric, 0.0):
            say(
                f"{scheme} is no better than the {name} ({metric} {learned[metric]:.3f} and {reached[metric]:.3f}): it "
                "needs more steps (--epochs) or more rows; a 1-bit student takes thousands of steps"
            )


def _floor(data: "TextData") -> dict[str, dict[str, float]]:
    """What one gets without a network, on the same dev rows; nothing for scores."""
    from bibert.rivals.floor import majority_class, words_alone

    if not data.label_names:
        return {}
    say("counting words, to compare with")
    floor = {"majority class": majority_class(data)}
    try:
        floor["bag of words"] = words_alone(data)
    except DataError as error:  # it is only beside the result
        say(f"the table has no bag of words: {error}")
    return floor

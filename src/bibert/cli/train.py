"""`bibert train`: teacher and student in one go."""

from typing import Annotated

import typer

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
from bibert.errors import require_extra
from bibert.nn.schemes import get_scheme


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

    --max-length and --seed count for both; the other options of the recipe are the student's.

    Example: bibert train reviews.csv --checkpoint path/to/bert -o runs/reviews
    """
    require_extra("train", "bibert train")
    from bibert.cli.progress import TrainingProgress, quiet_libraries
    from bibert.cli.results import show_metrics
    from bibert.training.distiller import distill, stage_objectives
    from bibert.training.recipe import load_recipe
    from bibert.training.teacher import finetune

    quiet_libraries()
    row = get_scheme(scheme)
    recipe, arguments = training.load(), training.trainer_arguments()
    shared = {name: value for name, value in training.given().items() if name in ("max_length", "seed")}
    teachers = load_recipe(teacher_recipe, shared)
    stage_objectives(row, recipe)  # a wrong weight is found now, not when the teacher is trained
    texts = data.load_and_report()
    folders = {"teacher": output / "teacher" / "model", scheme: output / "student" / "model"}
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
    show_metrics({"teacher": taught, scheme: learned}, folders, json)

"""`bibert generalize`: a binarized encoder for any task."""

from pathlib import Path
from typing import Annotated

import typer

from bibert.cli import options
from bibert.cli.console import print_metrics, say
from bibert.errors import require_extra
from bibert.nn import RUN_MODEL, model_folder
from bibert.nn.schemes import get_scheme


@options.with_option_groups
def generalize(
    texts: Annotated[list[Path], typer.Argument(help="Files of texts: one a line in .txt, or a table; .gz too.")],
    checkpoint: options.Checkpoint,
    output: options.Output,
    training: options.TrainingOptions,
    student: options.SchemeOptions,
    start: Annotated[
        str | None, options.option("A student to continue from, such as one at another position of the dial.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Binarize a whole encoder on plain text, without a task: a start for the student of any task.

    Example: bibert generalize sentences.txt.gz --checkpoint path/to/bert --bits 4 -o runs/general
    """
    require_extra("train", "bibert generalize")
    from bibert.data.tables import load_unlabelled
    from bibert.training.run import is_main_process

    row = get_scheme(student.name)
    recipe, arguments = training.load("general"), training.trainer_arguments()
    for model in filter(None, (checkpoint, start)):
        model_folder(model)
    unlabelled = load_unlabelled(texts)
    options.import_quietly()
    from bibert.cli.progress import TrainingProgress
    from bibert.training.general import general_data
    from bibert.training.general import generalize as run

    data = general_data(unlabelled)
    if is_main_process():
        say(f"{len(data.train):,} texts to train on, {len(data.dev['dev']):,} set aside")
    progress = [TrainingProgress(row.name)]
    metrics = run(checkpoint, row, data, output, recipe, start=start, callbacks=progress, **arguments)
    if is_main_process():
        print_metrics({row.name: metrics}, {row.name: output / RUN_MODEL}, json)
        say(f"next: bibert train FILE --start {output / RUN_MODEL}")

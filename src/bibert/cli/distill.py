"""`bibert distill`: the student."""

from typing import Annotated

import typer

from bibert.cli.console import say
from bibert.cli.options import (
    DataOptions,
    Json,
    Output,
    ProbeEvery,
    SchemeName,
    TrainingOptions,
    probe_of,
    with_option_groups,
)
from bibert.errors import require_extra
from bibert.nn.folders import RUN_MODEL
from bibert.nn.schemes import get_scheme
from bibert.training.run import PROBE


@with_option_groups
def distill(
    teacher: Annotated[str, typer.Option("--teacher", "-t", help="Folder of the fine-tuned teacher.")],
    output: Output,
    data: DataOptions,
    training: TrainingOptions,
    scheme: SchemeName = "bibert",
    start: Annotated[
        str | None,
        typer.Option(
            help="The BERT to make the student from, such as a shallower one, or a student that learns on; "
            "the teacher if not given.",
            show_default=False,
        ),
    ] = None,
    probe_every: ProbeEvery = 0,
    json: Json = False,
) -> None:
    """Binarize a teacher by a scheme and distill it: the student.

    Example: bibert distill reviews.csv --teacher runs/teacher/model --scheme bibert -o runs/student
    """
    require_extra("train", "bibert distill")
    from bibert.cli.progress import TrainingProgress, quiet_libraries
    from bibert.cli.results import show_metrics
    from bibert.training.student import distill as run

    quiet_libraries()
    row = get_scheme(scheme)
    recipe, arguments = training.load(), training.trainer_arguments()
    texts = data.load_and_report()
    callbacks = [TrainingProgress(scheme)]
    metrics = run(
        teacher, row, texts, output, recipe, start=start, probe=probe_of(probe_every), callbacks=callbacks, **arguments
    )
    if probe_every and not (output / PROBE).exists():
        say(f"{output}: was trained before without --probe-every; it is not trained again for it")
    show_metrics({scheme: metrics}, {scheme: output / RUN_MODEL}, json)

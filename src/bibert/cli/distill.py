"""`bibert distill`: the student."""

from pathlib import Path
from typing import Annotated

import typer

from bibert.cli import options
from bibert.cli.console import print_metrics, say
from bibert.errors import require_extra
from bibert.nn import RUN_MODEL, is_packed, model_folder
from bibert.nn.schemes import get_scheme


@options.with_option_groups
def distill(
    teacher: Annotated[str, typer.Option("--teacher", "-t", help="Folder of the fine-tuned teacher.")],
    output: options.Output,
    data: options.DataOptions,
    training: options.TrainingOptions,
    student: options.SchemeOptions,
    start: options.Start = None,
    probe_every: options.ProbeEvery = 0,
    json: options.Json = False,
) -> None:
    """Binarize a teacher by a scheme and distill it into the student.

    Example: bibert distill reviews.csv --teacher runs/teacher/model --bits 4 -o runs/student
    """
    require_extra("train", "bibert distill")
    from bibert.training.run import PROBE, is_main_process

    row = get_scheme(student.name)
    recipe, arguments = training.load("student"), training.trainer_arguments()
    for model in filter(None, (teacher, start)):
        model_folder(model)
    texts = data.load_and_report()
    options.import_quietly()
    import torch

    from bibert.cli.progress import TrainingProgress
    from bibert.runtime.engine import Engine
    from bibert.training.student import distill as run

    arguments |= {"start": start, "probe": options.probe_of(probe_every), "callbacks": [TrainingProgress(row.name)]}
    if is_packed(packed := Path(model_folder(teacher))):
        arguments["engine"] = Engine.load(packed, torch.get_num_threads()).logits
    metrics = run(teacher, row, texts, output, recipe, **arguments)
    if is_main_process():
        if probe_every and not (output / PROBE).exists():
            say(f"{output}: --probe-every came too late, this run was finished without it; choose another -o")
        print_metrics({row.name: metrics}, {row.name: output / RUN_MODEL}, json)
        say(f"next: bibert pack {output / RUN_MODEL} -o {output.name}.bibert")

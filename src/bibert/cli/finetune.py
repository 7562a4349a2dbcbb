"""`bibert finetune`: the teacher."""

from bibert.cli.console import print_metrics
from bibert.cli.options import Checkpoint, DataOptions, Json, Output, TrainingOptions, require_torch, with_option_groups
from bibert.nn import RUN_MODEL


@with_option_groups
def finetune(
    checkpoint: Checkpoint, output: Output, data: DataOptions, training: TrainingOptions, json: Json = False
) -> None:
    """Fine-tune a full-precision BERT on labelled text: the teacher of a later `bibert distill`.

    Example: bibert finetune reviews.csv --checkpoint path/to/bert -o runs/teacher
    """
    require_torch("bibert finetune")
    from bibert.cli.progress import TrainingProgress
    from bibert.training.run import is_main_process
    from bibert.training.teacher import finetune as run

    recipe, arguments = training.load("teacher"), training.trainer_arguments()
    texts = data.load_and_report()
    metrics = run(checkpoint, texts, output, recipe, callbacks=[TrainingProgress("teacher")], **arguments)
    if is_main_process():
        print_metrics({"teacher": metrics}, {"teacher": output / RUN_MODEL}, json)

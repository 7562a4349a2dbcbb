"""`bibert finetune`: the teacher."""

from bibert.cli import options
from bibert.cli.console import print_metrics, say
from bibert.errors import require_extra
from bibert.nn import RUN_MODEL, model_folder


@options.with_option_groups
def finetune(
    checkpoint: options.Checkpoint,
    output: options.Output,
    data: options.DataOptions,
    training: options.TrainingOptions,
    json: options.Json = False,
) -> None:
    """Fine-tune a full-precision BERT on labelled text: the teacher of a later `bibert distill`.

    Example: bibert finetune reviews.csv --checkpoint path/to/bert -o runs/teacher
    """
    require_extra("train", "bibert finetune")
    from bibert.training.run import is_main_process

    recipe, arguments = training.load("teacher"), training.trainer_arguments()
    model_folder(checkpoint)
    texts = data.load_and_report()
    options.import_quietly()
    from bibert.cli.progress import TrainingProgress
    from bibert.training.teacher import finetune as run

    metrics = run(checkpoint, texts, output, recipe, callbacks=[TrainingProgress("teacher")], **arguments)
    if is_main_process():
        print_metrics({"teacher": metrics}, {"teacher": output / RUN_MODEL}, json)
        say(f"next: bibert distill {data.data or ''} --teacher {output / RUN_MODEL} -o {output}-student")

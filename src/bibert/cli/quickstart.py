"""`bibert quickstart`: the whole method in a few minutes, on data it generates itself."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say
from bibert.cli.options import Json
from bibert.errors import require_extra
from bibert.nn.schemes import get_scheme

if TYPE_CHECKING:
    from bibert.training.quickstart import Quickstart


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the models and logs.")] = Path("quickstart"),
    seed: Annotated[int, typer.Option(help="Seed of the sentences and the weights.")] = 0,
    json: Json = False,
) -> None:
    """See it work: train a small teacher, binarize it twice, compare. Needs no data and no download.

    The sentences are generated, with negation, contrast and word order, so that counting words is not enough.
    """
    require_extra("train", "bibert quickstart")
    from bibert.cli.progress import TrainingProgress, quiet_libraries
    from bibert.training.quickstart import DEV_ROWS, TRAIN_ROWS
    from bibert.training.quickstart import quickstart as run

    quiet_libraries()
    say(f"generating {TRAIN_ROWS} sentences to learn from and {DEV_ROWS} to score on, seed {seed}")
    started = time.monotonic()
    result = run(output, lambda title: [TrainingProgress(title)], seed)
    seconds = time.monotonic() - started
    if json:
        print_json({"accuracy": _accuracies(result), "seconds": round(seconds, 1), "folder": str(output)})
        return
    print_table(_table(result, output))
    say(f"{seconds:.0f} s; models and logs are in {output}. Next, on your own data: bibert train --help")


def _accuracies(result: "Quickstart") -> dict[str, float]:
    return {"bag of words": result.bag_of_words, "full_precision": result.teacher, **result.students}


def _table(result: "Quickstart", output: Path) -> Table:
    table = Table("model", "bits W-E-A", "attention", "dev accuracy %", "folder", title="quickstart")
    table.add_row("bag of words (TF-IDF)", "", "none", f"{100 * result.bag_of_words:.1f}", "")
    rows = {"full_precision": (result.teacher, "teacher")}
    rows |= {name: (accuracy, name) for name, accuracy in result.students.items()}
    for name, (accuracy, folder) in rows.items():
        scheme = get_scheme(name)
        form = "softmax" if scheme.normalizer == "softmax" else "Bi-Attention"
        quantized = form if scheme.attention == "none" or form != "softmax" else f"{scheme.attention}({form})"
        table.add_row(name, str(scheme.bits), quantized, f"{100 * accuracy:.1f}", str(output / folder / "model"))
    return table

"""`bibert quickstart`: the whole method in a few minutes, on generated data."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say
from bibert.cli.options import Json, require_torch
from bibert.lab.cli.bench import bench_table, warn_if_busy
from bibert.nn import RUN_MODEL
from bibert.nn.schemes import get_scheme
from bibert.training.recipe import SEEDS

if TYPE_CHECKING:
    from bibert.lab.quickstart import Quickstart

PACKED = "bibert, packed"
SHOWN = 3  # sentences whose answers are shown


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the models and logs.")] = Path("quickstart"),
    seed: Annotated[int, typer.Option(min=0, max=SEEDS - 1, help="Seed of the sentences and the weights.")] = 0,
    json: Json = False,
) -> None:
    """See it work: train a small teacher, binarize it twice, pack one student, compare. Needs no data, no download.

    The sentences are generated, with negation, contrast and word order, so that counting words is not enough.
    """
    require_torch("bibert quickstart")
    from bibert.cli.progress import TrainingProgress
    from bibert.lab.quickstart import DEV_ROWS, TRAIN_ROWS
    from bibert.lab.quickstart import quickstart as run
    from bibert.lab.rivals.benchmark import Plan, compare
    from bibert.lab.rivals.engines import get_rivals
    from bibert.lab.rivals.models import Shape
    from bibert.runtime.classifier import load
    from bibert.training.floor import bag_of_words

    say(f"generating {TRAIN_ROWS} training sentences and {DEV_ROWS} to score on, seed {seed}")
    started = time.monotonic()
    result = run(output, lambda title: [TrainingProgress(title)], seed)
    words = float(bag_of_words(result.train).score(result.dev.joined_texts, result.dev.labels))
    classifier = load(result.packed)
    answers = classifier.predict(result.dev.texts)
    gold = [classifier.labels[int(label)] for label in result.dev.labels]
    engine = sum(answer["label"] == label for answer, label in zip(answers, gold, strict=True)) / len(gold)
    plan = Plan(get_rivals(("torch-fp32", "torch-int8")), (Shape(1, 16), Shape(8, 16)))
    report = compare(result.packed, plan)
    seconds = time.monotonic() - started
    if json:
        accuracy = {"bag of words": words, "full_precision": result.teacher, **result.students, PACKED: engine}
        print_json(
            {"accuracy": accuracy, "bench": report.to_dict(), "seconds": round(seconds, 1), "folder": str(output)}
        )
        return
    print_table(_table(result, words, engine, output))
    print_table(bench_table(result.packed, report))
    warn_if_busy(report)
    for text, answer in zip(result.dev.texts[:SHOWN], answers[:SHOWN], strict=True):
        say(f'bibert predict --model {result.packed} "{text}": {answer["label"]} ({answer["score"]:.2f})')
    say(f"{seconds:.0f} s; models and logs are in {output}. Next, on your own data: bibert train --help")


def _table(result: "Quickstart", words: float, engine: float, output: Path) -> Table:
    table = Table("model", "bits W-E-A", "attention", "dev accuracy %", "where", title="quickstart")
    table.add_row("bag of words (TF-IDF)", "", "none", f"{100 * words:.1f}", "")
    rows = {"full_precision": (result.teacher, "teacher")}
    rows |= {name: (accuracy, name) for name, accuracy in result.students.items()}
    for name, (accuracy, folder) in rows.items():
        scheme = get_scheme(name)
        form = "softmax" if scheme.normalizer == "softmax" else "Bi-Attention"
        quantized = form if scheme.attention == "none" or form != "softmax" else f"{scheme.attention}({form})"
        table.add_row(name, str(scheme.bits), quantized, f"{100 * accuracy:.1f}", str(output / folder / RUN_MODEL))
    table.add_row(PACKED, "1-1-1", "Bi-Attention", f"{100 * engine:.1f}", str(result.packed))
    return table

"""`bibert quickstart`: the whole method in a few minutes, on generated data."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say
from bibert.cli.options import Json, require_torch
from bibert.lab.cli.bench import bench_table, warn_if_busy
from bibert.nn import RUN_MODEL
from bibert.nn.schemes import get_scheme
from bibert.training.recipe import SEEDS

BY_THE_ENGINE = "bibert, packed"
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
    from bibert.data.metrics import score
    from bibert.data.synthetic import synthetic_reviews
    from bibert.lab.quickstart import DEV_ROWS, PACKED, TRAIN_ROWS
    from bibert.lab.quickstart import quickstart as run
    from bibert.lab.rivals.benchmark import Plan, compare
    from bibert.lab.rivals.engines import Shape, get_rivals
    from bibert.runtime.classifier import load
    from bibert.training.floor import bag_of_words

    say(f"generating {TRAIN_ROWS} training sentences and {DEV_ROWS} to score on, seed {seed}")
    started = time.monotonic()
    data = synthetic_reviews(TRAIN_ROWS, DEV_ROWS, seed)
    learned = run(data, output, lambda title: [TrainingProgress(title)], seed)
    dev, packed = data.dev["dev"], output / PACKED
    words = float(bag_of_words(data.train).score(dev.joined_texts, dev.labels))
    classifier = load(packed)
    engine = score(classifier.logits(dev.texts), dev.labels, ["accuracy"])["accuracy"]
    accuracy = {"bag of words": words, "full_precision": learned.pop("teacher"), **learned, BY_THE_ENGINE: engine}
    plan = Plan(get_rivals(("torch-fp32", "torch-int8")), (Shape(1, 16), Shape(8, 16)))
    report = compare(packed, plan)
    seconds = time.monotonic() - started
    if json:
        print_json(
            {"accuracy": accuracy, "bench": report.to_dict(), "seconds": round(seconds, 1), "folder": str(output)}
        )
        return
    print_table(_table(accuracy, output, packed))
    print_table(bench_table(packed, report))
    warn_if_busy(report)
    for text, answer in zip(dev.texts[:SHOWN], classifier.predict(dev.texts[:SHOWN]), strict=True):
        say(f'bibert predict --model {packed} "{text}": {answer["label"]} ({answer["score"]:.2f})')
    say(f"{seconds:.0f} s; models and logs are in {output}. Next, on your own data: bibert train --help")


def _table(accuracy: Mapping[str, float], output: Path, packed: Path) -> Table:
    table = Table("model", "bits W-E-A", "attention", "dev accuracy %", "where", title="quickstart")
    percent = {name: f"{100 * share:.1f}" for name, share in accuracy.items()}
    table.add_row("bag of words (TF-IDF)", "", "none", percent.pop("bag of words"), "")
    engine = percent.pop(BY_THE_ENGINE)
    for name, cell in percent.items():
        scheme = get_scheme(name)
        form = "softmax" if scheme.normalizer == "softmax" else "Bi-Attention"
        quantized = form if scheme.attention == "none" or form != "softmax" else f"{scheme.attention}({form})"
        folder = output / (name if scheme.is_quantized else "teacher") / RUN_MODEL
        table.add_row(name, str(scheme.bits), quantized, cell, str(folder))
    table.add_row(BY_THE_ENGINE, "1-1-1", "Bi-Attention", engine, str(packed))
    return table

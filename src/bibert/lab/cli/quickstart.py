"""`bibert quickstart`: the whole method in a few minutes, on generated data."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table, say
from bibert.cli.options import Json, require_torch
from bibert.lab.cli.bench import bench_table, warn_if_busy
from bibert.nn.schemes import get_scheme
from bibert.training.recipe import SEEDS

SHOWN = 3  # sentences whose answers are shown


def quickstart(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the models and logs.")] = Path("quickstart"),
    seed: Annotated[int, typer.Option(min=0, max=SEEDS - 1, help="Seed of the sentences and the weights.")] = 0,
    json: Json = False,
) -> None:
    """See it work: a small teacher, and 1-bit students at each position of the dial. Needs no data, no download.

    The sentences are generated, with negation, contrast and word order, so that counting words is not enough.
    """
    require_torch("bibert quickstart")
    from bibert.cli.progress import TrainingProgress
    from bibert.data.metrics import score
    from bibert.lab.quickstart import DEV_ROWS, STUDENTS, TRAIN_ROWS, packed_file
    from bibert.lab.quickstart import quickstart as run
    from bibert.lab.rivals.benchmark import Plan, compare
    from bibert.lab.rivals.engines import Shape, get_rivals
    from bibert.lab.synthetic import synthetic_reviews
    from bibert.runtime.classifier import load
    from bibert.training.floor import bag_of_words

    say(f"generating {TRAIN_ROWS} training sentences and {DEV_ROWS} to score on, seed {seed}")
    started = time.monotonic()
    data = synthetic_reviews(TRAIN_ROWS, DEV_ROWS, seed)
    dev = data.dev["dev"]
    words = float(bag_of_words(data.train).score(dev.joined_texts, dev.labels))
    teacher = run(data, output, lambda title: [TrainingProgress(title)], seed)
    accuracy = {"bag of words": words, "full_precision": teacher}
    table = Table("model", "bits W-E-A", "dev accuracy %", "file", title="quickstart")
    table.add_row("bag of words (TF-IDF)", "", f"{100 * words:.1f}", "")
    table.add_row("full_precision", "32-32-32", f"{100 * teacher:.1f}", str(output / "teacher"))
    for scheme in STUDENTS:
        packed = packed_file(output, scheme)
        classifier = load(packed)
        accuracy[scheme] = score(classifier.logits(dev.texts), dev.labels, ["accuracy"])["accuracy"]
        table.add_row(scheme, str(get_scheme(scheme).bits), f"{100 * accuracy[scheme]:.1f}", str(packed))
    report = compare(packed, Plan(get_rivals(("torch-fp32", "torch-int8")), (Shape(1, 16), Shape(8, 16))))
    seconds = time.monotonic() - started
    if json:
        print_json(
            {"accuracy": accuracy, "bench": report.to_dict(), "seconds": round(seconds, 1), "folder": str(output)}
        )
        return
    print_table(table)
    print_table(bench_table(packed, report))
    warn_if_busy(report)
    for text, answer in zip(dev.texts[:SHOWN], classifier.predict(dev.texts[:SHOWN]), strict=True):
        say(f'bibert predict --model {packed} "{text}": {answer["label"]} ({answer["score"]:.2f})')
    say(f"{seconds:.0f} s; models and logs are in {output}. Next, on your own data: bibert train --help")

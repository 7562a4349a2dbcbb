"""How fast is a distillation step? Ratios of steps that take turns on the same rows of SST-2.

1. Padding: the same rows padded to the longest of the batch (length-grouped batches) and to a fixed 64 tokens.
2. Distillation: teacher forward, student forward and backward and losses, against a full-precision fine-tuning
   step (forward and backward) on the same batch; once without and once with the optimizer's update.
3. Products in bfloat16 (`--set precision=bfloat16`) against float32, for fine-tuning and for distillation.
4. A probe of the student (`bibert distill --probe-every`) on its 32 texts, against a distillation step.

Every round runs each variant once, so that a slow moment of the machine hits all of them; the figures are medians of
the ratios within a round. Peak memory is that of a process that runs one variant alone.

    python benchmarks/training_step.py --checkpoint path/to/bert --glue path/to/glue [--rounds 30]
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tables
import torch
from torch import Tensor, nn

from bibert import machine
from bibert.data.encoding import Collator, EncodedSplit, LengthGroupedSampler, encode
from bibert.data.glue import load_glue
from bibert.distill.objective import Objective, match_layers
from bibert.lab.probe import Probe, probe_batch
from bibert.nn.checkpoint import load_classifier
from bibert.nn.schemes import get_scheme
from bibert.nn.students import binarize
from bibert.training.loop import dropout_overrides, products_in
from bibert.training.optimizer import make_optimizer
from bibert.training.recipe import Precision, Recipe
from bibert.training.student import FrozenTeacher

RESULTS = Path(__file__).parent / "results" / "training_step.json"
FIXED_LENGTH = 64
RECIPE = Recipe(batch_size=32, max_length=FIXED_LENGTH)
Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Bench:
    """The inputs of every variant."""

    checkpoint: Path
    rows: EncodedSplit
    batches: list[list[int]]
    pad_token_id: int

    def batch(self, number: int, pad_to: int | None) -> Batch:
        """One batch of the epoch."""
        rows = [self.rows[row] for row in self.batches[number % len(self.batches)]]
        batch = Collator(self.pad_token_id)(rows)
        missing = 0 if pad_to is None else pad_to - batch["input_ids"].shape[1]
        padding = {"input_ids": self.pad_token_id, "attention_mask": 0, "token_type_ids": 0}
        padded = {name: nn.functional.pad(batch[name], (0, missing), value=one) for name, one in padding.items()}
        return batch | padded


def prepare(checkpoint: Path, glue: Path, seed: int) -> Bench:
    """Encode SST-2 and group it into batches by length, as training does."""
    data = load_glue("SST-2", glue)
    tokenizer = load_classifier(checkpoint, data.label_names).tokenizer
    rows = encode(data.train, tokenizer, FIXED_LENGTH)
    order = list(LengthGroupedSampler(rows.lengths, RECIPE.batch_size, seed))
    batches = [order[start : start + RECIPE.batch_size] for start in range(0, len(order), RECIPE.batch_size)]
    return Bench(checkpoint, rows, batches[:-1], tokenizer.pad_token_id)


Step = Callable[[int], None]


def finetune_step(bench: Bench, update: bool, precision: Precision = "float32") -> Step:
    """Forward and backward of the full-precision model."""
    model = load_classifier(bench.checkpoint, ("negative", "positive"), dropout_overrides(RECIPE)).model.train()
    optimizer = make_optimizer(model, RECIPE)

    def step(number: int) -> None:
        optimizer.zero_grad()
        with products_in(precision, "cpu"):
            loss = model(**bench.batch(number, None)).loss
        loss.backward()
        if update:
            optimizer.step()

    return step


def distill_step(
    bench: Bench, scheme: str, update: bool, pad_to: int | None = None, precision: Precision = "float32"
) -> Step:
    """Teacher forward, student forward and backward, losses."""
    classifier = load_classifier(bench.checkpoint, ("negative", "positive"), dropout_overrides(RECIPE))
    teacher = FrozenTeacher(classifier.model)
    student = binarize(classifier.model, scheme).train()
    objective = Objective(get_scheme(scheme).schedule[0].weights)
    match = match_layers(student, teacher.model)
    optimizer = make_optimizer(student, RECIPE)

    def step(number: int) -> None:
        batch = bench.batch(number, pad_to)
        labels = batch.pop("labels")
        optimizer.zero_grad()
        with products_in(precision, "cpu"):
            learned, taught = student(**batch, trace=objective.trace), teacher(batch, trace=objective.trace)
        objective(learned, taught, labels, match).total.backward()
        if update:
            optimizer.step()

    return step


def probe_look(bench: Bench, scheme: str) -> Step:
    """A probe of a student, as in training; it has its own batch."""
    classifier = load_classifier(bench.checkpoint, ("negative", "positive"))
    student = binarize(classifier.model, scheme).train()
    batch = probe_batch(bench.rows, bench.pad_token_id)
    probe = Probe(Path("unused"), "dmd", 1, classifier.model, batch)

    def step(number: int) -> None:  # noqa: ARG001
        probe.look(student)

    return step


VARIANTS: dict[str, Callable[[Bench], Step]] = {
    "finetune": lambda bench: finetune_step(bench, update=False),
    "finetune, with update": lambda bench: finetune_step(bench, update=True),
    "bibert": lambda bench: distill_step(bench, "bibert", update=False),
    "bibert, with update": lambda bench: distill_step(bench, "bibert", update=True),
    "finetune, bfloat16": lambda bench: finetune_step(bench, update=True, precision="bfloat16"),
    "bibert, bfloat16": lambda bench: distill_step(bench, "bibert", update=True, precision="bfloat16"),
    "bibert, fixed 64": lambda bench: distill_step(bench, "bibert", update=False, pad_to=FIXED_LENGTH),
    "baseline": lambda bench: distill_step(bench, "baseline", update=False),
    "look": lambda bench: probe_look(bench, "bibert"),
}
RATIOS = {
    "bibert distillation / fine-tuning": ("bibert", "finetune"),
    "the same with the optimizer's update": ("bibert, with update", "finetune, with update"),
    "baseline distillation / fine-tuning": ("baseline", "finetune"),
    "fine-tuning in float32 / with products in bfloat16, with update": ("finetune, with update", "finetune, bfloat16"),
    "bibert distillation in float32 / in bfloat16, with update": ("bibert, with update", "bibert, bfloat16"),
    "samples/s with dynamic padding / fixed to 64": ("bibert, fixed 64", "bibert"),
    "a look into the student / a step of its distillation": ("look", "bibert, with update"),
}


def time_rounds(bench: Bench, rounds: int, seed: int) -> dict[str, list[float]]:
    """Seconds of each variant, round by round, on the same randomly drawn batches."""
    steps = {name: make(bench) for name, make in VARIANTS.items()}
    numbers = np.random.default_rng(seed).integers(len(bench.batches), size=rounds + 2)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in numbers.tolist():
        for name, step in steps.items():
            start = time.perf_counter()
            step(number)
            seconds[name].append(time.perf_counter() - start)
    return {name: values[2:] for name, values in seconds.items()}  # the first two rounds warm up


def summarize(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Median and quartiles of the ratios, and the ratio of the sums, which suits padding: texts differ in length."""
    ratios = {}
    for title, (above, below) in RATIOS.items():
        values = [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
        low, middle, high = statistics.quantiles(values, n=4)
        ratios[title] = {
            "median": middle,
            "quartiles": [low, high],
            "of_totals": sum(seconds[above]) / sum(seconds[below]),
        }
    return {"ratios": ratios, "median_seconds": {name: statistics.median(v) for name, v in seconds.items()}}


def peak_memory_alone(checkpoint: Path, glue: Path, variant: str, seed: int) -> float:
    """Peak memory of a fresh process that runs one variant for five steps."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak_of, checkpoint, glue, variant, seed).result()


def _peak_of(checkpoint: Path, glue: Path, variant: str, seed: int) -> float:
    torch.set_num_threads(1)
    bench = prepare(checkpoint, glue, seed)
    step = VARIANTS[variant](bench)
    for number in range(5):
        step(number)
    return machine.peak_memory_bytes() / 1e6


def main() -> None:
    """Measure, write the results file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = prepare(options.checkpoint, options.glue, options.seed)
    results = summarize(time_rounds(bench, options.rounds, options.seed))
    memory = ("finetune, with update", "bibert, with update", "bibert, fixed 64")
    results["peak_memory_mb"] = {
        name: peak_memory_alone(options.checkpoint, options.glue, name, options.seed) for name in memory
    }
    command = f"python benchmarks/training_step.py --checkpoint <MiniLM-L6> --glue <GLUE> --rounds {options.rounds}"
    about = machine.about(["torch"])
    torch_version = about.pop("versions")["torch"]
    results["about"] = {"command": command, "threads": 1, "seed": options.seed, **about, "torch": torch_version}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(tables.training_step(results))


if __name__ == "__main__":
    main()

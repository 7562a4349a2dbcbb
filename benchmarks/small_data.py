"""What `bibert train FILE` gives on small tasks, beside a bag of words: all rows of each task, and 450 of them.

    python benchmarks/small_data.py path/to/tasks --threads 2

A task is a folder with train.csv and test.csv. The command has no options but the files, so dev rows come out of the
training file; test rows are read once, at the end. The bag of words learns from all rows of the file.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from bibert import machine
from bibert.data.columns import Columns
from bibert.data.examples import TextData
from bibert.data.tables import classes_of, load_split, metrics_for, read_table
from bibert.files import load_json, save_json
from bibert.training.floor import words_alone

TASKS = ("trec", "sms_spam", "tweet_emotion", "clinc150")
FEW = 450
SEED = 0


def main() -> None:
    """Train on every task, with all rows and with few, and add to the results file after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder of the tasks.")
    parser.add_argument("--task", action="append", choices=TASKS, help="Only this one; may be repeated.")
    parser.add_argument("--only", choices=("few", "all"), help="Only with few rows, or only with all.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--option", action="append", default=[], help="A word to add to the command.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "small_data.json")
    arguments = parser.parse_args()
    for task in arguments.task or TASKS:
        for few in {"few": (True,), "all": (False,), None: (True, False)}[arguments.only]:
            with tempfile.TemporaryDirectory() as scratch:
                row = trained(arguments.folder / task, few, Path(scratch), arguments)
            known = load_json(arguments.output) or {"rows": []}
            others = [one for one in known["rows"] if (one["task"], one["few"]) != (task, few)]
            save_json(arguments.output, {"rows": [*others, row]})
            print(json.dumps(row), flush=True)


def trained(task: Path, few: bool, scratch: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the command on one file; the metrics of the test rows."""
    train, test = task / "train.csv", task / "test.csv"
    if few:
        train = some_rows(train, scratch / "train.csv")
    command = ["train", str(train), "--test", str(test), "--json", "-o", str(scratch / "run"), *arguments.option]
    variables = {"OMP_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "false"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bibert", *command], env=os.environ | variables, stdout=subprocess.PIPE, check=True
    )
    seconds = time.monotonic() - began
    tables = json.loads(done.stdout)
    name = list(tables)[-1]
    return {
        "task": task.name,
        "few": few,
        "rows": len(read_table(train)),
        "model": name,
        "metrics": tables[name]["metrics"],
        "bag_of_words": words(train, test),
        "minutes": round(seconds / 60, 1),
        "threads": arguments.threads,
        "options": arguments.option,
        "seed": 42,  # of the recipe; SEED chooses rows
        **machine.about(("torch",)),
    }


def some_rows(source: Path, target: Path) -> Path:
    """Write a random sample in which every class has its share, and at least three rows."""
    with source.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    by_label = defaultdict(list)
    for number, row in enumerate(rows):
        by_label[row["label"]].append(number)
    generator = np.random.default_rng(SEED)
    chosen: list[int] = []
    for label in sorted(by_label):
        share = max(3, round(FEW * len(by_label[label]) / len(rows)))
        chosen += generator.permutation(by_label[label])[:share].tolist()
    with target.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, ("text", "label"))
        writer.writeheader()
        writer.writerows(rows[number] for number in sorted(chosen))
    return target


def words(train: Path, test: Path) -> dict[str, float]:
    """The metrics of a bag of words that learned from every row of the training file."""
    names = classes_of(read_table(train), "label")
    learned, held_out = (load_split(path, Columns("text", "", "label"), names) for path in (train, test))
    return words_alone(TextData(train.parent.name, learned, {"test": held_out}, names, metrics_for(names), train))


if __name__ == "__main__":
    main()

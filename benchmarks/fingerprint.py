"""Fingerprint of what a refactoring must not change: logits, trained weights, public API, command-line options.

    python benchmarks/fingerprint.py --glue GLUE -o before.json     # then change the code, run again, and diff

Logits are those of the shipped model on SST-2's dev rows, for every instruction set of this CPU. Weights are those of
the quickstart's runs, once undisturbed and once with each run killed (SIGKILL) and resumed. They depend on the
CPU and the torch version: compare files of one machine only.
"""

import argparse
import csv
import hashlib
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LOGITS = """
import hashlib, json, sys, bibert
texts = json.load(sys.stdin)
logits = bibert.load("sst2").logits(texts)
print(hashlib.sha256(logits.astype("<f4").tobytes()).hexdigest())
"""
RUNS = ("teacher", "bibert", "bibert_2", "bibert_4")


def sha256(path: Path) -> str:
    """Digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def logits(glue: Path) -> dict[str, str]:
    """Digest of the logits of every dev row, one per instruction set."""
    from bibert.runtime.native import available_isas

    with (glue / "SST-2" / "dev.tsv").open(encoding="utf-8", newline="") as file:
        texts = [row["sentence"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    found = {}
    for isa in available_isas():
        command = [sys.executable, "-c", LOGITS]
        environment = {**os.environ, "BIBERT_ISA": isa}
        done = subprocess.run(
            command, input=json.dumps(texts), env=environment, capture_output=True, text=True, check=True
        )
        found[isa] = done.stdout.strip()
    return found


def quickstart(folder: Path, *, kill: bool) -> dict[str, str]:
    """Digest of the weights of the quickstart's runs and of its packed files; `kill` ends each run once, half-way."""
    command = [sys.executable, "-m", "bibert", "quickstart", "-o", str(folder), "--json"]
    for run in RUNS if kill else ():
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list((folder / run).glob("**/checkpoint-*/trainer_state.json")):
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    files = {run: folder / run / "model" / "model.safetensors" for run in RUNS}
    files |= {f"{run}, packed": folder / f"{run}.bibert" for run in RUNS[1:]}
    return {name: sha256(file) for name, file in files.items()}


def api() -> dict[str, str]:
    """Signature of every public name, and of the public methods of every public class."""
    package, found = importlib.import_module("bibert"), {}
    for name in package.__all__:
        value = getattr(package, name)
        found[name] = _signature(value)
        if inspect.isclass(value):
            methods = [key for key, method in vars(value).items() if not key.startswith("_") and callable(method)]
            found |= {f"{name}.{key}": _signature(getattr(value, key)) for key in methods}
    return found


def options() -> dict[str, dict[str, str]]:
    """Type and default of every option of every command."""
    import typer

    from bibert.cli.app import COMMANDS, app

    group = typer.main.get_command(app)
    found: dict[str, dict[str, str]] = {}
    for name in COMMANDS:
        group.resolve_command(None, [name])  # imports the real command
        _add_options(name, group.commands[name], found)
    return found


def _add_options(name: str, command: Any, found: dict[str, dict[str, str]]) -> None:
    for child, sub in getattr(command, "commands", {}).items():
        _add_options(f"{name} {child}", sub, found)
    found[name] = {
        "/".join((*one.opts, *one.secondary_opts)): f"{one.type_descriptor.annotation} {one.default!r}"
        for one in command.params
        if hasattr(one, "type_descriptor")  # not --help
    }


def _signature(value: Any) -> str:
    if not callable(value):
        return type(value).__name__
    try:
        return str(inspect.signature(value))
    except ValueError:  # built-in constructors, such as those of exceptions, have none
        return "class"


def main() -> None:
    """Write the fingerprint of this checkout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--glue", type=Path, required=True, help="folder with SST-2/dev.tsv")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--no-training", action="store_true", help="leave out the quickstart, which takes minutes")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"logits": logits(arguments.glue), "api": api(), "options": options()}
    if not arguments.no_training:
        with tempfile.TemporaryDirectory() as scratch:
            report["weights"] = quickstart(Path(scratch) / "whole", kill=False)
            report["weights, killed and resumed"] = quickstart(Path(scratch) / "killed", kill=True)
    arguments.output.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How fast and how large is a distillation beside that of another checkout? Two trainings that take turns.

Both checkouts run `distill` on the same batches of SST-2, each in a process of its own. One computes a step while the
other one waits, so that a slow moment of the machine hits both. Speed is a ratio of seconds, and of CPU seconds, which
other programs disturb less; peak memory is that of the whole process.

    python benchmarks/training_rival.py --checkpoint path/to/bert --glue path/to/glue --rival path/to/checkout/src
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "training_rival.json"
OURS = Path(__file__).parents[1] / "src"
SCHEMES = ("bibert", "bibert_4")
WARM_UP = 3  # steps that are not counted
CLOCKS = {"seconds": time.perf_counter, "CPU seconds": time.process_time}


def work(source: str, checkpoint: str, glue: str, scheme: str, threads: str, precision: Any) -> None:
    """Run a distillation with the package in `source`; compute a step for each line of the input."""
    # An editable install comes before sys.path.
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
    sys.path.insert(0, source)
    import torch
    from transformers import TrainerCallback

    from bibert import machine
    from bibert.data.glue import load_glue
    from bibert.nn.checkpoint import load_classifier
    from bibert.training.recipe import Recipe
    from bibert.training.run import save_classifier
    from bibert.training.student import distill

    assert machine.PACKAGE.is_relative_to(source), "the package of another checkout was imported"

    class Turns(TrainerCallback):  # type: ignore[misc]
        """Waits for its turn before each step, and reports what the step took."""

        start: dict[str, float] | None = None

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = self.start or self.turn()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            assert self.start is not None
            took = {name: clock() - self.start[name] for name, clock in CLOCKS.items()}
            print(json.dumps(took | {"peak": machine.peak_memory_bytes(), "commit": machine.commit()}), flush=True)
            self.start = self.turn()

        def turn(self) -> dict[str, float]:
            if not sys.stdin.readline():
                raise SystemExit
            return {name: clock() for name, clock in CLOCKS.items()}

    torch.set_num_threads(int(threads))
    recipe = Recipe(batch_size=32, max_length=64, learning_rate=1e-3, eval_every=10**6, precision=precision)
    with tempfile.TemporaryDirectory() as scratch:
        teacher, data = Path(scratch) / "teacher", load_glue("SST-2", Path(glue))
        torch.manual_seed(0)  # of the classifier
        save_classifier(load_classifier(checkpoint, data.label_names), teacher)
        distill(teacher, scheme, data, Path(scratch) / "run", recipe, callbacks=[Turns()])


class Worker:
    """A training in a process of its own."""

    def __init__(self, source: Path, *arguments: str) -> None:
        command = [sys.executable, __file__, "work", str(source.resolve()), *arguments]
        # On a busy machine threads that spin while they wait would count as CPU seconds.
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.steps: list[dict[str, Any]] = []

    def step(self) -> None:
        """Let it compute one step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.steps.append(json.loads(self.process.stdout.readline()))


def measure(ours: Worker, rival: Worker, steps: int) -> dict[str, Any]:
    """Let both compute their steps in turn."""
    for number in range(steps + WARM_UP):
        for worker in (ours, rival) if number % 2 else (rival, ours):
            worker.step()
    for worker in (ours, rival):
        worker.process.communicate()  # the end of its input ends it
    return summarize(ours.steps[WARM_UP:], rival.steps[WARM_UP:])


def summarize(ours: list[dict[str, Any]], rival: list[dict[str, Any]]) -> dict[str, Any]:
    """How many times as fast we are, by each clock, and the peak memory of both."""
    found: dict[str, Any] = {}
    for clock in CLOCKS:
        ratios = [theirs[clock] / mine[clock] for mine, theirs in zip(ours, rival, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        of_totals = sum(step[clock] for step in rival) / sum(step[clock] for step in ours)
        found[clock] = {"median": middle, "quartiles": [low, high], "of_totals": of_totals}
    return {"speed": found, "peak_memory_mb": [steps[-1]["peak"] / 1e6 for steps in (ours, rival)]}


def main() -> None:
    """Measure, write the results file, print the table."""
    import tables

    from bibert import machine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--rival", type=Path, required=True, help="the folder src of the other checkout")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="fastest", help="ours; the rival's is bfloat16")
    options = parser.parse_args()
    results: dict[str, Any] = {"schemes": {}}
    for scheme in SCHEMES:
        arguments = (str(options.checkpoint), str(options.glue), scheme, str(options.threads))
        ours = Worker(OURS, *arguments, options.precision)
        rival = Worker(options.rival, *arguments, "bfloat16")
        results["schemes"][scheme] = measure(ours, rival, options.steps)
        results["rival"] = rival.steps[-1]["commit"]
    shown = f"--checkpoint <MiniLM-L6> --glue <GLUE> --rival <src> --steps {options.steps} --threads {options.threads}"
    about = machine.about(["torch"])
    results["about"] = {"command": f"python benchmarks/training_rival.py {shown}", **about}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(tables.training_rival(results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    else:
        main()

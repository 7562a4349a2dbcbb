"""The tables of benchmarks/README.md are the ones that the results files give."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TABLE = r"<!-- results/{name}\.json -->\n(.*?)\n<!-- end -->"


def load(name):
    """A script of the folder as a module; scripts import their neighbours by bare name."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("name", ["training_step", "engine"])
def test_a_table_is_made_from_its_results_file(name):
    results = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))
    readme = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    shown = re.search(TABLE.format(name=name), readme, flags=re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == load(name).render(results)


def test_a_slow_moment_of_the_machine_hits_all_variants_of_a_round_and_cancels():
    script = load("training_step")
    alone = {"finetune": [1.0, 1.0, 5.0], "bibert": [1.5, 1.5, 7.5]}
    alone |= {name: [1.0, 1.0, 5.0] for name in script.VARIANTS if name not in alone}
    ratio = script.summarize(alone)["ratios"]["bibert distillation / fine-tuning"]
    assert ratio["median"] == 1.5
    assert ratio["quartiles"] == [1.5, 1.5]


def test_an_engine_that_was_not_run_is_in_the_table_with_the_reason():
    missing = {"name": "openvino-int8", "note": "not installed: pip install openvino nncf", "timings": {}}
    ratio = {"median": 6.25, "low": 6.0, "high": 6.5}
    timings = {"1x128": {"median_ms": 12.5, "best_ms": 12.0, "ratio": ratio}}
    run = {"name": "onnx-int8", "note": "", "file_bytes": 23_200_000, "peak_bytes": 147_800_000, "timings": timings}
    machine = {
        "versions": {},
        "commit": "abc",
        "cpu": "a CPU",
        "isa": "avx2",
        "threads": 1,
        "python": "3",
        "date": "today",
    }
    results = {"machine": machine, "least_cpu_share": 1.0, "command": "run"}
    results |= {"shapes": ["1x128"], "architectures": {"A": [missing, run]}}
    assert load("engine").render(results).splitlines()[:4] == [
        "| A | file MB | memory MB | 1x128 ms |",
        "| --- | --- | --- | --- |",
        "| openvino-int8 | not installed: pip install openvino nncf |  |  |",
        "| onnx-int8 | 23.2 | 147.8 | 12.50, x6.2 (6.0-6.5) |",
    ]

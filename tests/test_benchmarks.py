"""The tables of benchmarks/README.md are the ones that the results files give."""

import importlib.util
import json
import re
import sys
from pathlib import Path

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


def test_the_table_of_training_steps_is_made_from_its_results_file():
    script = load("training_step")
    results = json.loads((BENCHMARKS / "results" / "training_step.json").read_text(encoding="utf-8"))
    readme = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    shown = re.search(TABLE.format(name="training_step"), readme, flags=re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == script.render(results)


def test_a_slow_moment_of_the_machine_hits_all_variants_of_a_round_and_cancels():
    script = load("training_step")
    alone = {"finetune": [1.0, 1.0, 5.0], "bibert": [1.5, 1.5, 7.5]}
    alone |= {name: [1.0, 1.0, 5.0] for name in script.VARIANTS if name not in alone}
    ratio = script.summarize(alone)["ratios"]["bibert distillation / fine-tuning"]
    assert ratio["median"] == 1.5
    assert ratio["quartiles"] == [1.5, 1.5]

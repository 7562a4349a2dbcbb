"""How fast is a packed model beside torch, ONNX Runtime and OpenVINO? Three architectures, four batches.

The models have random weights, because the time of a forward pass does not depend on them; nothing here is about
accuracy. All engines take turns in one process on the same ids, without padding; `bibert bench` does the same for a
file of yours, and bibert.lab.rivals says how. Rivals come with `pip install 'bibert[bench]'`.

    python benchmarks/engine.py [--rounds 15] [--threads 1] [--rival openvino-int8] [--output results.json]
"""

import argparse
import json
import tempfile
from math import floor
from pathlib import Path
from typing import Any

from bibert.cli.console import say, tracked
from bibert.lab.architecture import ARCHITECTURES
from bibert.lab.packed_cost import config_of_shape
from bibert.lab.rivals.benchmark import Plan, compare
from bibert.lab.rivals.inputs import Shape
from bibert.lab.rivals.models import random_packed
from bibert.lab.rivals.table import OURS, RIVALS, get_rivals
from bibert.packed.file import save

RESULTS = Path(__file__).parent / "results" / "engine.json"
SHAPES = (Shape(1, 128), Shape(1, 32), Shape(8, 128), Shape(32, 64))
MB = 1e6


MODELS = {"12 x 768 (BERT base)": "bert-base", "6 x 384 (MiniLM-L6)": "minilm-l6", "4 x 312 (TinyBERT-4L)": "4L"}


def measure(plan: Plan) -> dict[str, Any]:
    """Compare on every architecture."""
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.bibert"
        for name, architecture in MODELS.items():
            say(name)
            save(random_packed(config_of_shape(ARCHITECTURES[architecture])), path)
            reports[name] = compare(path, plan, tracked).to_dict()
    first = next(iter(reports.values()))
    return {
        "machine": first["machine"],
        "rounds": first["rounds"],
        "shapes": first["shapes"],
        "least_cpu_share": min(share for report in reports.values() for share in report["cpu_share"].values()),
        "architectures": {name: report["engines"] for name, report in reports.items()},
    }


def render(results: dict[str, Any]) -> str:
    """The results as Markdown: a table for each architecture, then where they come from."""
    tables = [_table(name, engines, results["shapes"]) for name, engines in results["architectures"].items()]
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if name != OURS)
    origin = (
        f"{results['command']}; commit {machine['commit']}, {machine['cpu']} ({machine['isa']}), "
        f"threads: {machine['threads']}, never less than {floor(100 * results['least_cpu_share'])}% of a CPU, "
        f"Python {machine['python']}, {versions}, {machine['date']}."
    )
    return "\n\n".join([*tables, origin])


def _table(name: str, engines: list[dict[str, Any]], shapes: list[str]) -> str:
    heads = [name, "file MB", "memory MB", *(f"{shape} ms" for shape in shapes)]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for engine in engines:
        times = [_time(engine, shape) for shape in shapes]
        lines.append(_row([engine["name"], *_megabytes(engine), *times]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _megabytes(engine: dict[str, Any]) -> list[str]:
    if engine["note"]:
        return [engine["note"], ""]
    return [f"{engine[field] / MB:.1f}" for field in ("file_bytes", "peak_bytes")]


def _time(engine: dict[str, Any], shape: str) -> str:
    timing = engine["timings"].get(shape)
    if timing is None:
        return ""
    median, ratio = f"{timing['median_ms']:.2f}", timing["ratio"]
    if engine["name"] == OURS:
        return median
    return f"{median}, x{ratio['median']:.1f} ({ratio['low']:.1f}-{ratio['high']:.1f})"


def main() -> None:
    """Run, write the results file, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rival", action="append", default=[], help=f"of {', '.join(RIVALS)}; may be repeated")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = measure(Plan(get_rivals(options.rival), SHAPES, options.rounds, options.threads))
    command = f"python benchmarks/engine.py --rounds {options.rounds} --threads {options.threads}"
    results["command"] = " ".join([command, *(f"--rival {name}" for name in options.rival)])
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(render(results))


if __name__ == "__main__":
    main()

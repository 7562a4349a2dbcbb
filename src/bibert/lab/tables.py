"""Our runs beside the figures that the paper prints: results files, tables in Markdown, and the bottlenecks.

`reproduce` trains and collects the runs. The bottlenecks (Section 3.1) are runs of `baseline(kept=...)` and
`baseline(without=...)`: the cost of binarizing one structure, and the value of one loss term.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bibert.data.glue import TASKS
from bibert.errors import DataError, did_you_mean, one_line
from bibert.files import write_whole
from bibert.lab.paper import BOTTLENECKS, TABLE_2, TABLE_3, TABLES, PaperTable
from bibert.training.recipe import with_defaults

RESULTS = "results.json"
TEACHER, BASELINE = "full_precision", "baseline"
BLANK = "–"
OTHER_DEPTH = " (12L)"
DEPTHS = {"bert-base": "BERT-base (12 x 768)", "6L": "6L (6 x 768)", "4L": "4L (4 x 312)"}
KEPT, WITHOUT = "kept", "without"
CHANGED = re.compile(rf"{BASELINE}\((?P<change>{KEPT}|{WITHOUT})=(?P<what>[^,()]+)\)")
# Texts in the dev sets of GLUE that are scored by accuracy.
DEV_TEXTS = {"sst2": 872, "mrpc": 408, "qqp": 40430, "mnli": 9815, "qnli": 5463, "rte": 277}


def get_table(name: str) -> PaperTable:
    """A table of the paper by its short name."""
    if name not in TABLES:
        raise DataError(f"there is no table {name!r}; {did_you_mean(name, TABLES)}")
    return TABLES[name]


@dataclass(frozen=True)
class Cell:
    """One finished run, with everything needed to run it again."""

    task: str  # the key of a GLUE task
    scheme: str  # its name; `full_precision` is the teacher
    augmented: bool  # whether the training file was not the task's own
    metrics: Mapping[str, float]  # of the best evaluation, on every dev split, as fractions
    best_step: int  # the optimizer step of that evaluation
    evaluations: Sequence[tuple[int, float]]  # step and selecting metric of each evaluation, in order
    recipe: Mapping[str, Any]  # every hyper-parameter, including the seed
    backbone: Mapping[str, int]  # layers, hidden size and heads
    origin: Mapping[str, Any]  # commit, versions, processor, date, digests of data and teacher, the start, stages

    @property
    def score(self) -> float:
        """The paper's metric of the task, in percent."""
        return 100 * self.metrics[f"dev_{TASKS[self.task].metrics[0]}"]

    @property
    def setting(self) -> dict[str, Any]:
        """What runs must share for their scores to be comparable: everything but scheme, seed and task."""
        start = {
            "augmented": self.augmented,
            "teacher": self.origin.get("teacher_sha256"),
            "started from another model": self.origin.get("start") is not None,
        }
        recipe = {key: value for key, value in with_defaults(self.recipe).items() if key != "seed"}
        return recipe | dict(self.backbone) | start

    @property
    def architecture(self) -> str:
        """The architecture of the paper that is as deep; BERT-base for any other depth."""
        return {6: "6L", 4: "4L"}.get(self.backbone["layers"], "bert-base")

    @property
    def start(self) -> str:
        """What the student was made from, in words; empty for its teacher."""
        start = self.origin.get("start")
        if start is None:
            return ""
        if "file" in start:
            return f"`{Path(start['file']).stem}`"
        if "scheme" not in start:
            return "another BERT than the teacher"
        kind = "a student of the same scheme" if start["scheme"] == self.scheme else f"a `{start['scheme']}`"
        return f"{kind}, trained on {start['data']['name']}"

    @property
    def steps(self) -> int:
        """Optimizer steps, of the last stage if the scheme has several."""
        return self.evaluations[-1][0]


def save_cells(path: Path, cells: Iterable[Cell], about: Mapping[str, Any]) -> None:
    """Write a results file atomically."""
    ordered = sorted(cells, key=lambda cell: (cell.task, cell.scheme, cell.recipe["seed"]))
    with write_whole(path) as file:
        json.dump({**about, "cells": [asdict(cell) for cell in ordered]}, file, indent=1)
        file.write("\n")


def load_cells(path: Path) -> list[Cell]:
    """The cells of a results file."""
    try:
        return [Cell(**cell) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; give the {RESULTS} of bibert reproduce") from None
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{path}: is not a results file of bibert reproduce ({one_line(error)})") from None


def mean_scores(cells: Sequence[Cell], task: str) -> dict[str, float]:
    """The score of each scheme on a task without augmentation, the mean over its seeds; runs must be comparable."""
    runs = [cell for cell in cells if cell.task == task and cell.scheme != TEACHER and not cell.augmented]
    for cell in runs:
        for key, value in runs[0].setting.items():
            other = cell.setting.get(key)
            if other != value:
                both = f"{runs[0].scheme} was run with {key} = {value}, {cell.scheme} with {other}"
                raise DataError(f"{TASKS[task].name}: {both}; only runs of one recipe are comparable")
    schemes = dict.fromkeys(cell.scheme for cell in runs)
    return {scheme: fmean(cell.score for cell in runs if cell.scheme == scheme) for scheme in schemes}


def markdown(cells: Sequence[Cell], table: PaperTable) -> str:
    """Our scores beside the paper's, two columns for every task, then in percent of the teacher's, then the budgets.

    A scheme whose students of one task were made from several models has a row for each of these.
    """
    tasks = [task for task in TASKS if any(cell.task == task for cell in cells)]
    places = {row.scheme: -place for place, row in enumerate(reversed(table.rows))}  # the others come last, by name
    teachers = {cell.task: cell.score for cell in cells if cell.scheme == TEACHER}
    scores, shares = [], []
    for scheme in sorted({cell.scheme for cell in cells}, key=lambda scheme: (places.get(scheme, 1), scheme)):
        trained = [cell for cell in cells if cell.scheme == scheme]
        starts: dict[str, list[Cell]] = {}
        if len({(cell.task, cell.start) for cell in trained}) == len({cell.task for cell in trained}):
            starts[""] = trained
        else:
            starts = {start: [c for c in trained if c.start == start] for start in sorted({c.start for c in trained})}
        for start, students in starts.items():
            head = [f"`{scheme}`" + f" from {start}" * bool(start), trained[0].origin["bits"]]
            runs = {task: [cell for cell in students if cell.task == task] for task in tasks}
            papers = [_paper_cell(found[0], table) if found else BLANK for found in runs.values()]
            scores.append([*head, *chain.from_iterable(zip(map(_scores, runs.values()), papers, strict=True))])
            pairs = (_shares(runs[task], teachers.get(task), table) for task in tasks)
            shares += [[*head, *chain.from_iterable(pairs)]] * (scheme != TEACHER)
    heads = ["scheme", "bits", *chain.from_iterable((f"{TASKS[task].name}, ours", "paper") for task in tasks)]
    parts = [markdown_table(heads, scores)]
    if teachers and shares and table.row(TEACHER):
        parts += ["In percent of the teacher's score, the paper's with 12 layers:", markdown_table(heads, shares)]
    return "\n\n".join([*parts, _budget(cells, tasks, table)]) + "\n"


def _shares(runs: Sequence[Cell], teacher: float | None, table: PaperTable) -> list[str]:
    """Scores in percent of the teacher's, ours and the paper's."""
    if not runs or teacher is None:
        return [BLANK, BLANK]
    papers = [row.scores.get(runs[0].task) for name in (runs[0].scheme, TEACHER) if (row := table.row(name))]
    student, full = papers if len(papers) > 1 else (None, None)
    return [_scores(runs, teacher), BLANK if student is None or full is None else f"{100 * student / full:.1f}"]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _scores(runs: Sequence[Cell], whole: float = 100.0) -> str:
    """Mean and range over several seeds, in percent of `whole`; runs by different recipes one by one."""
    scores = [100 * cell.score / whole for cell in runs]
    if not scores:
        return BLANK
    if len(scores) == 1 or any(cell.setting != runs[0].setting for cell in runs):
        return ", ".join(f"{score:.1f}" for score in scores)
    return f"{fmean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"


class Printed(NamedTuple):
    """A figure of the paper, with the table and the architecture it is printed for."""

    score: float
    table: str
    architecture: str


def printed(cell: Cell, table: PaperTable) -> Printed | None:
    """The paper's figure for a run: of its depth, else of BERT-base; of `table`, else of the GLUE tables."""
    column = "mnli_matched" if cell.task == "mnli" else cell.task
    for architecture in (cell.architecture, "bert-base"):
        for source in (table, TABLE_3 if cell.augmented else TABLE_2):
            row = source.row(cell.scheme, architecture, augmented=cell.augmented and cell.scheme != TEACHER)
            if row is not None and (figure := row.scores.get(column)) is not None:
                return Printed(figure, source.name, architecture)
    return None


def _paper_cell(cell: Cell, table: PaperTable) -> str:
    """The figure, marked if it is that of another depth."""
    paper = printed(cell, table)
    if paper is None:
        return BLANK
    return f"{paper.score:g}" + ("" if paper.architecture == cell.architecture else OTHER_DEPTH)


def _budget(cells: Sequence[Cell], tasks: Sequence[str], table: PaperTable) -> str:
    """The paper's tables, each with its tasks if there are several; backbones and recipes of the runs, task by task."""
    sources: dict[str, list[str]] = {}
    papers = {task: [printed(cell, table) for cell in cells if cell.task == task] for task in tasks}
    for task, found in papers.items():
        for source in {one.table for one in found if one is not None}:
            sources.setdefault(source, []).append(TASKS[task].name)
    several = ", ".join(f"{source} for {' and '.join(of)}" for source, of in sorted(sources.items()))
    paper = several if len(sources) > 1 else next(iter(sources), table.name)
    shapes = sorted({f"{cell.backbone['layers']} x {cell.backbone['hidden']}" for cell in cells})
    depths = sorted({DEPTHS[one.architecture] for found in papers.values() for one in found if one is not None})
    deeper = any(OTHER_DEPTH in _paper_cell(cell, table) for cell in cells)
    mark = "; 12L marks BERT-base, where the paper has no row as deep as ours" if deeper else ""
    if any(cell.scheme == TEACHER and cell.architecture != "bert-base" for cell in cells):
        mark += "; its full-precision 6L and 4L rows are TinyBERT's, from the GLUE test server"
    lines = [
        f"Paper: {paper}, {', '.join(depths) or DEPTHS['bert-base']}{mark}. Ours: {', '.join(shapes)}. Figures are the "
        "paper's metric in percent, on the dev set, at the best evaluation of the run."
    ]
    for task in tasks:
        students = [cell for cell in cells if cell.task == task and cell.scheme != TEACHER]
        budgets = sorted({_recipe_in_words(cell) for cell in students})
        metric = TASKS[task].metrics[0]
        lines.append(f"- {TASKS[task].name} ({metric}): {'; '.join(budgets) or 'the teacher alone'}.")
    return "\n".join(lines)


def _recipe_in_words(cell: Cell) -> str:
    recipe, stages = cell.recipe, cell.origin.get("stages", 1)
    epochs = "" if recipe["max_steps"] else f"{recipe['epochs']:g} epoch{'' if recipe['epochs'] == 1 else 's'}, "
    each = "" if stages == 1 else f"{stages} stages of "
    started = f"(initialised from {cell.start}) " if cell.start else ""
    mean = f"a running mean of the weights ({recipe['average']:g}), " if recipe.get("average") else ""
    products = f"products in {precision}, " if (precision := recipe.get("precision", "float32")) != "float32" else ""
    return (
        f"students {started}{each}{epochs}{cell.steps:,} steps of {recipe['batch_size']} texts, "
        f"learning rate {recipe['learning_rate']:g}, {mean}{products}seed {recipe['seed']}"
    )


@dataclass(frozen=True)
class Difference:
    """An accuracy in percent, its points above the baseline, and the standard error of these points."""

    accuracy: float
    points: float
    error: float


@dataclass(frozen=True)
class Effect:
    """One change of the baseline, the structure kept or the term left out: ours, and the paper's if it is printed."""

    scheme: str
    change: str
    what: str
    ours: Difference | None
    paper: Difference | None


@dataclass(frozen=True)
class Bottlenecks:
    """The changes of the baseline on a task."""

    texts: int  # in the dev set
    baseline: dict[str, float | None]  # its accuracy, ours and the paper's
    changes: list[Effect]


def load_bottlenecks(results: Path) -> dict[str, Bottlenecks]:
    """The bottlenecks in a results file or its folder, of tasks with a baseline and a change of it."""
    cells = load_cells(results / RESULTS if results.is_dir() else results)
    cells = [cell for cell in cells if cell.scheme == BASELINE or CHANGED.fullmatch(cell.scheme)]
    found = {}
    for task in DEV_TEXTS:
        ours = mean_scores(cells, task)
        if BASELINE in ours and len(ours) > 1:
            baseline = {"ours": ours[BASELINE], "paper": papers_accuracies(task).get(BASELINE)}
            found[task] = Bottlenecks(DEV_TEXTS[task], baseline, effects(task, ours))
    if not found:
        missing = f"has no {BASELINE} with one structure kept or one loss term left out"
        raise DataError(f"{results}: {missing}; run bibert reproduce --table bottlenecks")
    return found


def effects(task: str, ours: Mapping[str, float]) -> list[Effect]:
    """The changes of the baseline in the paper's order; `ours` are accuracies in percent, including the baseline's."""

    def difference(accuracies: Mapping[str, float], scheme: str) -> Difference | None:
        if scheme not in accuracies:
            return None
        accuracy, baseline = accuracies[scheme], accuracies[BASELINE]
        return Difference(accuracy, accuracy - baseline, standard_error(accuracy, baseline, DEV_TEXTS[task]))

    papers = papers_accuracies(task)
    found = []
    for scheme in dict.fromkeys([*BOTTLENECKS.schemes, *sorted(ours)]):
        match = CHANGED.fullmatch(scheme)
        if match and (scheme in ours or scheme in papers):
            both = difference(ours, scheme), difference(papers, scheme)
            found.append(Effect(scheme, match["change"], match["what"], *both))
    return found


def papers_accuracies(task: str) -> dict[str, float]:
    """The paper's accuracies of the baseline and its changes, by scheme; empty for a task without them."""
    scores = {row.scheme: row.scores.get(task) for row in BOTTLENECKS.rows}
    return {scheme: accuracy for scheme, accuracy in scores.items() if accuracy is not None}


def standard_error(one: float, other: float, texts: int) -> float:
    """Of the difference of two accuracies on `texts` texts, as if the two models erred independently.

    100·√((p(1 − p) + q(1 − q)) / n): the binomial errors of both. Two students of one teacher err alike, so the true
    error is smaller; run-to-run noise is not included.
    """
    variances = (share * (1 - share) for share in (one / 100, other / 100))
    return 100 * math.sqrt(sum(variances) / texts)

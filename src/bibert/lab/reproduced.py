"""Runs of ours beside the figures the paper prints for the same cells: a results file, and its table in Markdown.

A `Cell` is one finished run with everything needed to run it again. Cells are read from run folders and trained in
`reproduction`; the paper's own figures are in `analysis.paper`. Nothing here needs torch.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bibert.data.glue import TASKS
from bibert.errors import DataError, did_you_mean, one_line
from bibert.files import write_whole
from bibert.lab.paper import BOTTLENECKS, QUANTILES, STRENGTHENED, TABLE_1, TABLE_2, TABLE_3, VARIANTS, Table
from bibert.training.recipe import with_defaults

TABLES: Mapping[str, Table] = {
    "1": TABLE_1,
    "2": TABLE_2,
    "3": TABLE_3,
    "strengthened": STRENGTHENED,
    "quantiles": QUANTILES,
    "variants": VARIANTS,
    "bottlenecks": BOTTLENECKS,
}
TEACHER = "full_precision"
BLANK = "–"


def get_table(name: str) -> Table:
    """A table of the paper by its short name.

    Raises:
        DataError: there is no such table.
    """
    if name not in TABLES:
        raise DataError(f"there is no table {name!r}; {did_you_mean(name, TABLES)}")
    return TABLES[name]


@dataclass(frozen=True)
class Cell:
    """One finished run.

    Attributes:
        task: the key of a GLUE task.
        scheme: its name; `full_precision` is the teacher.
        augmented: whether the training file was another than the task's own.
        metrics: of the best evaluation, on every dev split, as fractions.
        best_step: the optimizer step of that evaluation.
        evaluations: step and selecting metric of each evaluation, in order.
        recipe: every hyper-parameter, the seed among them.
        backbone: layers, hidden size and heads.
        origin: commit, versions, processor, date, digests of data and teacher, what it started from, stages.
    """

    task: str
    scheme: str
    augmented: bool
    metrics: Mapping[str, float]
    best_step: int
    evaluations: Sequence[tuple[int, float]]
    recipe: Mapping[str, Any]
    backbone: Mapping[str, int]
    origin: Mapping[str, Any]

    @property
    def score(self) -> float:
        """The paper's metric of the task, in percent."""
        return 100 * self.metrics[f"dev_{TASKS[self.task].metrics[0]}"]

    @property
    def setting(self) -> dict[str, Any]:
        """What runs must share for their scores to be compared or averaged: all but scheme, seed and task."""
        begun = {
            "augmented": self.augmented,
            "teacher": self.origin.get("teacher_sha256"),
            "started from another model": self.origin.get("start") is not None,
        }
        recipe = {key: value for key, value in with_defaults(self.recipe).items() if key != "seed"}
        return recipe | dict(self.backbone) | begun

    @property
    def steps(self) -> int:
        """Optimizer steps, of the last stage where the scheme has several."""
        return self.evaluations[-1][0]


def save_cells(path: Path, cells: Iterable[Cell], about: Mapping[str, Any]) -> None:
    """Write a results file, whole or not at all."""
    ordered = sorted(cells, key=lambda cell: (cell.task, cell.scheme, cell.recipe["seed"]))
    with write_whole(path) as file:
        json.dump({**about, "cells": [asdict(cell) for cell in ordered]}, file, indent=1)
        file.write("\n")


def load_cells(path: Path) -> list[Cell]:
    """The cells of a results file.

    Raises:
        DataError: there is no such file, or it is not one that `save_cells` wrote.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return [Cell(**cell) for cell in values["cells"]]
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; give the results.json of bibert reproduce") from None
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(f"{path}: is not a results file of bibert reproduce ({one_line(error)})") from None


def mean_scores(cells: Sequence[Cell], task: str) -> dict[str, float]:
    """The score of each scheme on a task without augmentation, the mean of its seeds.

    Raises:
        DataError: two runs differ in more than scheme and seed, so that their scores cannot be compared.
    """
    runs = [cell for cell in cells if cell.task == task and cell.scheme != TEACHER and not cell.augmented]
    for cell in runs:
        for key, value in runs[0].setting.items():
            other = cell.setting.get(key)
            if other != value:
                raise DataError(
                    f"{TASKS[task].name}: {runs[0].scheme} was run with {key} = {value}, {cell.scheme} with {other}; "
                    "only runs of one recipe can be compared"
                )
    schemes = dict.fromkeys(cell.scheme for cell in runs)
    return {scheme: fmean(cell.score for cell in runs if cell.scheme == scheme) for scheme in schemes}


def markdown(cells: Sequence[Cell], table: Table) -> str:
    """Ours beside the paper's, one column of each for every task; then what was run for it."""
    tasks = [task for task in TASKS if any(cell.task == task for cell in cells)]
    head = ["scheme", "bits"]
    for task in tasks:
        head += [f"{TASKS[task].name}, ours", "paper"]
    lines = [head, ["---"] * len(head)]
    lines += [_line(scheme, cells, tasks, table) for scheme in _schemes(cells, table)]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{rows}\n\n{_budget(cells, tasks, table)}\n"


def printed(scheme: str, task: str, augmented: bool, table: Table) -> float | None:
    """The paper's figure for BERT-base: from `table`, or from its table of GLUE where that one has no such task."""
    source = _source(scheme, task, augmented, table)
    return None if source is None else _figure(source, scheme, task, augmented)


def _source(scheme: str, task: str, augmented: bool, table: Table) -> Table | None:
    """The table of the paper that has the figure."""
    sources = (table, TABLE_3 if augmented else TABLE_2)
    return next((source for source in sources if _figure(source, scheme, task, augmented) is not None), None)


def _figure(table: Table, scheme: str, task: str, augmented: bool) -> float | None:
    row = table.row(scheme, augmented=augmented and scheme != TEACHER)
    return None if row is None else row.scores.get("mnli_matched" if task == "mnli" else task)


def _schemes(cells: Sequence[Cell], table: Table) -> list[str]:
    """The paper's order, then what the paper does not have."""
    found = {cell.scheme for cell in cells}
    known = [row.scheme for row in table.rows if row.scheme in found]
    return list(dict.fromkeys([*known, *sorted(found)]))


def _line(scheme: str, cells: Sequence[Cell], tasks: Sequence[str], table: Table) -> list[str]:
    mine = [cell for cell in cells if cell.scheme == scheme]
    line = [f"`{scheme}`", next(cell.origin["bits"] for cell in mine)]
    for task in tasks:
        runs = [cell for cell in mine if cell.task == task]
        paper = printed(scheme, task, any(cell.augmented for cell in runs), table)
        line += [_scores(runs), BLANK if paper is None else f"{paper:g}"]
    return line


def _scores(runs: Sequence[Cell]) -> str:
    """One seed as it is; several as mean and range; runs by different recipes one by one."""
    scores = [cell.score for cell in runs]
    if not scores:
        return BLANK
    if len(scores) == 1 or any(cell.setting != runs[0].setting for cell in runs):
        return ", ".join(f"{score:.1f}" for score in scores)
    return f"{fmean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"


def _budget(cells: Sequence[Cell], tasks: Sequence[str], table: Table) -> str:
    """What the figures were paid with, task by task."""
    shapes = sorted({_backbone(cell) for cell in cells})
    lines = [
        f"Paper: {_sources(cells, tasks, table)}, BERT-base (12 x 768). Ours: {', '.join(shapes)}. Figures are the "
        "paper's metric in percent, on the dev set, at the best evaluation of the run."
    ]
    for task in tasks:
        students = [cell for cell in cells if cell.task == task and cell.scheme != TEACHER]
        budgets = sorted({_recipe_in_words(cell) for cell in students})
        metric = TASKS[task].metrics[0]
        lines.append(f"- {TASKS[task].name} ({metric}): {'; '.join(budgets) or 'the teacher alone'}.")
    return "\n".join(lines)


def _sources(cells: Sequence[Cell], tasks: Sequence[str], table: Table) -> str:
    """The tables of the paper, each with its tasks where there are several."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        for cell in (cell for cell in cells if cell.task == task):
            source = _source(cell.scheme, task, cell.augmented, table)
            if source is not None and TASKS[task].name not in found.setdefault(source.name, []):
                found[source.name].append(TASKS[task].name)
    if len(found) < 2:
        return next(iter(found), table.name)
    return ", ".join(f"{name} for {' and '.join(of)}" for name, of in sorted(found.items()))


def _backbone(cell: Cell) -> str:
    return f"{cell.backbone['layers']} x {cell.backbone['hidden']}"


def _recipe_in_words(cell: Cell) -> str:
    recipe = cell.recipe
    epochs = "" if recipe["max_steps"] else f"{recipe['epochs']:g} epoch{'' if recipe['epochs'] == 1 else 's'}, "
    stages = cell.origin.get("stages", 1)
    each = "" if stages == 1 else f"{stages} stages of "
    start = cell.origin.get("start")
    started = f"(begun as {_called(start, cell.scheme)}) " if start else ""
    mean = f"a running mean of the weights ({recipe['average']:g}), " if recipe.get("average") else ""
    products = "products in bfloat16, " if recipe.get("precision") == "bfloat16" else ""
    return (
        f"students {started}{each}{epochs}{cell.steps:,} steps of {recipe['batch_size']} texts, "
        f"learning rate {recipe['learning_rate']:g}, {mean}{products}seed {recipe['seed']}"
    )


def _called(start: Mapping[str, Any], scheme: str) -> str:
    if "scheme" not in start:
        return "another BERT than the teacher"
    kind = "a student of the same scheme" if start["scheme"] == scheme else f"a `{start['scheme']}`"
    return f"{kind}, trained on {start['data']['name']}"

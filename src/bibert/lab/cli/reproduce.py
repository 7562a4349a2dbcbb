"""`bibert reproduce`: a table of the paper, run and set beside the printed figures."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bibert.cli.console import print_json
from bibert.cli.options import Json, ProbeEvery, parse_changes
from bibert.data.glue import TASKS, TRAIN_FILE, get_task
from bibert.errors import DataError, require_extra
from bibert.lab.paper import Table
from bibert.lab.reproduced import TABLES, TEACHER, get_table, markdown

RECIPE, TEACHER_RECIPE = "cpu-{task}", "teacher"


def reproduce(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the runs; finished ones are kept.")],
    glue: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of GLUE's TSV files; leave it out to fetch tasks from the Hub.", show_default=False
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", "-c", help="The BERT to fine-tune missing teachers from.", show_default=False),
    ] = None,
    table: Annotated[str, typer.Option(help=f"Which one: {', '.join(TABLES)}.")] = "1",
    tasks: Annotated[
        str, typer.Option(help="GLUE tasks, such as sst-2,mrpc; those of the table if not given.", show_default=False)
    ] = "",
    schemes: Annotated[
        str, typer.Option(help="Such as baseline,bibert; the rows of the table if not given.", show_default=False)
    ] = "",
    seeds: Annotated[
        str,
        typer.Option(help="Seeds of the students, such as 1,2,3; the recipe's own if not given.", show_default=False),
    ] = "",
    recipe: Annotated[
        str, typer.Option(help=f"The students' preset or TOML file; {RECIPE} if not given.", show_default=False)
    ] = "",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change any key of the students' recipe.", metavar="KEY=VALUE", show_default=False),
    ] = None,
    teacher_recipe: Annotated[
        str, typer.Option(help=f"The teachers' preset or TOML file; {TEACHER_RECIPE} if not given.", show_default=False)
    ] = "",
    train_file: Annotated[
        str,
        typer.Option(
            help="Another training file for the students in each task's folder, such as train_aug.tsv.",
            show_default=False,
        ),
    ] = "",
    probe_every: ProbeEvery = 0,
    collect: Annotated[bool, typer.Option("--collect", help="Train nothing: collect the runs that are there.")] = False,
    json: Json = False,
) -> None:
    """Run a table of the paper, or a part of it, and print ours beside the paper's figures.

    In the name of a recipe {task} stands for the task: "paper-{task}" is the paper's setting of each. Beside the runs
    are results.json and table.md, written anew after every run and by --collect.

    Example: bibert reproduce path/to/glue --table 1 --tasks sst-2,mrpc -c path/to/bert -o runs/table-1
    """
    require_extra("train", "bibert reproduce")
    from bibert.cli.progress import TrainingProgress, quiet_libraries
    from bibert.lab.reproduction import Plan, write_results
    from bibert.lab.reproduction import reproduce as run

    quiet_libraries()
    wanted = get_table(table)
    if collect:
        _refuse(
            {
                "--tasks": tasks,
                "--schemes": schemes,
                "--seeds": seeds,
                "--checkpoint": checkpoint,
                "--recipe": recipe,
                "--set": changes,
                "--teacher-recipe": teacher_recipe,
                "--train-file": train_file,
                "--probe-every": probe_every,
                "the folder of GLUE": glue,
            }
        )
        cells = write_results(output, table)
    else:
        plan = Plan(
            table=table,
            tasks=tuple(get_task(word).key for word in _words(tasks) or _tasks_of(wanted)),
            schemes=_words(schemes) or _schemes_of(wanted),
            seeds=tuple(_seed(word) for word in _words(seeds)),
            checkpoint=checkpoint,
            recipe=recipe or RECIPE,
            teacher_recipe=teacher_recipe or TEACHER_RECIPE,
            changes=parse_changes(changes or []),
            glue=glue,
            train_file=train_file or TRAIN_FILE,
            probe_every=probe_every,
        )
        if checkpoint is None and teacher_recipe:
            raise DataError("--teacher-recipe has no effect without --checkpoint, which teachers are fine-tuned from")
        cells = run(plan, output, lambda name: [TrainingProgress(name)])
    if not cells:
        raise DataError(f"{output}: holds no finished run; leave out --collect to train them")
    if json:
        print_json([asdict(cell) for cell in cells])
    else:
        print(markdown(cells, wanted))


def _words(text: str) -> tuple[str, ...]:
    """The words between commas; a comma inside parentheses belongs to a scheme with changed fields."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    return tuple(dict.fromkeys(word.strip() for word in words if word.strip()))


def _tasks_of(table: Table) -> tuple[str, ...]:
    columns = {column.partition("_")[0] for row in table.rows for column in row.scores}
    return tuple(task for task in TASKS if task in columns)


def _schemes_of(table: Table) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.scheme for row in table.rows if row.scheme != TEACHER))


def _refuse(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise DataError(f"--collect takes every finished run as it is, so {name} has no effect; leave it out")


def _seed(word: str) -> int:
    if not word.isdigit():
        raise DataError(f"--seeds: {word!r} is not a whole number; write --seeds 1,2,3")
    return int(word)

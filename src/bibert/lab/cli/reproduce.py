"""`bibert reproduce`: run a table of the paper and set it beside the printed figures; `collect` trains nothing."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bibert.cli.console import print_json
from bibert.cli.options import Json, ProbeEvery, Start, option, parse_changes, require_torch
from bibert.data.glue import TASKS, TRAIN_FILE, get_task
from bibert.errors import DataError
from bibert.lab.paper import TABLES, PaperTable
from bibert.lab.tables import Cell, get_table, markdown

TableName = Annotated[str, typer.Option("--table", help=f"One of {', '.join(TABLES)}.")]


class RunByDefault(TyperGroup):
    """A group that reads `bibert reproduce ...` as `bibert reproduce run ...`; only `collect` has to be named."""

    # typer carries its own click and exports no name for these types, hence Any.
    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Name the command that `args` leaves out, then parse as usual."""
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])


reproduce = typer.Typer(cls=RunByDefault, add_completion=False, rich_markup_mode=None)


@reproduce.command()
def run(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the runs; finished ones are kept.")],
    glue: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of GLUE's TSV files; leave it out to fetch tasks from the Hub.", show_default=False
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, option("The BERT to fine-tune missing teachers from.", "--checkpoint", "-c")
    ] = None,
    table: TableName = "1",
    tasks: Annotated[str, option("GLUE tasks, such as sst-2,mrpc, instead of those of the table.")] = "",
    schemes: Annotated[str, option("Schemes, such as baseline,bibert, instead of the rows of the table.")] = "",
    seeds: Annotated[str, option("Seeds of the students, such as 1,2,3, instead of the recipe's own.")] = "",
    recipe: Annotated[str, typer.Option(help="The students' preset or TOML file.")] = "cpu-{task}",
    changes: Annotated[
        list[str] | None, option("Change any key of the students' recipe.", "--set", metavar="KEY=VALUE")
    ] = None,
    teacher_recipe: Annotated[str | None, option("A preset or TOML file for the teachers instead of teacher.")] = None,
    train_file: Annotated[
        str, typer.Option(help="The students' training file in each task's folder, such as train_aug.tsv.")
    ] = TRAIN_FILE,
    start: Start = None,
    probe_every: ProbeEvery = 0,
    json: Json = False,
) -> None:
    """Run a table of the paper, or a part of it, and print our scores beside the paper's.

    In the name of a recipe {task} is replaced by the task: "paper-{task}" is the paper's setting of each. results.json
    and table.md are rewritten after every run; bibert reproduce collect rewrites them without training.

    Example: bibert reproduce path/to/glue --table 1 --tasks sst-2,mrpc -c path/to/bert -o runs/table-1
    """
    require_torch("bibert reproduce")
    from bibert.cli.progress import TrainingProgress
    from bibert.lab.reproduce import Plan
    from bibert.lab.reproduce import reproduce as train

    for word in split_words(seeds):
        if not word.isdigit():
            raise DataError(f"--seeds: {word!r} is not a whole number; write --seeds 1,2,3")
    wanted = get_table(table)
    columns = {column.partition("_")[0] for column in wanted.rows[0].scores}  # MNLI has two
    plan = Plan(
        table=table,
        tasks=tuple(get_task(word).key for word in split_words(tasks)) or tuple(key for key in TASKS if key in columns),
        schemes=split_words(schemes) or wanted.schemes,
        seeds=tuple(map(int, split_words(seeds))),
        checkpoint=checkpoint,
        recipe=recipe,
        teacher_recipe=teacher_recipe or Plan.teacher_recipe,
        changes=parse_changes(changes or []),
        glue=glue,
        train_file=train_file,
        start=start,
        probe_every=probe_every,
    )
    if checkpoint is None and teacher_recipe is not None:
        raise DataError("--teacher-recipe has no effect without --checkpoint, which teachers are fine-tuned from")
    _print_cells(train(plan, output, lambda name: [TrainingProgress(name)]), wanted, json)


@reproduce.command()
def collect(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the runs.")],
    table: TableName = "1",
    json: Json = False,
) -> None:
    """Collect the finished runs of a folder into its results.json and table.md, and print them; nothing is trained.

    Example: bibert reproduce collect --table 1 -o runs/table-1
    """
    require_torch("bibert reproduce")
    from bibert.lab.reproduce import write_results

    wanted = get_table(table)
    cells = write_results(output, table)
    if not cells:
        raise DataError(f"{output}: holds no finished run; train them with bibert reproduce")
    _print_cells(cells, wanted, json)


def _print_cells(cells: Sequence[Cell], table: PaperTable, json: bool) -> None:
    if json:
        print_json([asdict(cell) for cell in cells])
    else:
        print(markdown(cells, table))


def split_words(text: str) -> tuple[str, ...]:
    """The words between commas; a comma in parentheses is part of a scheme with changed fields."""
    return tuple(dict.fromkeys(word.strip() for word in re.split(r",(?![^(]*\))", text) if word.strip()))

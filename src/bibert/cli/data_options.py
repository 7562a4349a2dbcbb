"""Options for labelled texts: to train on, to evaluate on, and how many tokens of them to read.

Data modules are imported when data is loaded: `bibert pack` without --data needs none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bibert.cli.console import say
from bibert.cli.options import LabelColumn, PairColumn, TextColumn, option
from bibert.data.examples import MAX_LENGTH
from bibert.errors import DataError

if TYPE_CHECKING:
    from bibert.data.examples import Split, TextData
    from bibert.data.readers import Columns

MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens per text; longer texts are cut.",
        show_default=f"its training's, else {MAX_LENGTH}; at most the model's positions",
    ),
]


def usual_length(recipe: Mapping[str, Any], positions: int) -> int:
    """The tokens per text that a model was trained with, at most its positions; `recipe` is empty if not known."""
    return min(int(recipe.get("max_length", MAX_LENGTH)), positions)


def _data(what: str) -> Any:
    return typer.Argument(
        help=f"{what} (CSV, TSV, JSONL, Parquet; .gz too). With --task: the folder of GLUE's TSV files; "
        "leave it out to download the task from the Hub.",
        show_default=False,
    )


@dataclass(frozen=True)
class EvaluationOptions:
    """Labelled texts to evaluate a model on."""

    data: Annotated[Path | None, _data("File to evaluate on")] = None
    task: Annotated[str | None, option("A GLUE task, such as sst-2, instead of a file.")] = None
    text_column: TextColumn = ""
    pair_column: PairColumn = ""
    label_column: LabelColumn = ""

    def load_splits(self, label_names: tuple[str, ...]) -> "tuple[dict[str, Split], tuple[str, ...]]":
        """The splits and metrics for a model with `label_names`: dev sets of a task, or all rows of a file.

        A single label is the name of a score.
        """
        from bibert.data.glue import get_task, load_glue_dev, load_glue_from_hub
        from bibert.data.tables import load_split, metrics_for

        label_names = label_names if len(label_names) > 1 else ()
        self._check_task()
        if self.task is not None:
            task = get_task(self.task)
            if task.label_names != label_names:
                raise DataError(
                    f"{task.name} has the labels {task.label_names}, the model {label_names}; "
                    "evaluate it on the task it was trained for"
                )
            splits = load_glue_from_hub(self.task).dev if self.data is None else load_glue_dev(self.task, self.data)
            return splits, task.metrics
        if self.data is None:
            raise DataError("no data: give a file, or a GLUE task with --task")
        return {"all": load_split(self.data, self._columns(), label_names)}, metrics_for(label_names)

    def _columns(self) -> "Columns":
        from bibert.data.readers import Columns

        return Columns(self.text_column, self.pair_column, self.label_column)

    def _check_task(self, *of_files: object) -> None:
        """Refuse options of files with a task, which has its own columns and dev set."""
        values = (self.text_column, self.pair_column, self.label_column, *of_files)
        if self.task is not None and any(value not in (None, "") for value in values):
            raise DataError(f"--task {self.task} has its own columns and dev set; leave out --dev and the columns")


@dataclass(frozen=True)
class DataOptions(EvaluationOptions):
    """Labelled texts to train on."""

    data: Annotated[Path | None, _data("Training file")] = None
    train_file: Annotated[
        str | None, option("With --task: another training file in its folder, such as train_aug.tsv.")
    ] = None
    dev: Annotated[Path | None, option("Dev file. Without it a tenth of the training rows is set aside.")] = None
    regression: Annotated[
        bool | None, option("Labels are scores, or classes; inferred if not given.", "--regression/--classes")
    ] = None

    def load(self) -> "TextData":
        """Read the data."""
        from bibert.data.glue import TRAIN_FILE, load_glue, load_glue_from_hub
        from bibert.data.tables import load_table

        self._check_task(self.dev, self.regression)
        if self.train_file is not None and (self.task is None or self.data is None):
            raise DataError(f"--train-file {self.train_file} needs --task and the folder of its TSV files")
        if self.task is not None:
            if self.data is None:
                return load_glue_from_hub(self.task)
            return load_glue(self.task, self.data, self.train_file or TRAIN_FILE)
        if self.data is None:
            raise DataError("no data: give a training file, or a GLUE task with --task")
        return load_table(self.data, self.dev, self._columns(), self.regression)

    def load_and_report(self) -> "TextData":
        """Read the data and print a summary, before hours of training."""
        from bibert.data.examples import describe
        from bibert.training.run import is_main_process

        data = self.load()
        if is_main_process():
            for line in describe(data):
                say(line)
        return data

"""Options that several commands share: which data, which recipe, how to report.

A group of options is a dataclass; `with_option_groups` spreads its fields over the signature of a command, which is
what typer reads. Heavy imports are inside the methods, so that `--help` works in an install without torch.
"""

import importlib
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bibert.cli.console import say
from bibert.data.columns import Columns
from bibert.data.examples import Split, TextData
from bibert.data.glue import TRAIN_FILE, get_task, load_glue, load_glue_dev, load_glue_from_hub
from bibert.data.report import describe
from bibert.data.tables import load_split, load_table, metrics_for
from bibert.errors import DataError, RecipeError, one_line, require_extra

if TYPE_CHECKING:
    from bibert.runtime.text import Row
    from bibert.training.recipe import Recipe

Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder. A killed run in it goes on.")]
Checkpoint = Annotated[str, typer.Option("--checkpoint", "-c", help="Any BERT: a folder, or a name on the Hub.")]
SchemeName = Annotated[
    str,
    typer.Option("--scheme", "-s", help="A row of `bibert schemes`, or one changed: 'baseline(kept=mha)'."),
]
ProbeEvery = Annotated[
    int, typer.Option(min=0, help="Look into the student every so many steps, for `bibert analyze`; 0 for never.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _option(help_text: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help_text, show_default=False, **settings)


def _data(what: str) -> Any:
    return typer.Argument(
        help=f"{what} (CSV, TSV, JSONL, Parquet; .gz too). With --task: the folder of GLUE's TSV files; "
        "leave it out to fetch the task from the Hub.",
        show_default=False,
    )


@dataclass(frozen=True)
class ScoringOptions:
    """Which labelled text a model is scored on."""

    data: Annotated[Path | None, _data("File to score")] = None
    task: Annotated[str | None, _option("A GLUE task, such as sst-2, instead of a file.")] = None
    text_column: Annotated[str, _option("Column of the text; found by name if not given.")] = ""
    pair_column: Annotated[str, _option("Column of the second text of a pair.")] = ""
    label_column: Annotated[str, _option("Column of the label or score.")] = ""

    def load_splits(self, label_names: tuple[str, ...]) -> tuple[dict[str, Split], tuple[str, ...]]:
        """The splits and metrics for a model that knows `label_names`: dev sets of a task, or all rows of a file.

        A single label is the name of a score.
        """
        label_names = label_names if len(label_names) > 1 else ()
        if self.task is not None:
            self._refuse_options_of_a_file()
            task = get_task(self.task)
            if task.label_names != label_names:
                raise DataError(
                    f"{task.name} has the labels {task.label_names}, the model {label_names}; "
                    "score it on the task it was trained for"
                )
            splits = load_glue_from_hub(self.task).dev if self.data is None else load_glue_dev(self.task, self.data)
            return splits, task.metrics
        if self.data is None:
            raise DataError("no data: give a file, or a GLUE task with --task")
        return {"all": load_split(self.data, self._columns, label_names)}, metrics_for(label_names)

    @property
    def _columns(self) -> Columns:
        return Columns(self.text_column, self.pair_column, self.label_column)

    def _options_of_a_file(self) -> dict[str, Any]:
        columns = self._columns
        return {"--text-column": columns.text, "--pair-column": columns.pair, "--label-column": columns.label}

    def _refuse_options_of_a_file(self) -> None:
        """A task knows its own files and columns; an option that says otherwise is not passed over in silence."""
        given = [name for name, value in self._options_of_a_file().items() if value not in (None, "")]
        if given:
            raise DataError(f"{given[0]} does not go with --task: {self.task} has its own; leave it out")


@dataclass(frozen=True)
class TextOptions:
    """Texts to look into a model with."""

    text: Annotated[list[str] | None, _option("A text to read; may be repeated.")] = None
    texts: Annotated[Path | None, _option("A file with a text in each line; a pair has a tab between its two.")] = None

    def load(self) -> "list[Row]":
        """All of them; none if none were given."""
        lines = [*(self.text or ()), *(() if self.texts is None else _lines(self.texts))]
        return [_pair_or_text(line) for line in lines]


def _pair_or_text(line: str) -> "Row":
    first, tab, second = line.partition("\t")
    return (first.strip(), second.strip()) if tab else line


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({one_line(error)}); give a UTF-8 file") from error
    found = [line for line in lines if line]
    if not found:
        raise DataError(f"{path}: has no text; put one in each line")
    return found


@dataclass(frozen=True)
class DataOptions(ScoringOptions):
    """Which labelled text a model is trained on."""

    data: Annotated[Path | None, _data("Training file")] = None
    train_file: Annotated[
        str | None, _option("With --task: another training file in its folder, such as train_aug.tsv.")
    ] = None
    dev: Annotated[Path | None, _option("Dev file. Without it a tenth of the training rows is set aside.")] = None
    regression: Annotated[
        bool | None, _option("Labels are scores, or classes; inferred if not said.", "--regression/--classes")
    ] = None

    def load(self) -> TextData:
        """Read the data."""
        if self.task is not None:
            return self._load_task(self.task)
        if self.data is None:
            raise DataError("no data: give a training file, or a GLUE task with --task")
        if self.train_file is not None:
            raise DataError(
                f"--train-file {self.train_file} goes with --task only; give the file in place of {self.data}"
            )
        return load_table(self.data, self.dev, self._columns, self.regression)

    def _load_task(self, task: str) -> TextData:
        self._refuse_options_of_a_file()
        if self.data is not None:
            return load_glue(task, self.data, self.train_file or TRAIN_FILE)
        if self.train_file is not None:
            raise DataError(f"--train-file {self.train_file} needs the folder of GLUE's TSV files; give the folder too")
        return load_glue_from_hub(task)

    def _options_of_a_file(self) -> dict[str, Any]:
        flag = "--regression" if self.regression else "--classes"
        return {**super()._options_of_a_file(), "--dev": self.dev, flag: self.regression}

    def load_and_report(self) -> TextData:
        """Read the data and say what it is, before hours are spent on it."""
        from bibert.training.run import is_main_process

        data = self.load()
        if is_main_process():
            for line in describe(data).lines():
                say(line)
        return data


@dataclass(frozen=True)
class TrainingOptions:
    """Which recipe, what to change in it, and whether to write a TensorBoard log."""

    recipe: Annotated[str, typer.Option(help="A preset, such as paper-sst-2, or a TOML file.")] = "student"
    learning_rate: Annotated[float | None, _option("Peak learning rate.")] = None
    epochs: Annotated[float | None, _option("Passes over the data.")] = None
    batch_size: Annotated[int | None, _option("Texts per step, over all processes.")] = None
    max_length: Annotated[int | None, _option("Tokens per text; longer ones are cut.")] = None
    seed: Annotated[int | None, _option("Seed of everything random.")] = None
    changes: Annotated[
        list[str] | None,
        _option("Change any key of the recipe: --set weights.gold=0.5.", "--set", metavar="KEY=VALUE"),
    ] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write a TensorBoard log.")] = False

    def load(self) -> "Recipe":
        """The preset or file, changed as `given` says."""
        from bibert.training.recipe import load_recipe

        return load_recipe(self.recipe, self.given())

    def given(self) -> dict[str, Any]:
        """What was asked to be changed: --set, then the options that were given."""
        shortcuts = ("learning_rate", "epochs", "batch_size", "max_length", "seed")
        options = {name: getattr(self, name) for name in shortcuts if getattr(self, name) is not None}
        return parse_changes(self.changes or []) | options

    def trainer_arguments(self) -> dict[str, Any]:
        """What changes in the Trainer's arguments."""
        if not self.tensorboard:
            return {}
        require_extra("tensorboard", "--tensorboard")
        return {"report_to": "tensorboard"}


@dataclass(frozen=True)
class TeacherOptions(TrainingOptions):
    """The same with the teacher's preset."""

    recipe: Annotated[str, typer.Option(help="A preset (see bibert recipes), or a TOML file.")] = "teacher"


def parse_changes(changes: list[str]) -> dict[str, Any]:
    """KEY=VALUE words as values, read as TOML; `weights.gold=0.5` changes one loss term."""
    parsed: dict[str, Any] = {}
    for change in changes:
        key, _, value = (part.strip() for part in change.partition("="))
        if not (key and value):
            raise RecipeError(f"--set {change!r}: write KEY=VALUE, such as --set learning_rate=2e-4")
        section, dot, term = key.partition(".")
        if not dot:
            parsed[key] = _value(value)
        elif isinstance(table := parsed.setdefault(section, {}), dict):
            table[term] = _value(value)
        else:
            raise RecipeError(f"--set {change!r}: {section} was set to {table!r} before; change its terms one by one")
    return parsed


def _value(word: str) -> Any:
    try:
        return tomllib.loads(f"value = {word}")["value"]
    except tomllib.TOMLDecodeError:
        return word  # a bare word is a string


def probe_of(every: int) -> Any:
    """The probe of the laboratory for --probe-every, found by name: the product does not import the laboratory."""
    return importlib.import_module("bibert.lab.probe").probe_every(every) if every else None


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` one option for each field of its parameters that are dataclasses of options."""
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return", None)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}

    @wraps(command)
    def spread(**values: Any) -> None:
        made = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**made, **values)

    parameters = [
        p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name])
        for p in inspect.signature(command).parameters.values()
        if p.name not in groups
    ]
    for kind in groups.values():
        parameters += _parameters(kind)
    # Without these typer would follow the wrapper back to the command and meet the dataclasses.
    del spread.__dict__["__wrapped__"]
    spread.__dict__["__signature__"] = inspect.Signature(parameters)
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]

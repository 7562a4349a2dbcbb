"""Options that several commands share: the scheme, the recipe of a training, and labelled texts.

A group of options is a dataclass; `with_option_groups` spreads its fields over the signature of a command, where typer
reads them. Most imports are inside the methods: `--help` works in an install without torch, and a command loads only
what it uses.
"""

import importlib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from bibert.cli.console import messages, say
from bibert.data import MAX_LENGTH
from bibert.errors import DataError, RecipeError, SchemeError, require_extra

if TYPE_CHECKING:
    from bibert.data.columns import Columns
    from bibert.data.examples import Split, TextData
    from bibert.training.recipe import Recipe

EXISTS = "exists; give another name, or --force to replace it"
PACKED_HELP = "A packed file, a Hub id, or a model shipped with bibert, such as sst2."


def option(help_text: str, *names: str, **settings: Any) -> Any:
    """An option without a default to show."""
    return typer.Option(*names, help=help_text, show_default=False, **settings)


Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder. A killed run in it is resumed.")]
Checkpoint = Annotated[str, typer.Option("--checkpoint", "-c", help="Any BERT: a folder, or a name on the Hub.")]
ProbeEvery = Annotated[int, typer.Option(min=0, help="Steps between probes, for `bibert analyze`; 0 for no probes.")]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens per text; longer texts are cut.",
        show_default=f"its training's, else {MAX_LENGTH}; at most the model's positions",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ModelName = Annotated[str, typer.Option("--model", "-m", help=PACKED_HELP)]
TextColumn = Annotated[str, option("Column of the text; found by name if not given.")]
PairColumn = Annotated[str, option("Column of the second text of a pair; found by name if not given.")]
Start = Annotated[
    str | None,
    option(
        "The BERT to make the student from: a shallower one, a student, a packed file, or general_4, in the package."
    ),
]
Delimiter = Annotated[
    str, option("What separates the fields of CSV; found in the header if not given.", metavar="CHAR")
]
LabelColumn = Annotated[str, option("Column of the label or score; found by name if not given.")]


@dataclass(frozen=True)
class SchemeOptions:
    """The scheme of the student, by its name or by the bits of its activations."""

    scheme: Annotated[
        str | None,
        option(
            "A row of `bibert schemes` instead of --bits, such as bibert, or a variant: 'baseline(kept=mha)'.",
            "--scheme",
            "-s",
        ),
    ] = None
    bits: Annotated[
        int | None,
        option(
            "The dial: bits of activations, from 1, the smallest and fastest, to 4, the most accurate; short for "
            "--scheme bibert_plus, bibert_2 or bibert_4, the default.",
            metavar="1|2|4",
        ),
    ] = None

    @property
    def name(self) -> str:
        """The name of the scheme."""
        if self.scheme is not None and self.bits is not None:
            raise SchemeError(f"--bits {self.bits} and --scheme {self.scheme} both name a scheme; give one of them")
        from bibert.nn.schemes import DEFAULT_BITS, scheme_of_bits

        return self.scheme or scheme_of_bits(DEFAULT_BITS if self.bits is None else self.bits)


@dataclass(frozen=True)
class TrainingOptions:
    """The recipe, changes to it, and whether to write a TensorBoard log."""

    recipe: Annotated[str | None, option("A preset (see bibert recipes), or a TOML file.")] = None
    learning_rate: Annotated[float | None, option("Peak learning rate.")] = None
    epochs: Annotated[float | None, option("Passes over the data; lifts the preset's limits of steps.")] = None
    batch_size: Annotated[int | None, option("Texts per step, over all processes.")] = None
    max_length: Annotated[int | None, option("Tokens per text; longer texts are cut.")] = None
    seed: Annotated[int | None, option("Seed of everything random.")] = None
    changes: Annotated[
        list[str] | None, option("Change any key of the recipe: --set weights.gold=0.5.", "--set", metavar="KEY=VALUE")
    ] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write a TensorBoard log.")] = False

    def load(self, usual: str) -> "Recipe":
        """The preset or file with all changes; `usual` is the preset if none is named."""
        from bibert.training.recipe import load_recipe

        return load_recipe(self.recipe or usual, self.all_changes())

    def all_changes(self) -> dict[str, Any]:
        """The changes of --set and of the options for single keys, which win."""
        shortcuts = ("learning_rate", "epochs", "batch_size", "max_length", "seed")
        options = {name: getattr(self, name) for name in shortcuts if getattr(self, name) is not None}
        return parse_changes(self.changes or []) | options

    def trainer_arguments(self) -> dict[str, Any]:
        """Changes to the Trainer's arguments."""
        if not self.tensorboard:
            return {}
        require_extra("tensorboard", "--tensorboard")
        return {"report_to": "tensorboard"}


def parse_changes(changes: list[str]) -> dict[str, Any]:
    """Values of KEY=VALUE words, read as TOML; `weights.gold=0.5` changes one loss term."""
    parsed: dict[str, Any] = {}
    for change in changes:
        key, _, word = (part.strip() for part in change.partition("="))
        if not (key and word):
            raise RecipeError(f"--set {change!r}: write KEY=VALUE, such as --set learning_rate=2e-4")
        try:
            value = tomllib.loads(f"value = {word}")["value"]
        except tomllib.TOMLDecodeError:
            value = word  # a bare word is a string
        section, dot, term = key.partition(".")
        if not dot:
            parsed[key] = value
        elif isinstance(table := parsed.setdefault(section, {}), dict):
            table[term] = value
        else:
            raise RecipeError(f"--set {change!r}: {section} was set to {table!r} before; change its terms one by one")
    return parsed


def _data(what: str) -> Any:
    return typer.Argument(
        help=f"{what} (CSV, TSV, JSONL, Parquet, .gz too; Excel). With --task: the folder of GLUE's TSV files; "
        "leave it out to download the task from the Hub.",
        show_default=False,
    )


class Evaluation(NamedTuple):
    """Labelled texts by the name of their split, and the metrics of a model on them."""

    splits: "dict[str, Split]"
    metrics: tuple[str, ...]

    @property
    def first(self) -> "Split":
        """The only split, or the first dev set of a task that has two."""
        return next(iter(self.splits.values()))


@dataclass(frozen=True)
class EvaluationOptions:
    """Labelled texts to evaluate a model on."""

    data: Annotated[Path | None, _data("File to evaluate on")] = None
    task: Annotated[str | None, option("A GLUE task, such as sst-2, instead of a file.")] = None
    text_column: TextColumn = ""
    pair_column: PairColumn = ""
    label_column: LabelColumn = ""
    delimiter: Delimiter = ""

    def load_splits(self, label_names: tuple[str, ...], about: Mapping[str, Any]) -> Evaluation:
        """What a model with `label_names` is evaluated on: the dev sets of a task, or all rows of a file.

        A single label is the name of a score. `about` has the notes of the model, with the columns it learned from.
        """
        from bibert.data.glue import get_task, load_glue_dev, load_glue_from_hub
        from bibert.data.tables import load_split, metrics_for

        label_names = label_names if len(label_names) > 1 else ()
        self._check_task()
        if self.task is not None:
            task = get_task(self.task)
            if task.label_names != label_names:
                remedy = "evaluate it on the task it was trained for"
                raise DataError(f"{task.name} has the labels {task.label_names}, the model {label_names}; {remedy}")
            splits = load_glue_from_hub(self.task).dev if self.data is None else load_glue_dev(self.task, self.data)
            return Evaluation(splits, task.metrics)
        if self.data is None:
            raise DataError("no data: give a file, or a GLUE task with --task")
        rows = load_split(self.data, self.columns.beside(about), label_names)
        return Evaluation({"all": rows}, metrics_for(label_names))

    @property
    def columns(self) -> "Columns":
        """The columns of a file to read."""
        from bibert.data.columns import Columns

        return Columns(self.text_column, self.pair_column, self.label_column, self.delimiter)

    def _check_task(self, **of_files: object) -> None:
        """Refuse options of files with a task, which has its own columns and dev set."""
        names = ("text_column", "pair_column", "label_column", "delimiter")
        values = {name: getattr(self, name) for name in names} | of_files
        given = [f"--{name}".replace("_", "-") for name, value in values.items() if value not in (None, "")]
        if self.task is not None and given:
            raise DataError(f"--task {self.task} has its own columns, labels and dev set; leave out {', '.join(given)}")


@dataclass(frozen=True)
class DataOptions(EvaluationOptions):
    """Labelled texts to train on."""

    data: Annotated[Path | None, _data("Training file")] = None
    train_file: Annotated[str | None, option("With --task: another training file there, like train_aug.tsv.")] = None
    dev: Annotated[Path | None, option("Dev file. Without it a tenth of the training rows is set aside.")] = None
    regression: Annotated[
        bool | None, option("Labels are scores, or classes; inferred if not given.", "--regression/--classes")
    ] = None
    texts: Annotated[
        list[Path] | None,
        option("More texts, without labels (they need a teacher): lines or a table, plain or .gz; may be repeated."),
    ] = None

    def load(self) -> "TextData":
        """Read the labelled data."""
        from bibert.data.glue import TRAIN_FILE, load_glue, load_glue_from_hub
        from bibert.data.tables import load_table

        self._check_task(dev=self.dev, **{"classes" if self.regression is False else "regression": self.regression})
        if self.train_file is not None and (self.task is None or self.data is None):
            raise DataError(f"--train-file {self.train_file} needs --task and the folder of its TSV files")
        if self.task is not None:
            if self.data is None:
                return load_glue_from_hub(self.task)
            return load_glue(self.task, self.data, self.train_file or TRAIN_FILE)
        if self.data is None:
            raise DataError("no data: give a training file, or a GLUE task with --task")
        return load_table(self.data, self.dev, self.columns, self.regression)

    def load_and_report(self, test: Path | None = None) -> "TextData":
        """Read the data and print a summary, before hours of training; `--texts` lose those of the `test` rows."""
        from bibert.data.examples import describe
        from bibert.data.tables import load_texts, with_unlabelled
        from bibert.training.run import is_main_process

        data, left_out = self.load(), 0
        if self.texts:
            columns = replace(self.columns, usual=data.columns)
            tested = [] if test is None else [load_texts(test, columns)]
            data, left_out = with_unlabelled(data, self.texts, columns, tested)
        if is_main_process():
            for line in describe(data):
                say(line)
            if left_out:
                say(f"{left_out:,} texts without labels are also dev or test rows and were left out")
        return data


def usual_length(recipe: Mapping[str, Any], positions: int) -> int:
    """The tokens per text that a model was trained with, at most its positions; `recipe` is empty if not known."""
    return min(int(recipe.get("max_length", MAX_LENGTH)), positions)


def require_torch(purpose: str) -> None:
    """Check that the extra `train` is installed, and import transformers quietly, which takes seconds."""
    require_extra("train", purpose)
    import_quietly()


def import_quietly() -> None:
    """Turn off the bars and notices of transformers; call it when everything that the user gave is checked.

    A command shows its own progress. Download bars stay: a checkpoint from the Hub takes minutes.
    """
    from huggingface_hub.constants import HF_HUB_DISABLE_PROGRESS_BARS
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers.utils import logging

    logging.disable_progress_bar()  # of downloads too
    if messages.is_terminal and not HF_HUB_DISABLE_PROGRESS_BARS:
        enable_progress_bars()
    logging.set_verbosity_error()


def probe_of(every: int) -> Any:
    """The laboratory's probe for --probe-every, found by name: the product does not import the laboratory."""
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

    own = [p for p in inspect.signature(command).parameters.values() if p.name not in groups]
    parameters = [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in own]
    for kind in groups.values():
        types = get_type_hints(kind, include_extras=True)
        fields_of_group = inspect.signature(kind).parameters.values()
        parameters += [p.replace(kind=p.KEYWORD_ONLY, annotation=types[p.name]) for p in fields_of_group]
    # Without these typer would follow the wrapper back to the command and find the dataclasses.
    del spread.__dict__["__wrapped__"]
    spread.__dict__["__signature__"] = inspect.Signature(parameters)
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread

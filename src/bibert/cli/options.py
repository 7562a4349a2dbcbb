"""Options that several commands share, and the recipe of a training; which data to read is in `data_options`.

A group of options is a dataclass; `with_option_groups` spreads its fields over the signature of a command, where typer
reads them. Heavy imports are inside the methods, so that `--help` works in an install without torch.
"""

import importlib
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bibert.cli.console import messages
from bibert.errors import BibertError, RecipeError, SchemeError, require_extra

if TYPE_CHECKING:
    from bibert.training.recipe import Recipe

Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder. A killed run in it is resumed.")]
Checkpoint = Annotated[str, typer.Option("--checkpoint", "-c", help="Any BERT: a folder, or a name on the Hub.")]
ProbeEvery = Annotated[
    int, typer.Option(min=0, help="Probe the student every so many steps, for `bibert analyze`; 0 for never.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

PACKED = "A packed file, a Hub id, or sst2, the model shipped with bibert."
ModelName = Annotated[str, typer.Option("--model", "-m", help=PACKED)]
DIAL = {1: "bibert_plus", 2: "bibert_2", 4: "bibert_4"}  # schemes by the bits of their activations


def option(help_text: str, *names: str, **settings: Any) -> Any:
    """An option without a default to show."""
    return typer.Option(*names, help=help_text, show_default=False, **settings)


TextColumn = Annotated[str, option("Column of the text; found by name if not given.")]
PairColumn = Annotated[str, option("Column of the second text of a pair; found by name if not given.")]
LabelColumn = Annotated[str, option("Column of the label or score; found by name if not given.")]


@dataclass(frozen=True)
class SchemeOptions:
    """The scheme of the student, by its name or by the bits of its activations."""

    scheme: Annotated[
        str | None,
        option("A row of `bibert schemes` (default: bibert), or a variant: 'baseline(kept=mha)'.", "--scheme", "-s"),
    ] = None
    bits: Annotated[
        int | None,
        option(
            "The dial: bits of activations, from 1, the smallest and fastest, to 4, the most accurate; short for "
            "--scheme bibert_plus, bibert_2 or bibert_4.",
            metavar="1|2|4",
        ),
    ] = None

    @property
    def name(self) -> str:
        """The name of the scheme."""
        if self.scheme is not None and self.bits is not None:
            raise SchemeError(f"--bits {self.bits} and --scheme {self.scheme} both name a scheme; give one of them")
        if self.bits is None:
            return self.scheme or "bibert"
        if self.bits not in DIAL:
            raise SchemeError(f"--bits is {self.bits}, must be one of {', '.join(map(str, DIAL))}")
        return DIAL[self.bits]


@dataclass(frozen=True)
class TrainingOptions:
    """The recipe, changes to it, and whether to write a TensorBoard log."""

    recipe: Annotated[str, typer.Option(help="A preset, such as paper-sst-2, or a TOML file.")] = "student"
    learning_rate: Annotated[float | None, option("Peak learning rate.")] = None
    epochs: Annotated[float | None, option("Passes over the data.")] = None
    batch_size: Annotated[int | None, option("Texts per step, over all processes.")] = None
    max_length: Annotated[int | None, option("Tokens per text; longer texts are cut.")] = None
    seed: Annotated[int | None, option("Seed of everything random.")] = None
    changes: Annotated[
        list[str] | None,
        option("Change any key of the recipe: --set weights.gold=0.5.", "--set", metavar="KEY=VALUE"),
    ] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write a TensorBoard log.")] = False

    def load(self) -> "Recipe":
        """The preset or file with all changes."""
        from bibert.training.recipe import load_recipe

        return load_recipe(self.recipe, self.all_changes())

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


@dataclass(frozen=True)
class TeacherOptions(TrainingOptions):
    """The same with the teacher's preset."""

    recipe: Annotated[str, typer.Option(help="A preset (see bibert recipes), or a TOML file.")] = "teacher"


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


def check_output(path: Path, suffix: str) -> None:
    """Refuse a bad output path before hours of work; the suffix, so that a slip does not replace another file."""
    if path.suffix != suffix:
        raise BibertError(f"{path}: a {suffix} file is written; give it a name ending in {suffix}")
    if not path.resolve().parent.is_dir():
        raise BibertError(f"{path}: the folder {path.parent} does not exist; create it first")


def require_torch(purpose: str) -> None:
    """Check that the extra `train` is installed, and turn off the bars and notices of transformers.

    A command shows its own progress. Download bars stay: a checkpoint from the Hub takes minutes.
    """
    require_extra("train", purpose)
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

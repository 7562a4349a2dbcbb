"""Recipes: every hyper-parameter of a run as one frozen value, read from TOML; unknown keys raise.

A recipe file is flat: one key per field of `Recipe`, a table `[weights]` for the loss terms, and `extends` to start
from one or more presets. The presets, including the paper's settings, are in `recipes/presets.toml`.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bibert.data import MAX_LENGTH
from bibert.errors import RecipeError, did_you_mean

Precision = Literal["float32", "bfloat16", "int8", "fastest"]  # the last is the fastest one of the processor
SEEDS = 2**32  # numpy takes no larger seed
POSITIVE = ("learning_rate", "step_learning_rate", "epochs", "batch_size", "max_length", "adam_epsilon", "log_every")
COUNTS = ("min_steps", "max_steps", "weight_decay", "clip_norm", "eval_every", "evaluations", "patience")
SHARES = ("warmup", "dropout", "average", "label_smoothing", "texts_share")
# Fields, their condition, and the condition in words.
RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (POSITIVE, lambda value: 0 < value < math.inf, "above 0 and finite"),
    (COUNTS, lambda value: 0 <= value < math.inf, "0 or more, and finite"),
    (SHARES, lambda value: 0 <= value < 1, "from 0 to below 1"),
    (("seed",), lambda value: 0 <= value < SEEDS, f"from 0 to below {SEEDS}"),
)


@dataclass(frozen=True)
class Recipe:
    """How to train a model; the same fields serve the teacher and the student."""

    learning_rate: float = 1e-4  # peak of the linear schedule
    epochs: float = 10.0  # passes over the training data
    min_steps: int = 0  # at least this many optimizer steps, however few rows there are
    max_steps: int = 0  # at most this many optimizer steps; 0 for no limit
    batch_size: int = 16  # texts of one optimizer step, over all processes
    max_length: int = MAX_LENGTH  # tokens of one text; longer ones are cut
    warmup: float = 0.1  # share of the steps with a rising learning rate
    weight_decay: float = 0.01  # decoupled; not for biases, LayerNorms and learned steps
    adam_epsilon: float = 1e-6  # added to the denominator of Adam
    bias_correction: bool = True  # Adam as in its paper; BertAdam of the released code has none
    clip: Literal["tensor", "global"] = "tensor"  # the gradient of each tensor (the released code), or all as one
    clip_norm: float = 1.0  # the largest norm of a gradient; 0 for no clipping
    step_learning_rate: float = 1e-4  # peak learning rate of learned quantizer steps (BinaryBERT's LSQ)
    dropout: float = 0.0  # of hidden states, attention and classifier
    eval_every: int = 200  # steps between evaluations, each with a checkpoint; 0 for once an epoch; one more at the end
    evaluations: int = 0  # at least this many evaluations, evenly spaced, if `eval_every` gives fewer
    log_every: int = 20  # optimizer steps between lines of the log
    # The model that a run ends with: on few dev rows the best evaluation is a lucky one, and the last a better choice.
    select: Literal["best", "last"] = "best"
    patience: int = 0  # stop after this many evaluations without a better one; 0 for never
    # The greatest decay of a running mean of the weights, evaluated and saved instead of them; 0 for none. The decay
    # grows with the steps n, as (1 + n) / (10 + n), so that the mean of a short run covers its last steps only.
    average: float = 0.0
    label_smoothing: float = 0.0  # the share of each gold label that is spread over all classes
    class_weights: bool = False  # weigh gold labels by the inverse of their frequency
    precision: Precision = "float32"  # of products in a training step; losses, updates, evaluations are in float32
    texts_share: float = 0.5  # the share of each batch that is unlabelled text, if there is any
    seed: int = 42  # of everything random
    norm_scope: Literal["sample", "batch"] = "sample"  # of direction losses: a norm per sample and head, or per batch
    mask_padding: bool = True  # exclude padding tokens from the distillation terms
    weights: Mapping[str, float] = field(default_factory=dict)  # of loss terms, over the scheme's; 0 drops a term

    def __post_init__(self) -> None:
        for names, holds, rule in RANGES:
            for name in names:
                if not holds(getattr(self, name)):
                    raise RecipeError(f"recipe: {name} is {getattr(self, name)}; it must be {rule}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for run.json."""
        return asdict(self) | {"weights": dict(self.weights)}

    def with_changes(self, changes: Mapping[str, Any], where: str) -> "Recipe":
        """A copy with some fields changed, after checking names and types; `where` starts the error message.

        A table of weights changes only the terms that it names.
        """
        types = get_type_hints(Recipe)
        checked = {}
        for name, value in changes.items():
            if name not in types:
                raise RecipeError(f"{where}: unknown key {name!r}; {did_you_mean(name, types)}")
            checked[name] = _checked(value, types[name], f"{where}: {name}")
        return replace(self, **checked | {"weights": {**self.weights, **checked.get("weights", {})}})


def _checked(value: Any, kind: Any, where: str) -> Any:
    """`value` as the type of its field."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise RecipeError(f"{where} is {value!r}; choose one of {', '.join(map(repr, get_args(kind)))}")
        return value
    if get_origin(kind) is not None:  # the one mapping: weights
        if not isinstance(value, Mapping):
            raise RecipeError(f"{where} is {value!r}; write a table [weights] with a number for each term")
        return {str(name): _checked(weight, float, f"{where}.{name}") for name, weight in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise RecipeError(f"{where} is {value!r} ({type(value).__name__}); it must be of type {kind.__name__}")
    return value


def presets() -> dict[str, dict[str, Any]]:
    """The tables of presets.toml by name."""
    return tomllib.loads(resources.files("bibert.recipes").joinpath("presets.toml").read_text(encoding="utf-8"))


def with_defaults(noted: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded recipe with every field; fields that its version did not have get their default."""
    return {**Recipe().to_dict(), **noted}


def load_recipe(name_or_path: str | Path, changes: Mapping[str, Any] | None = None) -> Recipe:
    """A preset by name, or a TOML file, with `changes` on top; `RecipeError` if a file, key or value is wrong.

    If `epochs` change, the limits of the preset on steps no longer hold.
    """
    known, name = presets(), str(name_or_path)
    where = f"preset {name}" if name in known else name
    table = known[name] if name in known else _read(Path(name_or_path), known)
    recipe = Recipe()
    for values in _lineage(table, where, known):
        recipe = recipe.with_changes(values, where)
    changes = changes or {}
    if "epochs" in changes:  # a preset's limits would undo them
        own = {} if name in known else table
        changes = {limit: 0 for limit in ("min_steps", "max_steps") if limit not in own} | dict(changes)
    return recipe.with_changes(changes, "recipe")


def _lineage(table: Mapping[str, Any], where: str, known: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The values of every preset that a table extends, in order, then its own."""
    own = dict(table)
    extended = own.pop("extends", [])
    lineage = []
    for name in extended if isinstance(extended, list) else [extended]:
        if not isinstance(name, str) or name not in known:
            raise RecipeError(f"{where}: extends {name!r}, which is not a preset; {did_you_mean(str(name), known)}")
        lineage += _lineage(known[name], f"preset {name}", known)
    return [*lineage, own]


def _read(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    if not path.is_file():
        raise RecipeError(f"{path}: no such recipe file or preset; presets: {', '.join(known)}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows editors write a BOM
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from error

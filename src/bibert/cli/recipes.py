"""`bibert recipes`: the recipe presets, and every setting of one of them as a TOML file to start from."""

from json import dumps
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json

# When to use a preset, by its name or the first part of it.
USE = {
    "labels": "train without a teacher: the default",
    "student": "train --checkpoint, and distill: the default",
    "teacher": "finetune, and the teacher of train: the default",
    "general": "generalize: the default",
    "flagship": "how the shipped sst2 and its teacher were made",
    "cpu": "GLUE on a CPU, in bibert reproduce",
    "paper": "GLUE as the paper says: a GPU and many hours",
    "released": "GLUE as the paper's released code does it",
    "rival": "what the recipes of the rivals below have in common",
    "ternarybert": "the schemes ternarybert_*, as their authors trained",
    "binarybert": "the schemes binarybert_*, as their authors trained",
    "bit": "GLUE as BiT trains its students",
}
SHOWN = ("learning_rate", "epochs", "batch_size", "max_length", "eval_every")  # of every preset


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="A preset, to print all its settings as TOML.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show the presets for --recipe and --teacher-recipe and when to use them, or all settings of one.

    For your own data the defaults are the right ones; change single settings with --set.

    Example: bibert recipes student > mine.toml
    """
    from bibert.training.recipe import load_recipe, presets

    if name is not None:
        values = load_recipe(name).to_dict()
        if json:
            print_json(values)
        else:
            print("\n".join(f"{key} = {_toml(value)}" for key, value in values.items()))
        return
    found = {preset: load_recipe(preset).to_dict() for preset in presets()}
    if json:
        print_json(found)
        return
    table = Table(Column("preset", no_wrap=True), "use it for", *(key.replace("_", "\n") for key in SHOWN))
    for preset, values in found.items():
        use = USE.get(preset) or USE[preset.partition("-")[0]]
        table.add_row(preset, use, *(f"{values[key]:g}" for key in SHOWN))
    print_table(table)


def _toml(value: Any) -> str:
    """A setting as TOML, which writes numbers, strings and booleans as JSON does, but not the table of weights."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {number!r}" for key, number in value.items()) + " }" if value else "{}"
    return dumps(value)

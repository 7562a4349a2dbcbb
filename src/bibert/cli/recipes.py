"""`bibert recipes`: the recipe presets, and every setting of one of them as a TOML file to start from."""

from json import dumps
from typing import Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json

SHOWN = ("learning_rate", "epochs", "batch_size", "max_length", "eval_every")  # of every preset


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="A preset, to print all its settings as TOML.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show the presets for --recipe and --teacher-recipe, or all settings of one.

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
    table = Table("preset", *(key.replace("_", " ") for key in SHOWN))
    for preset, values in found.items():
        table.add_row(preset, *(f"{values[key]:g}" for key in SHOWN))
    print_table(table)


def _toml(value: Any) -> str:
    """A setting as TOML, which writes numbers, strings and booleans as JSON does, but not the table of weights."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {number!r}" for key, number in value.items()) + " }" if value else "{}"
    return dumps(value)

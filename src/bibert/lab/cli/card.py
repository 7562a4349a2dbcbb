"""`bibert card`: the card of a packed file, with figures measured on labelled rows."""

from pathlib import Path
from typing import Annotated

import typer

from bibert.cli.console import say
from bibert.cli.data_options import EvaluationOptions
from bibert.cli.options import ModelName, option, require_torch, with_option_groups
from bibert.data.glue import get_task
from bibert.models import DEFAULT


@with_option_groups
def card(
    data: EvaluationOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="The card, a Markdown file.")],
    title: Annotated[str, typer.Option(help="First line of the card.")],
    model: ModelName = DEFAULT,
    teacher: Annotated[Path | None, option("Model folder of its teacher, inside its run.", "--teacher", "-t")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights, as the Hub names it.")] = "other",
    limits: Annotated[list[str] | None, option("A sentence on what it cannot do; may be repeated.", "--limit")] = None,
) -> None:
    """Describe a packed file in Markdown: what it is, how good it is on labelled rows, how it was made.

    Example: bibert card dev.csv -m reviews.bibert --title "Sentiment of reviews" -o reviews.md
    """
    require_torch("bibert card")
    from bibert.lab.card import CardRequest
    from bibert.lab.card import card as write_card
    from bibert.lab.pages import save_page
    from bibert.runtime.classifier import load

    splits, metrics = data.load_splits(load(model, threads=1).labels)
    rows = next(iter(splits.values()))
    task = "" if data.task is None else get_task(data.task).name
    text = write_card(CardRequest(title, model, rows, task, metrics, teacher, licence, tuple(limits or ())))
    say(f"{save_page(text, output)}: measured on {len(rows):,} rows")

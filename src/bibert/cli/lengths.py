"""How many tokens of a text a trained model reads: the option `--max-length`, and what holds where it is not given."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from bibert.data.examples import MAX_LENGTH

MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens per text; longer ones are cut.",
        show_default=f"its training's, else {MAX_LENGTH}; at most the model's positions",
    ),
]


def usual_length(recipe: Mapping[str, Any], positions: int) -> int:
    """Tokens per text that a model was trained with; never more than it has positions.

    Args:
        recipe: the recipe of its run; empty for a model that lies in none.
        positions: rows of its position embedding.
    """
    return min(int(recipe.get("max_length", MAX_LENGTH)), positions)

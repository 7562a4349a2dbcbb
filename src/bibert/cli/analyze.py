"""`bibert analyze ...`: the paper's analysis as commands. Here is their list; each has a file of its own."""

import typer

from bibert.cli.analyze_theory import theory

analyze = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The paper's analysis: theorems, and what a model does inside."
)
analyze.command("theory")(theory)


@analyze.callback()
def _group() -> None:
    """The paper's analysis: theorems, and what a model does inside."""

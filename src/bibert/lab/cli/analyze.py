"""`bibert analyze ...`: the paper's analysis as commands. Here is their list; each has a file of its own."""

import typer

from bibert.lab.cli.analyze_attention import attention
from bibert.lab.cli.analyze_bottleneck import bottleneck
from bibert.lab.cli.analyze_cost import cost
from bibert.lab.cli.analyze_direction import direction
from bibert.lab.cli.analyze_entropy import entropy
from bibert.lab.cli.analyze_report import report
from bibert.lab.cli.analyze_theory import theory

analyze = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The paper's analysis: theorems, and what a model does inside."
)
analyze.command("theory")(theory)
analyze.command("entropy")(entropy)
analyze.command("direction")(direction)
analyze.command("attention")(attention)
analyze.command("cost")(cost)
analyze.command("bottleneck")(bottleneck)
analyze.command("report")(report)


@analyze.callback()
def _group() -> None:
    """The paper's analysis: theorems, and what a model does inside."""

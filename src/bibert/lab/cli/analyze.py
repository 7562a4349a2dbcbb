"""`bibert analyze ...`: the paper's analysis as commands, listed here; `theory` and `bottleneck` are in this file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json, with_option_groups
from bibert.data.glue import TASKS
from bibert.errors import DataError
from bibert.lab.attention import score_shares
from bibert.lab.cli.analyze_cost import cost
from bibert.lab.cli.analyze_inside import direction, entropy
from bibert.lab.cli.analyze_pages import attention, report
from bibert.lab.cli.options import FigureFile, TextOptions, check_figure, load_subjects, print_rows, save_drawn
from bibert.lab.cli.rows import number, plain_table, word
from bibert.lab.plots.bottleneck import draw_bottlenecks
from bibert.lab.plots.curves import draw_theory
from bibert.lab.tables import BASELINE, KEPT, WITHOUT, Difference, load_bottlenecks
from bibert.lab.theory import statements

analyze = typer.Typer(no_args_is_help=True, add_completion=False)

STATEMENTS = {
    "theorem_1": ("Theorem 1: the threshold of a softmax with the most entropy falls with its length k", ""),
    "theorem_2": (
        "Theorem 2: scores of two rows of D random bits are binomial, close to N(0, D)",
        "N(0, D) describes the integer scores shown here; after the paper's 1/√D it is N(0, 1). A score of 0 is "
        "attended to, as the paper defines bool; its released code leaves it out.",
    ),
    "theorem_3": (
        "Theorem 3: wrong directions in percent with Q bits",
        "The paper's proof assumes that the direction is always right beyond the range of the quantizer; that "
        "saturation is the entire floor. Its quantizer as printed does not have 2^Q levels, but the probabilities are "
        "the same. 1 bit is wrong 4.28 times as often as 4 bits, in the paper's samples 4.4 times.",
    ),
    "proposition_1": ("Proposition 1: the entropy of sign(X), X normal", ""),
    "quantiles": ("Entropy of attention weights of which a share is zero", ""),
}
WORDS = {KEPT: "in full precision", WITHOUT: "not distilled"}
NOTE = (
    "mean of the seeds; ± is one standard error of the difference on the dev set (binomial, as if both models erred "
    "independently); the paper's accuracies are its printed differences added to its baseline"
)


@analyze.callback()
def _group() -> None:
    """The paper's analysis: theorems, and the inside of models."""


@with_option_groups
def theory(
    texts: TextOptions,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL...]", help="Trained students, whose scores are set beside Theorem 2.", show_default=False
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples of Theorem 3's simulation.")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of Theorem 1's simulation.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulations.")] = 0,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Compute the paper's theorems by simulation, and exactly where a closed form exists, beside the printed figures.

    Example: bibert analyze theory
    """
    check_figure(output)
    read = texts.load()
    if bool(models) != bool(read):
        raise DataError("models and texts go together: give both to see trained scores, or neither")
    shares = {title: score_shares(one.insides(read)) for title, one in load_subjects(models or []).items()}
    sizes = {title: table.shape[1] - 1 for title, table in shares.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"the models have heads of different sizes ({sizes}); show them one by one")
    found = statements(shares, samples, rows, seed)
    save_drawn(output, draw_theory, found, shares)
    if json:
        print_json(found)
        return
    for name, (title, note) in STATEMENTS.items():
        columns = [column.replace("_", " ") for column in found[name][0]]
        cells = [[f"{x:.5g}" if isinstance(x, float) else str(x) for x in line.values()] for line in found[name]]
        print_rows(title, columns, cells, note=note)


def bottleneck(
    results: Annotated[
        Path, typer.Argument(help="results.json of `bibert reproduce --table bottlenecks`, or its folder.")
    ],
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Show how keeping one structure in full precision, or dropping one loss term, changes the baseline's accuracy.

    Example: bibert analyze bottleneck runs/bottlenecks/results.json -o bottlenecks.svg
    """
    check_figure(output)
    found = load_bottlenecks(results)
    save_drawn(output, draw_bottlenecks, {TASKS[task].name: one.changes for task, one in found.items()})
    if json:
        print_json({task: asdict(one) for task, one in found.items()})
        return
    columns = [word(), word(), number("ours"), number(), number("paper"), number()]
    for task, one in found.items():
        ours, papers = ("–" if accuracy is None else f"{accuracy:.2f}" for accuracy in one.baseline.values())
        rows = [[BASELINE, "", ours, "", papers, ""]]
        before = ""
        for line in one.changes:
            group = WORDS[line.change] if line.change != before else ""
            rows.append([group, line.what, *_cells(line.ours), *_cells(line.paper)])
            before = line.change
        title = f"{TASKS[task].name}, {one.texts:,} texts: accuracy and its difference to the baseline"
        table = plain_table(title, columns, rows)
        table.caption, table.caption_justify = NOTE, "left"
        print_table(table)


def _cells(difference: Difference | None) -> tuple[str, str]:
    if difference is None:
        return "–", ""
    return f"{difference.accuracy:.2f}", f"{difference.points:+.2f} ± {difference.error:.2f}"


for command in (theory, entropy, direction, attention, cost, bottleneck, report):
    analyze.command(command.__name__)(command)

"""`bibert analyze cost`: which printed sizes and FLOPs follow from a rule, and the paper's Figure 1."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.data.glue import TASKS
from bibert.lab.architecture import ARCHITECTURES, describe, get_architecture, name_of
from bibert.lab.cli.options import FigureFile, save_drawn
from bibert.lab.cli.rows import notes_table, number, plain_table, word
from bibert.lab.cost import (
    GIGA,
    MIB,
    RULES,
    TOKENS,
    Cost,
    Figure,
    Verdict,
    cost_of,
    readings_of_13_4,
    schemes_by_figure,
)
from bibert.lab.paper import TABLE_2
from bibert.lab.parts import beside_the_rule, bytes_rows, scheme_of_file
from bibert.models import find_file
from bibert.nn.schemes import SCHEMES, get_scheme
from bibert.packed.file import PackedModel, load

SHAPES = ", ".join(ARCHITECTURES)
SHAPES_HELP = f"Add a shape with all schemes: {SHAPES}, a config.json or its folder. May be repeated."
FILE_HELP = "Show the bytes of this packed file beside the rule. May be repeated."
PAPERS = tuple(dict.fromkeys(row.architecture for row in TABLE_2.rows))
HEADS = {"size": "size, MB", "flops": "FLOPs, G", "extra_flops": "ΔFLOPs, G"}
DIGITS = {"size": 2, "flops": 3, "extra_flops": 4}
WORDS = {None: "", Verdict.EQUAL: "reproduced", Verdict.CLOSE: "close", Verdict.DIFFERENT: "not"}


def cost(
    architecture: Annotated[
        list[str] | None, typer.Option("--architecture", "-a", help=SHAPES_HELP, show_default=False)
    ] = None,
    packed: Annotated[list[str] | None, typer.Option(metavar="FILE", help=FILE_HELP, show_default=False)] = None,
    output: FigureFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show which of the paper's sizes and FLOPs follow from a rule, from which, and why the others do not.

    A figure is the paper's Figure 1, accuracy against FLOPs and size, with packed files beside the printed rows: on
    GLUE on average, or on the GLUE task that the first packed file was trained on.

    Example: bibert analyze cost --packed model.bibert
    """
    asked = {name_of(shape) or word: shape for word in architecture or () for shape in [get_architecture(word)]}
    shapes = {name: ARCHITECTURES[name] for name in PAPERS} | asked
    figures = {name: schemes_by_figure(shape, printed=name not in asked) for name, shape in shapes.items()}
    models = {str(path): load(path) for path in map(find_file, packed or ())}
    files = {path: beside_the_rule(model, len(model.tokenizer)) for path, model in models.items()}
    save_drawn(output, lambda: _draw_savings(list(models.items())))
    pairs = [(figure, scheme) for found in figures.values() for figure, schemes in found.items() for scheme in schemes]
    verdicts = Counter(figure.verdict for figure, _ in pairs if figure.verdict)
    if json:
        found = [
            {"architecture": name, "column": figure.column, "schemes": schemes, "rule": figure.rule}
            | {"ours": figure.ours, "paper": figure.to_dict()}
            for name, of_shape in figures.items()
            for figure, schemes in of_shape.items()
        ]
        printed = {verdict.name.lower(): count for verdict, count in verdicts.items()}
        readings = {"readings_of_13_4_mib": readings_of_13_4()}
        parts = {file: [asdict(part) for part in of_file] for file, of_file in files.items()}
        print_json({"figures": found, "printed": printed, "rules": dict(RULES), **readings, "packed": parts})
        return
    for name, shape in shapes.items():
        title = f"{name} ({describe(shape)}), FLOPs of {min(TOKENS, shape.positions)} tokens"
        print_table(_figures_table(title, figures[name]))
    print_table(_notes(verdicts))
    for file, of_file in files.items():
        *rows, total = bytes_rows(of_file)
        columns = (word("bytes of"), number("rule"), number("file"), "why they differ")
        print_table(plain_table(f"\n{file}", columns, rows, total))


def _draw_savings(models: Sequence[tuple[str, PackedModel]]) -> Any:
    """Table 2 on one task, or on average without a model of ours; models of other tasks are left out."""
    from bibert.lab.plots.scatter import Costly, draw_savings

    names = [task for _, model in models for task in TASKS if TASKS[task].name == model.about["data"]["name"]][:1]
    rows = []
    for row in TABLE_2.rows:
        score = row.average if not names else row.scores.get("mnli_matched" if names == ["mnli"] else names[0])
        if score is not None and row.size is not None and row.flops is not None:
            cost = cost_of(ARCHITECTURES[row.architecture], get_scheme(row.scheme))
            name = row.scheme if row.architecture == "bert-base" else f"{row.scheme}, {row.architecture}"
            printed = {"flops": float(row.flops), "size": float(row.size)}
            rows.append(Costly(name, float(score), printed, _counted(cost)))
    for path, model in models:
        if names and model.about["data"]["name"] == TASKS[names[0]].name:
            cost = cost_of(model.config, scheme_of_file(model.config, "ours"))
            score = 100 * model.about["metrics"][f"dev_{TASKS[names[0]].metrics[0]}"]
            rows.append(Costly(Path(path).stem, score, {}, _counted(cost)))
    measured = f"{TASKS[names[0]].name} dev, {TASKS[names[0]].metrics[0]}, percent" if names else "GLUE dev, average"
    return draw_savings(rows, measured)


def _counted(cost: Cost) -> dict[str, float]:
    return {"flops": cost.flops.total / GIGA, "size": cost.size.mib}


def _figures_table(title: str, found: Mapping[Figure, list[str]]) -> Table:
    rows, before = [], ""
    for figure, schemes in found.items():
        head = HEADS[figure.column] if figure.column != before else ""
        numbers = ["–" if figure.printed is None else str(figure.printed), f"{figure.ours:.{DIGITS[figure.column]}f}"]
        who = ", ".join(schemes) + (f": {figure.reason}" if figure.reason else "")
        rows.append([head, *numbers, WORDS[figure.verdict], figure.rule, who])
        before = figure.column
    columns = (word(""), number("paper"), number("ours"), word(""), word("rule"), "schemes, and why not")
    return plain_table(title, columns, [*rows, []])


def _notes(verdicts: Counter[Verdict]) -> Table:
    sizes = [cost_of(ARCHITECTURES[name], SCHEMES["bibert"]).size for name in PAPERS]
    scales = [f"{size.scale_bytes / MIB:.2f}" for size in sizes]
    figures = (
        f"of {verdicts.total()} that the paper prints in Table 2 (Table 3 repeats them) and its appendix, "
        f"{verdicts[Verdict.EQUAL]} are reproduced: ours rounds to them; {verdicts[Verdict.CLOSE]} are close, within "
        f"one unit of the last digit; {verdicts[Verdict.DIFFERENT]} are not reproduced"
    )
    mb = f"is 2^20 bytes in the paper; a file of bibert needs {' / '.join(scales)} more than the rule, for scales"
    readings = [("13.4 MB", f"{reading}: {mib:.2f}") for reading, mib in readings_of_13_4().items()]
    return notes_table([("figures", figures), ("MB", mb), *RULES.items(), *readings])

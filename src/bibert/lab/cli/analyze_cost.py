"""`bibert analyze cost`: the sizes and FLOPs that the paper prints, figure by figure, beside the rules.

It also shows the bytes of packed files beside the size rule. `bibert schemes` lists one shape scheme by scheme.
"""

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json, option
from bibert.lab.architecture import ARCHITECTURES, describe, get_architecture, name_of
from bibert.lab.comparison import Figure, Verdict, figures, readings_of_13_4
from bibert.lab.cost import MIB, RULES, TOKENS, size
from bibert.lab.paper import TABLE_2
from bibert.lab.parts import PartBytes, beside_the_rule
from bibert.models import find_file
from bibert.nn.schemes import SCHEMES
from bibert.packed.file import load
from bibert.packed.schema import PackedConfig

PAPERS = tuple(dict.fromkeys(row.architecture for row in TABLE_2.rows))
HEADS = {"size": "size, MB", "flops": "FLOPs, G", "extra_flops": "ΔFLOPs, G"}
DIGITS = {"size": 2, "flops": 3, "extra_flops": 4}
WORDS = {Verdict.EQUAL: "reproduced", Verdict.CLOSE: "close", Verdict.DIFFERENT: "not"}
SHAPE_HELP = f"Add a shape with all schemes: {', '.join(ARCHITECTURES)}, a config.json or its folder. May be repeated."
Shapes = dict[str, tuple[PackedConfig, list[Figure]]]


def cost(
    architecture: Annotated[list[str] | None, option(SHAPE_HELP, "--architecture", "-a")] = None,
    packed: Annotated[
        list[str] | None, option("Show the bytes of this packed file beside the rule. May be repeated.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """Show which of the paper's sizes and FLOPs follow from a rule, from which, and why the others do not.

    Example: bibert analyze cost --packed model.bibert
    """
    shapes: Shapes = {}
    for name in PAPERS:
        found = figures(ARCHITECTURES[name])
        shapes[name] = ARCHITECTURES[name], [figure for figure in found if figure.printed is not None]
    for word in architecture or ():
        shape = get_architecture(word)
        shapes[name_of(shape) or word] = shape, figures(shape)
    files = dict(map(_file, packed or ()))
    if json:
        print_json(_as_json(shapes, files))
        return
    for name, (shape, found) in shapes.items():
        title = f"{name} ({describe(shape)}), FLOPs of {min(TOKENS, shape.positions)} tokens"
        print_table(_figures_table(title, found))
    print_table(_notes(shapes))
    for file, parts in files.items():
        print_table(_file_table(file, parts))


def _file(model: str) -> tuple[str, list[PartBytes]]:
    path = find_file(model)
    found = load(path)
    return str(path), beside_the_rule(found, len(found.tokenizer))


def _verdicts(shapes: Shapes) -> Counter[Verdict]:
    """How many printed figures, each of a scheme, have which verdict."""
    counts: Counter[Verdict] = Counter()
    for figure in (figure for _, found in shapes.values() for figure in found):
        if figure.printed is not None:
            counts[figure.printed.verdict] += len(figure.schemes)
    return counts


def _figures_table(title: str, found: list[Figure]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("", "paper", "ours", "", "rule"):
        table.add_column(head, justify="right" if head in ("paper", "ours") else "left", no_wrap=True)
    table.add_column("schemes, and why not")
    before = ""
    for figure in found:
        printed, who = figure.printed, ", ".join(figure.schemes)
        table.add_row(
            HEADS[figure.column] if figure.column != before else "",
            "–" if printed is None else str(printed.printed),
            f"{figure.ours:.{DIGITS[figure.column]}f}",
            "" if printed is None else WORDS[printed.verdict],
            figure.rule,
            f"{who}: {printed.reason}" if printed and printed.reason else who,
        )
        before = figure.column
    table.add_row()
    return table


def _notes(shapes: Shapes) -> Table:
    counts = _verdicts(shapes)
    notes = Table.grid(padding=(0, 2, 0, 0))
    notes.add_column(no_wrap=True)
    notes.add_column()
    notes.add_row(
        "figures",
        f"of {counts.total()} that the paper prints in Table 2 (Table 3 repeats them) and its appendix, "
        f"{counts[Verdict.EQUAL]} are reproduced: ours rounds to them; {counts[Verdict.CLOSE]} are close, within one "
        f"unit of the last digit; {counts[Verdict.DIFFERENT]} are not reproduced",
    )
    scales = [f"{size(ARCHITECTURES[name], SCHEMES['bibert']).scale_bytes / MIB:.2f}" for name in PAPERS]
    notes.add_row(
        "MB", f"is 2^20 bytes in the paper; a file of bibert needs {' / '.join(scales)} more than the rule, for scales"
    )
    for name, text in RULES.items():
        notes.add_row(name, text)
    for reading, mib in readings_of_13_4().items():
        notes.add_row("13.4 MB", f"{reading}: {mib:.2f}")
    notes.add_row()
    return notes


def _file_table(file: str, parts: list[PartBytes]) -> Table:
    table = Table(title=file, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("bytes of", no_wrap=True)
    table.add_column("rule", justify="right", no_wrap=True)
    table.add_column("file", justify="right", no_wrap=True)
    table.add_column("why they differ")
    for part in parts:
        table.add_row(part.part, f"{part.by_rule:,.0f}", f"{part.in_file:,}", part.reason)
    by_rule, in_file = sum(part.by_rule for part in parts), sum(part.in_file for part in parts)
    note = f"{by_rule / MIB:.2f} MiB by the rule, {in_file / MIB:.2f} in the file"
    table.add_row("total", f"{by_rule:,.0f}", f"{in_file:,}", note, style="bold")
    return table


def _as_json(shapes: Shapes, files: dict[str, list[PartBytes]]) -> dict[str, Any]:
    return {
        "figures": [
            {
                "architecture": name,
                "column": figure.column,
                "schemes": list(figure.schemes),
                "rule": figure.rule,
                "ours": figure.ours,
                "paper": None if figure.printed is None else figure.printed.to_dict(),
            }
            for name, (_, found) in shapes.items()
            for figure in found
        ],
        "printed": {verdict.name.lower(): count for verdict, count in _verdicts(shapes).items()},
        "rules": dict(RULES),
        "readings_of_13_4_mib": readings_of_13_4(),
        "packed": {file: [asdict(part) for part in parts] for file, parts in files.items()},
    }

"""`bibert analyze cost`: the sizes and FLOPs that the paper prints, figure by figure, beside the rules.

It also shows the bytes of packed files beside the size rule. `bibert schemes` lists one shape scheme by scheme.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json, option
from bibert.lab.architecture import ARCHITECTURES, describe, get_architecture, name_of
from bibert.lab.cli.rows import notes_table, number, plain_table, word
from bibert.lab.comparison import Figure, Verdict, readings_of_13_4, schemes_by_figure
from bibert.lab.cost import MIB, RULES, TOKENS, size
from bibert.lab.paper import TABLE_2
from bibert.lab.parts import beside_the_rule, bytes_rows
from bibert.models import find_file
from bibert.nn.schemes import SCHEMES
from bibert.packed.file import load

PAPERS = tuple(dict.fromkeys(row.architecture for row in TABLE_2.rows))
HEADS = {"size": "size, MB", "flops": "FLOPs, G", "extra_flops": "ΔFLOPs, G"}
DIGITS = {"size": 2, "flops": 3, "extra_flops": 4}
WORDS = {None: "", Verdict.EQUAL: "reproduced", Verdict.CLOSE: "close", Verdict.DIFFERENT: "not"}
SHAPE_HELP = f"Add a shape with all schemes: {', '.join(ARCHITECTURES)}, a config.json or its folder. May be repeated."


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
    asked = {name_of(shape) or word: shape for word in architecture or () for shape in [get_architecture(word)]}
    shapes = {name: ARCHITECTURES[name] for name in PAPERS} | asked
    figures = {name: schemes_by_figure(shape, printed=name not in asked) for name, shape in shapes.items()}
    models = {str(path): load(path) for path in map(find_file, packed or ())}
    files = {path: beside_the_rule(model, len(model.tokenizer)) for path, model in models.items()}
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
    scales = [f"{size(ARCHITECTURES[name], SCHEMES['bibert']).scale_bytes / MIB:.2f}" for name in PAPERS]
    figures = (
        f"of {verdicts.total()} that the paper prints in Table 2 (Table 3 repeats them) and its appendix, "
        f"{verdicts[Verdict.EQUAL]} are reproduced: ours rounds to them; {verdicts[Verdict.CLOSE]} are close, within "
        f"one unit of the last digit; {verdicts[Verdict.DIFFERENT]} are not reproduced"
    )
    mb = f"is 2^20 bytes in the paper; a file of bibert needs {' / '.join(scales)} more than the rule, for scales"
    readings = [("13.4 MB", f"{reading}: {mib:.2f}") for reading, mib in readings_of_13_4().items()]
    return notes_table([("figures", figures), ("MB", mb), *RULES.items(), *readings])

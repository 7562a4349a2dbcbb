"""`bibert analyze cost`: every printed size and FLOPs figure beside the rule that gives it, or why none does.

`bibert schemes` goes scheme by scheme on one shape; this goes figure by figure through the paper's shapes, and sets
the bytes of real files beside the rule. The counting and the reasons are in `analysis`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json
from bibert.lab.architecture import ARCHITECTURES, Architecture, get_architecture, name_of
from bibert.lab.comparison import Figure, Verdict, figures
from bibert.lab.cost import MIB, RULES, TOKENS, readings_of_13_4, size
from bibert.lab.paper import TABLE_2
from bibert.nn.schemes import SCHEMES

if TYPE_CHECKING:
    from bibert.lab.packed_cost import PartBytes

PAPERS = tuple(dict.fromkeys(row.architecture for row in TABLE_2.rows))
HEADS = {"size": "size, MB", "flops": "FLOPs, G", "extra_flops": "ΔFLOPs, G"}
WORDS = {Verdict.EQUAL: "reproduced", Verdict.CLOSE: "close", Verdict.DIFFERENT: "not"}
DIGITS = {"size": 2, "flops": 3, "extra_flops": 4}
Shapes = dict[str, tuple[Architecture, list[Figure]]]


def cost(
    architecture: Annotated[
        list[str] | None,
        typer.Option(
            "--architecture",
            "-a",
            help=f"Another shape, with all schemes: {', '.join(ARCHITECTURES)}, a config.json or its folder. "
            "May be given several times.",
            show_default=False,
        ),
    ] = None,
    packed: Annotated[
        list[str] | None,
        typer.Option(
            help="A packed file, whose bytes are set beside the rule. May be given several times.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show which of the paper's sizes and FLOPs follow from a rule, by which, and why the others do not.

    Example: bibert analyze cost --packed model.bibert
    """
    shapes = _shapes(architecture or [])
    files = {str(path): parts for path, parts in map(_file, packed or [])}
    if json:
        print_json(_as_json(shapes, files))
        return
    for name, (shape, lines) in shapes.items():
        tokens = min(TOKENS, shape.positions)
        print_table(_figures_table(f"{name} ({shape}), FLOPs of {tokens} tokens", lines))
    print_table(_notes(shapes))
    for file, parts in files.items():
        print_table(_file_table(file, parts))


def _shapes(given: Iterable[str]) -> Shapes:
    """The paper's shapes with the figures it prints, and those that were asked for with all."""
    shapes = {name: (ARCHITECTURES[name], _printed(figures(ARCHITECTURES[name]))) for name in PAPERS}
    for word in given:
        shape = get_architecture(word)
        shapes[name_of(shape) or word] = (shape, figures(shape))
    return shapes


def _printed(lines: Iterable[Figure]) -> list[Figure]:
    return [line for line in lines if line.printed is not None]


def _file(model: str) -> "tuple[Path, list[PartBytes]]":
    from bibert.lab.packed_cost import beside_the_rule
    from bibert.models import find_file
    from bibert.packed.file import load

    path = find_file(model)
    found = load(path)
    return path, beside_the_rule(found, len(found.tokenizer))


def _summary(shapes: Shapes) -> Counter[Verdict]:
    """How many printed figures, each of a scheme, have which verdict."""
    counts: Counter[Verdict] = Counter()
    for _, lines in shapes.values():
        for line in lines:
            if line.printed is not None:
                counts[line.printed.verdict] += len(line.schemes)
    return counts


def _figures_table(title: str, lines: Iterable[Figure]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head, justify in (("", "left"), ("paper", "right"), ("ours", "right"), ("", "left"), ("rule", "left")):
        table.add_column(head, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("schemes, and why not")
    before = ""
    for line in lines:
        found = line.printed
        who = ", ".join(line.schemes)
        table.add_row(
            HEADS[line.column] if line.column != before else "",
            "–" if found is None else str(found.printed),
            f"{line.ours:.{DIGITS[line.column]}f}",
            "" if found is None else WORDS[found.verdict],
            line.rule,
            f"{who}: {found.reason}" if found and found.reason else who,
        )
        before = line.column
    table.add_row()
    return table


def _notes(shapes: Shapes) -> Table:
    counts = _summary(shapes)
    notes = Table.grid(padding=(0, 2, 0, 0))
    notes.add_column(no_wrap=True)
    notes.add_column()
    notes.add_row(
        "figures",
        f"of {counts.total()} that the paper prints in Table 2 (Table 3 repeats them) and its appendix, "
        f"{counts[Verdict.EQUAL]} are reproduced: ours rounds to them; {counts[Verdict.CLOSE]} are close, within one "
        f"unit of the last digit; {counts[Verdict.DIFFERENT]} are not reproduced",
    )
    notes.add_row(
        "MB", f"is 2^20 bytes in the paper; a file of bibert needs {_scales()} more than the rule, for scales"
    )
    for name, text in RULES.items():
        notes.add_row(name, text)
    for reading, mib in _readings().items():
        notes.add_row("13.4 MB", f"{reading}: {mib:.2f}")
    notes.add_row()
    return notes


def _scales() -> str:
    return " / ".join(f"{size(ARCHITECTURES[name], SCHEMES['bibert']).scale_bytes / MIB:.2f}" for name in PAPERS)


def _readings() -> dict[str, float]:
    return dict(readings_of_13_4(ARCHITECTURES[PAPERS[0]], SCHEMES["bibert"]))


def _file_table(file: str, parts: "list[PartBytes]") -> Table:
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


def _as_json(shapes: Shapes, files: "dict[str, list[PartBytes]]") -> dict[str, Any]:
    return {
        "figures": [
            {
                "architecture": name,
                "column": line.column,
                "schemes": list(line.schemes),
                "rule": line.rule,
                "ours": line.ours,
                "paper": None if line.printed is None else line.printed.to_dict(),
            }
            for name, (_, lines) in shapes.items()
            for line in lines
        ],
        "printed": {verdict.name.lower(): count for verdict, count in _summary(shapes).items()},
        "rules": dict(RULES),
        "readings_of_13_4_mib": _readings(),
        "packed": {file: [asdict(part) for part in parts] for file, parts in files.items()},
    }

"""`bibert schemes`: every scheme with its bits, quantizers, losses, size and FLOPs, beside the paper's figures.

What is shown comes from `nn.schemes` and `analysis`; here it only becomes a table or JSON.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bibert.cli.console import WIDTH_OF_A_PIPE, print_json, print_table
from bibert.lab.architecture import ARCHITECTURES, Architecture, count_parameters, get_architecture, name_of
from bibert.lab.comparison import GIGA, Comparison, Cost, cost_of
from bibert.lab.cost import MIB, RULES, TOKENS
from bibert.lab.paper import notes_on
from bibert.nn.schemes import SCHEMES, Scheme, Stage, get_scheme

WIDE = 120  # the width of a table with all columns; below it, those that describe a scheme are left out


def schemes(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCHEME", help="Such as bibert or 'bibert(gain=row)'; all if not given.", show_default=False
        ),
    ] = None,
    architecture: Annotated[
        str,
        typer.Option(
            "--architecture",
            "-a",
            help=f"A shape by name ({', '.join(ARCHITECTURES)}), or a config.json or the folder that holds it.",
        ),
    ] = "bert-base",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the input that FLOPs are counted for.")] = TOKENS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with every part of each count.")] = False,
) -> None:
    """Show every scheme with its bits, size and FLOPs, beside the figures the paper prints; or some of them.

    Example: bibert schemes bibert "bibert(gain=row,thresholds=context)"
    """
    shape = get_architecture(architecture)
    wanted = [get_scheme(name) for name in names] if names else SCHEMES.values()
    lines = [Line(scheme, cost_of(shape, scheme, tokens)) for scheme in wanted]
    if json:
        print_json(as_json(shape, tokens, lines))
        return
    results = Console()
    width = results.width if results.is_terminal else WIDTH_OF_A_PIPE
    print_table(scheme_table(lines, width, title=_title(shape, tokens)))
    print_table(footnotes(lines, width))


@dataclass(frozen=True)
class Line:
    """A scheme and what it costs: one line of the table."""

    scheme: Scheme
    cost: Cost

    @property
    def reasons(self) -> list[str]:
        """Why printed figures of this line cannot be reproduced."""
        return [comparison.reason for comparison in self.cost.printed.values() if comparison.reason]


@dataclass(frozen=True)
class Column:
    """A column of the table: its head, what a line shows in it, and whether a narrow terminal leaves it out."""

    head: str
    cell: Callable[[Line], str]
    right: bool = False
    wide_only: bool = False
    width: int | None = None


def _title(shape: Architecture, tokens: int) -> str:
    parameters = count_parameters(shape).total
    return f"{name_of(shape) or 'BERT'} ({shape}): {parameters:,} parameters; FLOPs of {tokens} tokens"


def quantizers(scheme: Scheme) -> str:
    """Quantizers of weights, word embedding and activations; one name if all three are the same."""
    names = [scheme.weight, scheme.embedding, scheme.activation]
    text = names[0] if len(set(names)) == 1 else ", ".join(names)
    return f"{text}; FFN {scheme.ffn_input}" if scheme.ffn_input else text


def attention_form(scheme: Scheme) -> str:
    """Which quantizer meets what: `sign of softmax`, `bool of scores`."""
    source = "scores" if scheme.normalizer == "none" else scheme.normalizer
    if scheme.attention == "none":
        return source
    share = "" if scheme.quantile is None else f" {100 * scheme.quantile:g}%"
    return f"{scheme.attention}{share} of {source}"


def losses(schedule: tuple[Stage, ...]) -> str:
    """The name of a schedule; `footnotes` spell it out."""
    return schedule[0].name if len(schedule) == 1 else f"{len(schedule)} stages"


def _size(line: Line) -> str:
    mib = line.cost.size.mib
    return f"{mib:.1f}" if mib >= 100 else f"{mib:.2f}"


def _flops(line: Line) -> str:
    extra = line.cost.flops.threshold / GIGA
    return f"{line.cost.flops.total / GIGA:.3f}" + (f"\n+{extra:.3f}" if extra else "")


def _printed(comparison: Comparison | None) -> str:
    return f"{comparison.verdict} {comparison.printed}" if comparison else "-"


def _printed_flops(line: Line) -> str:
    printed, extra = line.cost.printed, line.cost.flops.threshold
    return _printed(printed.get("flops")) + (f"\n{_printed(printed.get('extra_flops'))}" if extra else "")


def _columns(numbers: Mapping[str, int]) -> tuple[Column, ...]:
    return (
        Column("scheme", lambda line: line.scheme.name),
        Column("W-E-A", lambda line: str(line.scheme.bits)),
        Column("quantizers\nW, E, A", lambda line: quantizers(line.scheme), wide_only=True, width=13),
        Column("attention\nweights", lambda line: attention_form(line.scheme), wide_only=True, width=15),
        Column("losses", lambda line: losses(line.scheme.schedule), wide_only=True),
        Column("MiB", _size, right=True),
        Column("paper", lambda line: _printed(line.cost.printed.get("size")), right=True),
        Column("GFLOPs", _flops, right=True),
        Column("paper", _printed_flops, right=True),
        Column("note", lambda line: " ".join(map(str, sorted(numbers[reason] for reason in line.reasons)))),
    )


def _numbered(lines: Iterable[Line]) -> dict[str, int]:
    """Reasons in the order of the table, each once, numbered from 1."""
    reasons = dict.fromkeys(reason for line in lines for reason in line.reasons)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def scheme_table(lines: list[Line], width: int, title: str = "") -> Table:
    """The table for a terminal of `width` columns."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    shown = [column for column in _columns(_numbered(lines)) if width >= WIDE or not column.wide_only]
    for column in shown:
        table.add_column(
            column.head,
            justify="right" if column.right else "left",
            width=column.width,
            no_wrap=column.width is None,
            vertical="top",
        )
    for line in lines:
        table.add_row(*(column.cell(line) for column in shown))
    return table


def footnotes(lines: list[Line], width: int) -> Table:
    """What the signs mean, by which rules we count, and why a printed figure cannot be reproduced."""
    notes = Table.grid(padding=(0, 1, 0, 0))
    notes.add_column(justify="right", no_wrap=True)
    notes.add_column()
    notes.add_row("", "")
    notes.add_row("=", "rounds to the paper's figure; ~ within one unit of its last digit; != neither; - not printed")
    notes.add_row("MiB", SIZE_RULE + _scales(lines))
    notes.add_row("GFLOPs", FLOPS_RULE)
    if width >= WIDE:
        for name, schedule in {losses(line.scheme.schedule): line.scheme.schedule for line in lines}.items():
            notes.add_row(name, _spelled_out(schedule))
    else:
        notes.add_row("more", f"{WIDE} columns show quantizers, attention and losses too; --json has everything")
    for reason, number in _numbered(lines).items():
        notes.add_row(str(number), reason)
    return notes


SIZE_RULE = (
    f"{RULES['bits_plus_float']} (bits_plus_float); Q-BERT and Q2BERT: {RULES['q_bert_tables']}; "
    f"BinaryBERT: {RULES['split_twice']}"
)
FLOPS_RULE = (
    f"{RULES['flops']}; + is the paper's charge for a threshold found at run time, which its Table 2 leaves out"
)


def _scales(lines: list[Line]) -> str:
    scales = {line.scheme.name: line.cost.size.scale_bytes / MIB for line in lines}
    name = "bibert" if "bibert" in scales else next(iter(scales))  # one stands for all
    return f"; a runnable file holds scales too ({name}: {scales[name]:.2f} MiB more)"


def _spelled_out(schedule: tuple[Stage, ...]) -> str:
    stages = [" + ".join(stage.terms) for stage in schedule]
    if len(schedule) == 1:
        return stages[0]
    return ", ".join(f"{stage.name}: {terms}" for stage, terms in zip(schedule, stages, strict=True))


def as_json(shape: Architecture, tokens: int, lines: list[Line]) -> dict[str, Any]:
    """Everything the table shows and the parts of each count, as plain values."""
    counts = count_parameters(shape)
    return {
        "architecture": {"name": name_of(shape), **asdict(shape)},
        "parameters": {**asdict(counts), "total": counts.total},
        "tokens": tokens,
        "schemes": [_line_as_json(line) for line in lines],
    }


def _line_as_json(line: Line) -> dict[str, Any]:
    size, flops = line.cost.size, line.cost.flops
    return {
        **line.scheme.to_dict(),
        "size": {
            "rule": size.rule,
            "mib": size.mib,
            "mib_with_scales": size.mib_with_scales,
            "bytes": dict(size.parts),
            "scale_bytes": size.scale_bytes,
        },
        "flops": {"total": flops.total, "products": flops.products, **asdict(flops)},
        "paper": {column: figure.to_dict() for column, figure in line.cost.printed.items()},
        "notes": [f"{note.table}: {note.text}" for note in notes_on(line.scheme.name)],
    }

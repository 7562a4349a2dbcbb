"""`bibert schemes`: every scheme with its bits, quantizers, losses, size and FLOPs beside the paper's figures."""

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bibert.cli.console import WIDTH_OF_A_PIPE, print_json, print_table
from bibert.lab.architecture import (
    ARCHITECTURES,
    count_parameters,
    describe,
    get_architecture,
    name_of,
    total_parameters,
)
from bibert.lab.comparison import GIGA, Comparison, Cost, cost_of
from bibert.lab.cost import MIB, RULES, TOKENS
from bibert.lab.paper import notes_on
from bibert.nn.schemes import SCHEMES, Scheme, Stage, get_scheme
from bibert.packed.schema import PackedConfig

WIDE = 120  # columns of a terminal that shows the whole table; narrower ones leave out the description of the scheme
SIZES = ("layers", "hidden", "heads", "intermediate", "vocabulary", "positions", "token_types", "labels")


def schemes(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCHEME", help="Such as bibert or 'bibert(gain=row)'; all by default.", show_default=False
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
    tokens: Annotated[int, typer.Option(min=1, help="Length of the input for FLOPs.")] = TOKENS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with every part of each count.")] = False,
) -> None:
    """Show all or some schemes with their bits, size and FLOPs beside the figures that the paper prints.

    Example: bibert schemes bibert "bibert(gain=row,thresholds=context)"
    """
    shape = get_architecture(architecture)
    wanted = [get_scheme(name) for name in names] if names else SCHEMES.values()
    costs = [cost_of(shape, scheme, tokens) for scheme in wanted]
    if json:
        print_json(_as_json(shape, tokens, costs))
        return
    results = Console()
    width = results.width if results.is_terminal else WIDTH_OF_A_PIPE
    title = f"{name_of(shape) or 'BERT'} ({describe(shape)}): {total_parameters(shape):,} parameters"
    print_table(scheme_table(costs, width, title=f"{title}; FLOPs of {tokens} tokens"))
    print_table(footnotes(costs, width))


def scheme_table(costs: list[Cost], width: int, title: str = "") -> Table:
    """The table for a terminal of `width` columns."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("scheme", no_wrap=True)
    table.add_column("W-E-A", no_wrap=True)
    if width >= WIDE:
        table.add_column("quantizers\nW, E, A", width=13)
        table.add_column("attention\nweights", width=15)
        table.add_column("losses", no_wrap=True)
    for head in ("MiB", "paper", "GFLOPs", "paper"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("note", no_wrap=True)
    numbers = _numbered(costs)
    for cost in costs:
        scheme, notes = cost.scheme, sorted(numbers[reason] for reason in cost.reasons)
        described = (_quantizers(scheme), _attention(scheme), _losses(scheme.schedule)) if width >= WIDE else ()
        table.add_row(scheme.name, str(scheme.bits), *described, *_figures(cost), " ".join(map(str, notes)))
    return table


def _numbered(costs: list[Cost]) -> dict[str, int]:
    """Reasons in the order of the table, each once, numbered from 1."""
    reasons = dict.fromkeys(reason for cost in costs for reason in cost.reasons)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _quantizers(scheme: Scheme) -> str:
    """Quantizers of weights, word embedding and activations; one name if all three are the same."""
    text = ", ".join((scheme.weight, scheme.embedding, scheme.activation))
    text = scheme.weight if scheme.weight == scheme.embedding == scheme.activation else text
    return f"{text}; FFN {scheme.ffn_input}" if scheme.ffn_input else text


def _attention(scheme: Scheme) -> str:
    """What is quantized by what: `sign of softmax`, `bool of scores`."""
    source = "scores" if scheme.normalizer == "none" else scheme.normalizer
    share = "" if scheme.quantile is None else f" {100 * scheme.quantile:g}%"
    return source if scheme.attention == "none" else f"{scheme.attention}{share} of {source}"


def _losses(schedule: tuple[Stage, ...]) -> str:
    """The name of a schedule; `footnotes` spells it out."""
    return schedule[0].name if len(schedule) == 1 else f"{len(schedule)} stages"


def _figures(cost: Cost) -> tuple[str, str, str, str]:
    """Size and FLOPs, ours and the paper's; a threshold found at run time has a line of its own."""
    mib, extra = cost.size.mib, cost.flops.threshold / GIGA
    flops, printed = f"{cost.flops.total / GIGA:.3f}", _printed(cost.printed.get("flops"))
    if extra:
        flops, printed = f"{flops}\n+{extra:.3f}", f"{printed}\n{_printed(cost.printed.get('extra_flops'))}"
    return f"{mib:.1f}" if mib >= 100 else f"{mib:.2f}", _printed(cost.printed.get("size")), flops, printed


def _printed(comparison: Comparison | None) -> str:
    return f"{comparison.verdict} {comparison.printed}" if comparison else "-"


def footnotes(costs: list[Cost], width: int) -> Table:
    """The meaning of the signs, our rules, and why some printed figures cannot be reproduced."""
    notes = Table.grid(padding=(0, 1, 0, 0))
    notes.add_column(justify="right", no_wrap=True)
    notes.add_column()
    notes.add_row("", "")
    notes.add_row("=", "rounds to the paper's figure; ~ within one unit of its last digit; != neither; - not printed")
    scales = {cost.scheme.name: f"{cost.size.scale_bytes / MIB:.2f}" for cost in costs}
    example = "bibert" if "bibert" in scales else next(iter(scales))
    notes.add_row(
        "MiB",
        f"{RULES['bits_plus_float']} (bits_plus_float); Q-BERT and Q2BERT: {RULES['q_bert_tables']}; BinaryBERT: "
        f"{RULES['split_twice']}; a runnable file holds scales too ({example}: {scales[example]} MiB more)",
    )
    extra = "+ is the paper's charge for a threshold found at run time, which its Table 2 leaves out"
    notes.add_row("GFLOPs", f"{RULES['flops']}; {extra}")
    if width >= WIDE:
        for name, schedule in {_losses(cost.scheme.schedule): cost.scheme.schedule for cost in costs}.items():
            notes.add_row(name, _spelled_out(schedule))
    else:
        notes.add_row("more", f"{WIDE} columns show quantizers, attention and losses too; --json has everything")
    for reason, number in _numbered(costs).items():
        notes.add_row(str(number), reason)
    return notes


def _spelled_out(schedule: tuple[Stage, ...]) -> str:
    if len(schedule) == 1:
        return " + ".join(schedule[0].terms)
    return ", ".join(f"{stage.name}: {' + '.join(stage.terms)}" for stage in schedule)


def _as_json(shape: PackedConfig, tokens: int, costs: list[Cost]) -> dict[str, Any]:
    sizes = {name.removeprefix("token_"): getattr(shape, name) for name in SIZES}
    return {
        "architecture": {"name": name_of(shape), **sizes},
        "parameters": {**count_parameters(shape), "total": total_parameters(shape)},
        "tokens": tokens,
        "schemes": [_cost_as_json(cost) for cost in costs],
    }


def _cost_as_json(cost: Cost) -> dict[str, Any]:
    size, flops = cost.size, cost.flops
    mib = {"mib": size.mib, "mib_with_scales": size.mib_with_scales}
    return {
        **cost.scheme.to_dict(),
        "size": {"rule": size.rule, **mib, "bytes": dict(size.parts), "scale_bytes": size.scale_bytes},
        "flops": {"total": flops.total, "products": flops.products, **asdict(flops)},
        "paper": {column: figure.to_dict() for column, figure in cost.printed.items()},
        "notes": [f"{note.table}: {note.text}" for note in notes_on(cost.scheme.name)],
    }

"""`bibert schemes`: every scheme with its size and FLOPs, ours and printed."""

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from bibert.cli.console import WIDTH_OF_A_PIPE, print_json, print_table
from bibert.lab.architecture import ARCHITECTURES, count_parameters, describe, get_architecture, name_of
from bibert.lab.cli.rows import notes_table, number, plain_table, word
from bibert.lab.cost import MIB, RULES, TOKENS, Cost, Figure, cost_of
from bibert.lab.paper import NOTES
from bibert.nn.schemes import SCHEMES, Scheme, Stage, get_scheme

WIDE = 120  # columns of a terminal that shows the whole table; narrower ones leave out the description of the scheme
SIZES = ("layers", "hidden", "heads", "intermediate", "vocabulary", "positions", "token_types", "labels")
NAMES_HELP = "Such as bibert or 'bibert(gain=row)'; all by default."
SHAPES = ", ".join(ARCHITECTURES)
SHAPE_HELP = f"A shape by name ({SHAPES}), or a config.json or the folder that holds it."


def schemes(
    names: Annotated[list[str] | None, typer.Argument(metavar="SCHEME", help=NAMES_HELP, show_default=False)] = None,
    architecture: Annotated[str, typer.Option("--architecture", "-a", help=SHAPE_HELP)] = "bert-base",
    tokens: Annotated[int, typer.Option(min=1, help="Length of the input for FLOPs.")] = TOKENS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with every part of each count.")] = False,
) -> None:
    """Show all or some schemes with their bits, size and FLOPs beside the figures that the paper prints.

    Example: bibert schemes bibert "bibert(gain=row,thresholds=context)"
    """
    shape = get_architecture(architecture)
    wanted = [get_scheme(name) for name in names] if names else SCHEMES.values()
    costs = [cost_of(shape, scheme, tokens) for scheme in wanted]
    parameters = count_parameters(shape)
    total = sum(parameters.values())
    if json:
        sizes = {name.removeprefix("token_"): getattr(shape, name) for name in SIZES}
        result = {"architecture": {"name": name_of(shape), **sizes}, "parameters": {**parameters, "total": total}}
        print_json({**result, "tokens": tokens, "schemes": [_as_json(cost) for cost in costs]})
        return
    results = Console()
    width = results.width if results.is_terminal else WIDTH_OF_A_PIPE
    title = f"{name_of(shape) or 'BERT'} ({describe(shape)}): {total:,} parameters; FLOPs of {tokens} tokens"
    print_table(scheme_table(costs, width, title))
    print_table(footnotes(costs, width))


def _as_json(cost: Cost) -> dict[str, Any]:
    size, flops = cost.size, cost.flops
    mib = {"mib": size.mib, "mib_with_scales": size.mib_with_scales}
    return {
        **cost.scheme.to_dict(),
        "size": {"rule": size.rule, **mib, "bytes": dict(size.parts), "scale_bytes": size.scale_bytes},
        "flops": {"total": flops.total, "products": flops.products, **asdict(flops)},
        "paper": {column: figure.to_dict() for column, figure in cost.figures.items() if figure.printed is not None},
        "notes": [f"{note.table}: {note.text}" for note in NOTES if note.scheme == cost.scheme.name],
    }


def scheme_table(costs: list[Cost], width: int, title: str = "") -> Table:
    """The table for a terminal of `width` columns."""
    columns = [word("scheme"), word("W-E-A")]
    if width >= WIDE:
        columns += [Column("quantizers\nW, E, A", width=13), Column("attention\nweights", width=15), word("losses")]
    columns += [*map(number, ("MiB", "paper", "GFLOPs", "paper")), word("note")]
    numbers, losses, rows = _numbered(costs), _names_of_losses(costs), []
    for cost in costs:
        scheme, notes = cost.scheme, sorted(numbers[reason] for reason in cost.reasons)
        described = (*_described(scheme), losses[_losses(scheme.schedule)]) if width >= WIDE else ()
        rows.append([scheme.name, str(scheme.bits), *described, *_figures(cost), " ".join(map(str, notes))])
    return plain_table(title, columns, rows)


def _numbered(costs: list[Cost]) -> dict[str, int]:
    """Reasons in the order of the table, each once, numbered from 1."""
    reasons = dict.fromkeys(reason for cost in costs for reason in cost.reasons)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _described(scheme: Scheme) -> tuple[str, str]:
    """Quantizers, once if all are the same; what is quantized in attention, such as `sign of softmax`."""
    names = (scheme.weight, scheme.embedding, scheme.activation)
    quantizers = scheme.weight if len(set(names)) == 1 else ", ".join(names)
    quantizers += f"; FFN {scheme.ffn_hidden}" if scheme.ffn_hidden else ""
    source = "scores" if scheme.normalizer == "none" else scheme.normalizer
    share = "" if scheme.quantile is None else f" {100 * scheme.quantile:g}%"
    attention = source if scheme.attention == "none" else f"{scheme.attention}{share} of {source}"
    return quantizers, attention


def _losses(schedule: tuple[Stage, ...]) -> str:
    """The terms of a schedule with weights other than 1, stage by stage."""
    terms = {
        stage.name: " + ".join(term if weight == 1 else f"{weight:g} {term}" for term, weight in stage.weights.items())
        for stage in schedule
    }
    return terms[schedule[0].name] if len(schedule) == 1 else ", ".join(map(": ".join, terms.items()))


def _names_of_losses(costs: list[Cost]) -> dict[str, str]:
    """The name of each schedule in the table, by its losses; a name that comes again with others gets a number."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for schedule in (cost.scheme.schedule for cost in costs):
        name = schedule[0].name if len(schedule) == 1 else f"{len(schedule)} stages"
        if (losses := _losses(schedule)) not in names:
            counts[name] += 1
            names[losses] = name if counts[name] == 1 else f"{name} ({counts[name]})"
    return names


def _figures(cost: Cost) -> list[str]:
    """Size and FLOPs, ours and the paper's; a threshold found at run time has a line of its own."""
    size, flops, extra = cost.figures.values()
    cells = [f"{size.ours:.1f}" if size.ours >= 100 else f"{size.ours:.2f}", _printed(size)]
    cells += [f"{flops.ours:.3f}", _printed(flops)]
    if extra.ours:
        cells[2:] = [f"{cells[2]}\n+{extra.ours:.3f}", f"{cells[3]}\n{_printed(extra)}"]
    return cells


def _printed(figure: Figure) -> str:
    return "-" if figure.printed is None else f"{figure.verdict} {figure.printed}"


def footnotes(costs: list[Cost], width: int) -> Table:
    """The meaning of the signs, our rules, and why some printed figures cannot be reproduced."""
    scales = {cost.scheme.name: f"{cost.size.scale_bytes / MIB:.2f}" for cost in costs}
    example = "bibert" if "bibert" in scales else next(iter(scales))
    extra = "+ is the paper's charge for a threshold found at run time, which its Table 2 leaves out"
    notes = {
        "=": "rounds to the paper's figure; ~ within one unit of its last digit; != neither; - not printed",
        "MiB": f"{RULES['bits_plus_float']} (bits_plus_float); Q-BERT and Q2BERT: {RULES['q_bert_tables']}; "
        f"BinaryBERT: {RULES['split_twice']}; a runnable file holds scales too ({example}: {scales[example]} MiB more)",
        "GFLOPs": f"{RULES['flops']}; {extra}",
    }
    if width >= WIDE:
        notes |= {name: losses for losses, name in _names_of_losses(costs).items()}
    else:
        notes["more"] = f"{WIDE} columns show quantizers, attention and losses too; --json has everything"
    notes |= {str(number): reason for reason, number in _numbered(costs).items()}
    return notes_table(notes.items())

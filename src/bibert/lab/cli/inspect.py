"""`bibert inspect`: the parts of a packed file, or of the file that a model folder would become. Needs no torch."""

import json as json_format
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json
from bibert.errors import CheckpointError, EngineError
from bibert.lab.architecture import read_architecture, read_json, total_parameters
from bibert.lab.cost import TOKENS, size
from bibert.lab.parts import Summary, summarize
from bibert.models import find_file
from bibert.nn import CONFIG_NAME, network_folder
from bibert.nn.packable import packed_config, why_not_packable
from bibert.nn.schemes import SCHEMES, Scheme, get_scheme
from bibert.packed.file import load
from bibert.packed.header import Description

MEGA = 10**6
NOTES = {
    "ratio": "of the bytes in float32 to those here; scales and thresholds exist in the packed file only",
    "MACs": "of one text, all tokens in all layers; the engine skips those that the label does not need",
    "FLOPs": "by the paper's rule: 2/64 for a 1-bit MAC; the classifier is left out",
}
Facts = dict[str, Any]


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER|HUB_ID", help="A packed file, a model or run folder, or a name on the Hub."
        ),
    ],
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Length of the text for MACs and FLOPs.", show_default=f"{TOKENS}, if it fits"),
    ] = None,
    json: Json = False,
) -> None:
    """Show the parameters, bytes and MACs of every part of a packed file, or of the file a model folder would become.

    Example: bibert inspect model.bibert
    """
    folder = network_folder(Path(model))
    facts, summary = _file(model, tokens) if folder is None else _folder(folder, tokens)
    if json:
        print_json(facts if summary is None else facts | _summary_as_json(summary))
        return
    if summary is not None:
        print_table(_parts_table(summary))
    print_table(_facts_table(facts, summary))


def _file(model: str, tokens: int | None) -> tuple[Facts, Summary]:
    from bibert.runtime.engine import Engine

    path = find_file(model)
    packed = load(path)
    facts, summary = _contents(packed, len(packed.tokenizer), tokens)
    try:
        isa = Engine.from_packed(packed, threads=1).isa
    except EngineError:
        isa = None  # a summary needs no engine
    return {"file": str(path), "sha256": packed.digest, **facts, "about": dict(packed.about), "isa": isa}, summary


def _folder(folder: Path, tokens: int | None) -> tuple[Facts, Summary | None]:
    config = read_json(folder / CONFIG_NAME)
    scheme = _scheme_of(config, folder)
    student = scheme if scheme.is_quantized else SCHEMES["bibert"]
    reason = why_not_packable(student)
    answer = f"no: {reason}; distill a student of the scheme 'bibert'" if reason else "yes, with bibert pack"
    answer = answer if scheme.is_quantized else "once it is distilled into a student of scheme 'bibert'"
    facts: Facts = {"folder": str(folder), "scheme": scheme.name, "bits": str(scheme.bits)}
    if config.get("kept_heads"):  # a half-width student of BinaryBERT, which no rule covers
        return {**facts, "can_be_packed": answer}, None
    shape = read_architecture(folder)
    facts["parameters"] = total_parameters(shape)
    if reason:
        by_rule = {} if scheme.kept else {"mib_by_rule": round(size(shape, scheme).mib, 2)}
        return {**facts, **by_rule, "can_be_packed": answer}, None
    contents, summary = _future_contents(folder, config, student, tokens)
    return {**facts, "can_be_packed": answer, **contents}, summary


def _scheme_of(config: Facts, folder: Path) -> Scheme:
    scheme = config.get("scheme") or "full_precision"
    try:
        return get_scheme(scheme) if isinstance(scheme, str) else Scheme.from_dict(scheme)
    except (TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{folder / CONFIG_NAME}: the scheme is damaged; save the model again") from None


def _future_contents(folder: Path, config: Facts, student: Scheme, tokens: int | None) -> tuple[Facts, Summary]:
    """The contents of the packed file of a student, if it were packed now."""
    packed = packed_config(config, student)
    names = config.get("id2label") or {str(label): f"LABEL_{label}" for label in range(packed.labels)}
    labels = tuple(names[number] for number in sorted(names, key=int))
    tokenizer = read_json(folder / "tokenizer.json") if (folder / "tokenizer.json").is_file() else None
    text = json_format.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) if tokenizer else ""
    return _contents(Description(packed, labels, min(TOKENS, packed.positions), {}), len(text.encode()), tokens)


def _contents(description: Description, tokenizer_bytes: int, tokens: int | None) -> tuple[Facts, Summary]:
    summary = summarize(description, tokenizer_bytes, tokens or min(TOKENS, description.config.positions))
    return {
        "bytes": summary.total.nbytes,
        "float32_bytes": summary.total.float32_bytes,
        "flops": summary.flops,
        "labels": list(description.labels),
        "max_length": description.max_length,
        "config": description.config.to_dict(),
    }, summary


def _summary_as_json(summary: Summary) -> Facts:
    total, *parts = (
        {**asdict(part), "ratio": part.ratio, "product_flops": part.product_flops}
        for part in (summary.total, *summary.parts)
    )
    return {"tokens": summary.tokens, "total": total, "parts": parts}


def _parts_table(summary: Summary) -> Table:
    title = f"every byte of the file; MACs and FLOPs of {summary.tokens} tokens"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("\npart", no_wrap=True)
    for head in "1-bit\nparams", "32-bit\nparams", "\nbytes", "\nratio", "1-bit\nMACs, M", "float\nMACs", "FLOPs,\nM":
        table.add_column(head, justify="right", no_wrap=True)
    for part in (*summary.by_layer, summary.total):
        table.add_row(
            part.name,
            *map(_count, (part.bits, part.numbers, part.nbytes)),
            f"{part.ratio:.1f}" if part.float32_bytes else "",
            f"{part.binary_macs / MEGA:,.1f}" if part.binary_macs else "",
            _count(part.float_macs),
            f"{part.product_flops / MEGA:,.2f}" if part.binary_macs else "",
            style="bold" if part.name == "total" else None,
        )
    return table


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _facts_table(facts: Facts, summary: Summary | None) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", "")
    shown = {name: value for name, value in facts.items() if name not in ("about", "flops") and "bytes" not in name}
    lines = {name.replace("_", " "): _shown(value) for name, value in shown.items()} | _about(facts.get("about", {}))
    if summary is not None:
        total, elementwise = summary.total, summary.elementwise_flops
        lines["size"] = f"{total.nbytes:,} bytes; in float32 {total.float32_bytes:,}, {total.ratio:.1f} times as many"
        work = f"{total.product_flops:,.0f} for products, {elementwise:,.0f} for work on single floats"
        lines |= {"work": f"{summary.flops:,.0f} FLOPs: {work}", **NOTES}
    for name, text in lines.items():
        table.add_row(name, Text(text))  # not as markup: a label may look like it
    return table


def _about(about: Mapping[str, Any]) -> dict[str, str]:
    """The origin of a file, one line per entry; a model that its training started from is shown by its metrics."""
    lines = {f"about {name}": _shown(value) for name, value in about.items()}
    start, starts = about.get("start"), []
    while isinstance(start, Mapping):
        metrics = _shown(start.get("metrics", {})) or "no metrics recorded"
        starts.append(f"{start.get('scheme', 'another BERT')} with {metrics}")
        start = start.get("start")
    return lines | ({"about start": "; before it ".join(starts)} if starts else {})


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

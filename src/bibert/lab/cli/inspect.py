"""`bibert inspect`: the parts of a packed file, or of the file that a model folder would become. Needs no torch."""

import json as json_format
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from bibert.cli.console import print_json, print_table
from bibert.cli.options import PACKED_HELP, Json, usual_length
from bibert.errors import CheckpointError, EngineError
from bibert.lab.architecture import count_parameters, read_architecture, read_json
from bibert.lab.cli.rows import notes_table, number, plain_table, word
from bibert.lab.cost import TOKENS, size
from bibert.lab.parts import Summary, summarize
from bibert.models import find_file
from bibert.nn import CONFIG_NAME, network_folder
from bibert.nn.packable import packed_config, why_not_packable
from bibert.nn.schemes import SCHEMES, as_scheme
from bibert.packed.file import load
from bibert.packed.header import NOT_IN_LABELS, Description
from bibert.training.provenance import provenance

MEGA = 10**6
NOTES = {
    "ratio": "of the bytes in float32 to those here; scales and thresholds exist in the packed file only",
    "MACs": "of one text, all tokens in all layers; the engine skips those that the label does not need",
    "FLOPs": "by the paper's rule: 2/64 for a 1-bit MAC; the classifier is left out",
}
Facts = dict[str, Any]
Contents = tuple[Description, int]  # of a packed file, and the bytes of its tokenizer


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="FILE|FOLDER|HUB_ID", help=f"{PACKED_HELP} Or a model or run folder.")
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
    facts, contents = _file(model) if folder is None else _folder(folder)
    summary = None
    if contents is not None:
        description, tokenizer_bytes = contents
        config = description.config
        summary = summarize(description, tokenizer_bytes, tokens or min(TOKENS, config.positions))
        facts |= {"labels": list(description.labels), "max_length": description.max_length}
        facts |= {"temperature": description.temperature, "config": config.to_dict()}
    if json:
        if summary is not None:
            counts = [{**asdict(part), "ratio": part.ratio} for part in (summary.total, *summary.parts)]
            facts |= {"bytes": summary.total.nbytes, "float32_bytes": summary.total.float32_bytes}
            facts |= {"flops": summary.flops, "tokens": summary.tokens, "total": counts[0], "parts": counts[1:]}
        print_json(facts)
        return
    notes = {name.replace("_", " "): _shown(value) for name, value in facts.items() if name != "about"}
    notes |= _about(facts.get("about", {}))
    if summary is not None:
        print_table(parts_table(summary))
        total, elementwise = summary.total, summary.elementwise_flops
        notes["size"] = f"{total.nbytes:,} bytes; in float32 {total.float32_bytes:,}, {total.ratio:.1f} times as many"
        work = f"{total.product_flops:,.0f} for products, {elementwise:,.0f} for work on single floats"
        notes |= {"work": f"{summary.flops:,.0f} FLOPs: {work}", **NOTES}
    clean = partial(NOT_IN_LABELS.sub, "\ufffd")  # a file must not send sequences to the terminal
    print_table(notes_table((clean(name), clean(text)) for name, text in notes.items()))


def _file(model: str) -> tuple[Facts, Contents]:
    from bibert.runtime.engine import Engine

    path = find_file(model)
    packed = load(path)
    try:
        isa = Engine.from_packed(packed, threads=1).isa
    except EngineError:
        isa = None  # a summary needs no engine
    facts = {"file": str(path), "sha256": packed.digest, "about": dict(packed.about), "isa": isa}
    return facts, (packed, len(packed.tokenizer))


def _folder(folder: Path) -> tuple[Facts, Contents | None]:
    """The facts of a model folder, and the contents of its packed file if it can be packed or distilled."""
    config = read_json(folder / CONFIG_NAME)
    try:
        scheme = as_scheme(config.get("scheme") or "full_precision")
    except (TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{folder / CONFIG_NAME}: the scheme is damaged; save the model again") from None
    student = scheme if scheme.is_quantized else SCHEMES["bibert"]
    reason = why_not_packable(student)
    answer = f"no: {reason}; distill a student with --bits 1, 2 or 4" if reason else "yes, with bibert pack"
    answer = answer if scheme.is_quantized else "once it is distilled into a student of scheme 'bibert'"
    facts: Facts = {"folder": str(folder), "scheme": scheme.name, "bits": str(scheme.bits), "can_be_packed": answer}
    about = provenance(folder)
    temperature = about.pop("temperature", 1.0)
    facts |= {"about": about} if about else {}
    if config.get("kept_heads"):  # a half-width student of BinaryBERT, which no rule covers
        return facts, None
    shape = read_architecture(folder)
    facts["parameters"] = sum(count_parameters(shape).values())
    if reason:
        return facts | ({} if scheme.kept else {"mib_by_rule": round(size(shape, scheme).mib, 2)}), None
    packed = packed_config(config, student)
    names = config.get("id2label") or {str(label): f"LABEL_{label}" for label in range(packed.labels)}
    labels = tuple(names[number] for number in sorted(names, key=int))
    tokenizer = read_json(folder / "tokenizer.json") if (folder / "tokenizer.json").is_file() else None
    text = json_format.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) if tokenizer else ""
    length = usual_length(about.get("recipe", {}), packed.positions)
    return facts, (Description(packed, labels, length, about, temperature=temperature), len(text.encode()))


def parts_table(summary: Summary) -> Table:
    """Parameters, bytes and work of every layer and of the parts around them, 80 columns wide."""
    heads = "1-bit\nparams", "32-bit\nparams", "\nbytes", "\nratio", "1-bit\nMACs, M", "float\nMACs", "FLOPs,\nM"
    *rows, total = [
        [
            part.name,
            *(f"{count:,}" if count else "" for count in (part.bits, part.numbers, part.nbytes)),
            f"{part.ratio:.1f}" if part.float32_bytes else "",
            f"{part.binary_macs / MEGA:,.1f}" if part.binary_macs else "",
            f"{part.float_macs:,}" if part.float_macs else "",
            f"{part.product_flops / MEGA:,.2f}" if part.binary_macs else "",
        ]
        for part in (*summary.by_layer, summary.total)
    ]
    title = f"every byte of the file; MACs and FLOPs of {summary.tokens} tokens"
    return plain_table(title, [word("\npart"), *map(number, heads)], rows, total, gap=1)


def _about(about: Mapping[str, Any]) -> dict[str, str]:
    """The origin of a file, one line per entry; a model that its training started from is shown by its metrics."""
    lines = {f"about {name}": _shown(value) for name, value in about.items()}
    start, starts = about.get("start"), []
    while isinstance(start, Mapping):
        metrics = _shown(start.get("metrics", {})) or "no metrics recorded"
        starts.append(f"{start.get('scheme', start.get('file', 'another BERT'))} with {metrics}")
        start = start.get("start")
    return lines | ({"about start": "; before it ".join(starts)} if starts else {})


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

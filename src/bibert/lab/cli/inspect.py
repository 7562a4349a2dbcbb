"""`bibert inspect`: what a packed file is made of, or what a model folder would take when packed.

Counts come from `packed.summary`, what a count costs by the paper's rule from `analysis.cost`. No torch is needed.
"""

import json as json_format
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from bibert.cli.console import print_json, print_table
from bibert.cli.options import Json
from bibert.errors import CheckpointError, EngineError
from bibert.lab.architecture import Architecture, count_parameters
from bibert.lab.cost import TOKENS, elementwise_flops, product_flops, size
from bibert.lab.packed_cost import config_of_shape, scheme_of_file
from bibert.nn.folders import CONFIG_NAME, network_folder
from bibert.nn.packable import ffn_levels, why_not_packable
from bibert.nn.schemes import SCHEMES, Scheme, get_scheme

if TYPE_CHECKING:
    from bibert.packed.file import PackedModel
    from bibert.packed.header import Description
    from bibert.packed.schema import PackedConfig
    from bibert.packed.summary import Part, Summary

TOKENIZER_FILE = "tokenizer.json"
MEGA = 10**6
RULES = {
    "ratio": "of the bytes in float32 to those here; scales and thresholds exist in the packed file only",
    "MACs": "of one text, all tokens in all layers; the engine leaves out what the label does not need",
    "FLOPs": "by the paper's rule: 2/64 for a 1-bit MAC; the classifier is left out",
}


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER|HUB_ID", help="A packed file, a model or run folder, or a name on the Hub."
        ),
    ],
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Length of the text that MACs and FLOPs are counted for.", show_default=f"{TOKENS}, if it fits"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show every part of a packed file with its parameters, bytes and MACs; of a model folder, what it would take.

    Example: bibert inspect model.bibert
    """
    folder = network_folder(Path(model))
    report = _file(model, tokens) if folder is None else _folder(folder, tokens)
    if json:
        print_json(report.as_json())
        return
    if report.summary is not None:
        print_table(_parts_table(report.summary))
    print_table(_facts_table(report))


@dataclass(frozen=True)
class Report:
    """What is known of a model; `summary` is None for one that no packed file can hold."""

    facts: Mapping[str, Any]
    summary: "Summary | None" = None

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values, every part of a layer on its own."""
        if self.summary is None:
            return dict(self.facts)
        return {
            **self.facts,
            "tokens": self.summary.tokens,
            "total": _part_as_json(self.summary.total),
            "parts": [_part_as_json(part) for part in self.summary.parts],
        }


def _file(model: str, tokens: int | None) -> Report:
    from bibert.models import find_file
    from bibert.packed.file import load
    from bibert.packed.summary import summarize

    path = find_file(model)
    packed = load(path)
    summary = summarize(packed, len(packed.tokenizer), tokens or min(TOKENS, packed.config.positions))
    facts = {"file": str(path), "sha256": packed.digest, **_facts(packed, summary)}
    return Report({**facts, "about": dict(packed.about), "isa": _isa(packed)}, summary)


def _isa(packed: "PackedModel") -> str | None:
    """The instructions that would run the file here; a summary needs no engine, so none is no error."""
    from bibert.runtime.engine import Engine

    try:
        return Engine.from_packed(packed, threads=1).isa
    except EngineError:
        return None


def _facts(description: "Description", summary: "Summary") -> dict[str, Any]:
    return {
        "bytes": summary.total.nbytes,
        "float32_bytes": summary.total.float32_bytes,
        "flops": paper_flops(description.config, summary),
        "labels": list(description.labels),
        "max_length": description.max_length,
        "config": description.config.to_dict(),
    }


def _folder(folder: Path, tokens: int | None) -> Report:
    from bibert.packed.summary import summarize

    config = _read_json(folder / CONFIG_NAME, "the model")
    scheme = _scheme_of(config, folder)
    about = {"folder": str(folder), "scheme": scheme.name, "bits": str(scheme.bits)}
    answer = {"can_be_packed": _can_be_packed(scheme)}
    if config.get("kept_heads"):  # a half-width student of BinaryBERT, for which no rule counts anything
        return Report({**about, **answer})
    shape = Architecture.from_config(folder)
    facts = {**about, "parameters": count_parameters(shape).total}
    student = scheme if scheme.is_quantized else SCHEMES["bibert"]
    if why_not_packable(student):
        by_rule = {} if scheme.kept else {"mib_by_rule": round(size(shape, scheme).mib, 2)}
        return Report({**facts, **by_rule, **answer})
    packed = _description(config, shape, student)
    summary = summarize(packed, _tokenizer_bytes(folder), tokens or min(TOKENS, shape.positions))
    return Report({**facts, **answer, **_facts(packed, summary)}, summary)


def _can_be_packed(scheme: Scheme) -> str:
    if not scheme.is_quantized:
        return "once it is distilled into a student of scheme 'bibert'"
    reason = why_not_packable(scheme)
    return f"no: {reason}; distill a student of the scheme 'bibert'" if reason else "yes, with bibert pack"


def _scheme_of(config: Mapping[str, Any], folder: Path) -> Scheme:
    scheme = config.get("scheme") or "full_precision"
    try:
        return get_scheme(scheme) if isinstance(scheme, str) else Scheme.from_dict(scheme)
    except (TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{folder / CONFIG_NAME}: the scheme is damaged; save the model again") from None


def _description(config: Mapping[str, Any], shape: Architecture, scheme: Scheme) -> "Description":
    """What the file of a student would say of itself."""
    from bibert.packed.header import Description

    packed = config_of_shape(
        shape,
        norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        thresholds=scheme.thresholds,
        score_thresholds=scheme.score_thresholds,
        ffn_levels=ffn_levels(scheme),
    )
    names = config.get("id2label") or {str(label): f"LABEL_{label}" for label in range(shape.labels)}
    labels = tuple(names[number] for number in sorted(names, key=int))
    return Description(packed, labels, min(TOKENS, shape.positions), {})


def _tokenizer_bytes(folder: Path) -> int:
    """What the tokenizer takes without the line breaks that tokenizer.json has for people; 0 where there is none."""
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        return 0
    values = _read_json(file, "the tokenizer")
    return len(json_format.dumps(values, ensure_ascii=False, separators=(",", ":")).encode())


def _read_json(file: Path, what: str) -> dict[str, Any]:
    try:
        values = json_format.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError:
        raise CheckpointError(f"{file}: is not JSON; save {what} again") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{file}: holds a {type(values).__name__}, must be an object {{...}}; save {what} again")
    return values


def paper_flops(config: "PackedConfig", summary: "Summary") -> float:
    """FLOPs of one text by the paper's rule: products, and float work on single numbers."""
    # How the heads share the channels matters to a softmax only.
    shape = Architecture(config.layers, config.hidden, 1, config.intermediate)
    return _product_flops(summary.total) + elementwise_flops(shape, scheme_of_file(config), summary.tokens)


def _product_flops(part: "Part") -> float:
    return product_flops(part.binary_macs, 1, 1)


def _part_as_json(part: "Part") -> dict[str, Any]:
    return {**asdict(part), "ratio": part.ratio, "product_flops": _product_flops(part)}


def _parts_table(summary: "Summary") -> Table:
    title = f"every byte of the file; MACs and FLOPs of {summary.tokens} tokens"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("\npart", no_wrap=True)
    heads = (
        "1-bit\nparams",
        "32-bit\nparams",
        "\nbytes",
        "\nratio",
        "1-bit\nMACs, M",
        "float\nMACs",
        "FLOPs,\nM",
    )
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for part in (*summary.by_layer, summary.total):
        table.add_row(
            part.name,
            *map(_count, (part.bits, part.numbers, part.nbytes)),
            f"{part.ratio:.1f}" if part.float32_bytes else "",
            f"{part.binary_macs / MEGA:,.1f}" if part.binary_macs else "",
            _count(part.float_macs),
            f"{_product_flops(part) / MEGA:,.2f}" if part.binary_macs else "",
            style="bold" if part.name == "total" else None,
        )
    return table


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _facts_table(report: Report) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", "")
    for name, text in _lines(report).items():
        table.add_row(name, Text(text))  # as it is: a label may look like markup
    return table


def _lines(report: Report) -> dict[str, str]:
    """The facts for people; what belongs together is in one line."""
    facts = dict(report.facts)
    if report.summary is None:
        return {name.replace("_", " "): _shown(value) for name, value in facts.items()}
    products, total = _product_flops(report.summary.total), report.summary.total
    flops, about = facts.pop("flops"), facts.pop("about", {})
    together = {
        "size": f"{total.nbytes:,} bytes; in float32 {total.float32_bytes:,}, {total.ratio:.1f} times as many",
        "work": f"{flops:,.0f} FLOPs: {products:,.0f} for products, {flops - products:,.0f} for work on single floats",
    }
    rest = {name.replace("_", " "): _shown(value) for name, value in facts.items() if "bytes" not in name}
    return {**rest, **_about(about), **together, **RULES}


def _about(about: Mapping[str, Any]) -> dict[str, str]:
    """Where a file comes from, a line for each thing; of what its training started from only how good that was."""
    begun = list(_starts(about.get("start")))
    lines = {f"about {name}": _shown(value) for name, value in about.items()}
    return lines | ({"about start": "; before it ".join(begun)} if begun else {})


def _starts(start: Any) -> Iterator[str]:
    while isinstance(start, Mapping):
        yield f"{start.get('scheme', 'another BERT')} with {_shown(start.get('metrics', {})) or 'no metrics noted'}"
        start = start.get("start")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

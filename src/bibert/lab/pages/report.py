"""The report page: everything recorded about a run or a packed file; the text is in templates/report.html.jinja."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from bibert.data.metrics import Bin
from bibert.lab.architecture import describe
from bibert.lab.attention import AttentionMap
from bibert.lab.cost import TOKENS, cost_of
from bibert.lab.look import Entropies
from bibert.lab.mistakes import Mistake
from bibert.lab.pages import render
from bibert.lab.parts import beside_the_rule, bytes_rows
from bibert.lab.plots.attention import draw_model_view
from bibert.lab.plots.charts import (
    draw_directions,
    draw_entropies,
    draw_losses,
    draw_metrics,
    draw_reliability,
    metrics_of,
)
from bibert.lab.plots.style import svg_for_page
from bibert.lab.record import Record


@dataclass(frozen=True)
class Findings:
    """What was measured for the report; each part may be missing."""

    entropies: Mapping[str, Entropies] | None = None  # on texts
    attention: AttentionMap | None = None  # on one text
    confusion: Sequence[Sequence[int]] | None = None  # rows are gold labels, columns are answers
    reliability: Sequence[Bin] = ()
    mistakes: Sequence[Mistake] = ()  # the worst ones
    scored: str = ""  # the labelled rows it was counted on, such as "872 rows of dev.tsv"
    scores: Mapping[str, float] = field(default_factory=dict)  # metrics on these rows, by name


def report_page(record: Record, findings: Findings) -> str:
    """The HTML of the page; a section without content says how to get it."""
    facts = [("scheme", record.scheme.name), ("bits", str(record.scheme.bits))]
    facts += [(name, _plain(value)) for name, value in record.origin.items() if value is not None]
    shape, packed = record.architecture, record.packed
    is_counted = shape is not None and not record.scheme.kept and not record.scheme.split
    return render(
        "report.html.jinja",
        title=f"Report: {record.name}",
        facts=facts,
        record=record,
        findings=findings,
        figures=_figures(record, findings),
        shape=describe(shape) if shape else "",
        cost=cost_of(shape, record.scheme, min(TOKENS, shape.positions)) if shape and is_counted else None,
        tokens=min(TOKENS, shape.positions) if shape else 0,
        parts=bytes_rows(beside_the_rule(packed, len(packed.tokenizer))) if packed else [],
        plain=_plain,
    )


def _figures(record: Record, findings: Findings) -> dict[str, list[Markup]]:
    """The figures of each section, as parts of the page."""
    name, log, history = record.scheme.name, record.log, record.history
    figures: dict[str, list[Markup]] = {"scores": [], "training": [], "entropy": [], "direction": [], "attention": []}

    def add(section: str, draw: Callable[..., Figure], *values: Any) -> None:
        figures[section].append(Markup(svg_for_page(draw, *values)))  # by matplotlib, which escapes texts

    if findings.reliability:
        add("scores", draw_reliability, findings.reliability)
    if metrics_of(log):
        add("training", draw_metrics, log)
    if log:
        add("training", draw_losses, log)
    if history is not None and history.entropy:
        add("entropy", draw_entropies, {name: (history.steps, history.entropy)}, "step")
    if findings.entropies is not None:
        layers = range(len(findings.entropies["query"]))
        add("entropy", draw_entropies, {name: (layers, findings.entropies)}, "layer")
    if history is not None and history.direction:
        add("direction", draw_directions, {name: history})
    if findings.attention is not None:
        add("attention", draw_model_view, [findings.attention])
    return figures


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items()) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)

"""The report page: everything recorded about a run or a packed file, section by section, in one file.

`record` reads what is known, `plots` draws the figures that become part of the page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from bibert.lab.architecture import describe
from bibert.lab.attention import AttentionMap
from bibert.lab.comparison import GIGA, cost_of
from bibert.lab.cost import TOKENS
from bibert.lab.entropy import Entropies
from bibert.lab.pages.render import render_page
from bibert.lab.parts import beside_the_rule
from bibert.lab.plots.attention import draw_model_view
from bibert.lab.plots.curves import (
    draw_directions,
    draw_entropies,
    draw_entropy_history,
    draw_losses,
    draw_metrics,
    metrics_of,
)
from bibert.lab.plots.style import svg_for_page
from bibert.lab.record import Record

SEVERAL_BITS = "Only single bits can be shown; some activations of this scheme have more."
Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Findings:
    """What was measured for the report; each part may be missing."""

    entropies: Entropies | None = None  # on texts
    attention: AttentionMap | None = None  # on one text
    confusion: Sequence[Sequence[int]] | None = None  # rows are gold labels, columns are answers
    scored: str = ""  # the labelled rows it was counted on, such as "872 rows of dev.tsv"
    scores: Mapping[str, float] = field(default_factory=dict)  # metrics on these rows, by name


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, a sentence, figures, and tables whose first row is their head."""

    title: str
    text: str = ""
    figures: Sequence[Markup] = ()
    tables: Sequence[Rows] = ()


def report_page(record: Record, findings: Findings) -> str:
    """The HTML of the page; a section without content says how to get it."""
    sections = [
        _results(record, findings),
        _training(record),
        _data_and_recipe(record),
        _entropy(record, findings),
        _direction(record),
        _attention(record, findings),
        _cost(record),
    ]
    facts = [("scheme", record.scheme.name), ("bits", str(record.scheme.bits))]
    facts += [(name, _plain(value)) for name, value in record.origin.items() if value is not None]
    return render_page("report.html.jinja", title=f"Report: {record.name}", facts=facts, sections=sections)


def _results(record: Record, findings: Findings) -> Section:
    noted = [[*_metric(*one), "dev set of its training, best evaluation"] for one in record.metrics.items()]
    measured = [[*_metric(*one), findings.scored] for one in findings.scores.items()]
    tables: list[Rows] = [[["metric", "value", "measured on"], *noted, *measured]] if noted or measured else []
    text = ""
    if not noted:
        text = "The training has not ended." if record.packed is None else "The file has no metrics of its training."
    if findings.confusion is not None:
        lines = [
            [name, *map(str, row), f"{100 * row[place] / max(sum(row), 1):.1f} %"]
            for place, (name, row) in enumerate(zip(record.labels, findings.confusion, strict=True))
        ]
        tables.append([["gold \\ answer", *record.labels, "right"], *lines])
        text += f" Confusion counted on {findings.scored}."
    elif len(record.labels) != 1:
        text += " Labelled rows, or --task, add a confusion matrix."
    return Section("Results", text.strip(), tables=tables)


def _metric(name: str, value: float) -> tuple[str, str]:
    return name.replace("_", " "), f"{100 * value:.2f} %"


def _training(record: Record) -> Section:
    if record.packed is not None:
        return Section("Training", "A packed file has no log; the report of its run folder has the curves.")
    if not record.log:
        return Section("Training", "Nothing is logged yet.")
    figures = [_svg(lambda: draw_metrics(record.log))] if metrics_of(record.log) else []
    return Section("Training", "", [*figures, _svg(lambda: draw_losses(record.log))])


def _data_and_recipe(record: Record) -> Section:
    tables = [
        [[title, ""], *([name, _plain(value)] for name, value in values.items())]
        for title, values in (("data", record.data), ("recipe", record.recipe))
        if values
    ]
    return Section("Data and recipe", "" if tables else "The file does not say how it was trained.", tables=tables)


def _entropy(record: Record, findings: Findings) -> Section:
    figures, history, measured = [], record.history, findings.entropies
    if history is not None and history.entropy:
        figures.append(_svg(lambda: draw_entropy_history({record.scheme.name: history})))
    if measured is not None:
        figures.append(_svg(lambda: draw_entropies({record.scheme.name: measured})))
    if not figures:
        why = "Give texts, or train with --probe-every, to see the entropy of its bits."
        return Section("Entropy", why if record.has_bits else SEVERAL_BITS)
    text = "Of each binarized activation, in bits; the maximum is 1. Lines are means, bands span all heads."
    return Section("Entropy", text, figures)


def _direction(record: Record) -> Section:
    history = record.history
    if history is None or not history.direction:
        return Section("Direction", "Train with --probe-every to see which way the student moves.")
    text = "How the student moved between two looks, against the direction of its teacher."
    return Section("Direction", text, [_svg(lambda: draw_directions({record.scheme.name: history}))])


def _attention(record: Record, findings: Findings) -> Section:
    one = findings.attention
    if one is None:
        return Section("Attention", "Give a text to see what its heads attend to." if record.has_bits else SEVERAL_BITS)
    text = f"Every head, layer by layer, on: {' '.join(one.tokens)}"
    return Section("Attention", text, [_svg(lambda: draw_model_view([one]))])


def _cost(record: Record) -> Section:
    if record.scheme.kept:
        return Section("Cost", f"The rules do not cover a scheme that keeps {' and '.join(record.scheme.kept)}.")
    if record.scheme.split:
        return Section("Cost", "The rules count a split student by the shape of its teacher: bibert analyze cost.")
    if record.architecture is None:
        return Section("Cost", "There is no model yet.")
    tokens = min(TOKENS, record.architecture.positions)
    found = cost_of(record.architecture, record.scheme, tokens)
    size, flops = found.size, found.flops
    tables: list[Rows] = [
        [
            ["by the paper's rules", ""],
            ["size", f"{size.mib:.2f} MiB, with the scales that it needs {size.mib_with_scales:.2f} MiB"],
            [f"FLOPs at {tokens} tokens", f"{flops.total / GIGA:.3f} G, of which products {flops.products / GIGA:.3f}"],
        ]
    ]
    if record.packed is not None:
        parts = beside_the_rule(record.packed, len(record.packed.tokenizer))
        rows = [[one.part, f"{one.by_rule:,.0f}", f"{one.in_file:,}", one.reason] for one in parts]
        total = ["in all", f"{sum(one.by_rule for one in parts):,.0f}", f"{sum(one.in_file for one in parts):,}", ""]
        tables.append([["bytes", "by the rule", "in the file", ""], *rows, total])
    return Section("Cost", describe(record.architecture), tables=tables)


def _svg(draw: Callable[[], Figure]) -> Markup:
    return Markup(svg_for_page(draw))  # written by matplotlib, which escapes texts


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items()) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)

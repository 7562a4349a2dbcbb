"""The report page: everything recorded about a run or a packed file; the text is in templates/report.html.jinja.

A section without content is left out; the page ends with what would add more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from markupsafe import Markup

from bibert.data.metrics import Bin, by_class
from bibert.lab.architecture import describe
from bibert.lab.attention import AttentionMap
from bibert.lab.cost import TOKENS, cost_of
from bibert.lab.look import Entropies
from bibert.lab.mistakes import Mistake
from bibert.lab.pages import render
from bibert.lab.parts import beside_the_rule, bytes_rows
from bibert.lab.plots import charts
from bibert.lab.plots.attention import draw_model_view
from bibert.lab.plots.style import THEME, PageFigure, for_page
from bibert.lab.record import Record

ECE = "ece"  # the expected calibration error, the only one of the scores that is better when it is lower
MOST_LABELS = 12  # of a confusion matrix; with more of them the most frequent confusions are listed
MOST_PAIRS = 12  # of such a list
SECTIONS = ("scores", "training", "entropy", "direction", "attention")  # those with figures
HEADS_INCHES = 5.4  # the width of all heads on a page, whose numbers must be legible on a phone


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
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # models without a network, on them too


class Score(NamedTuple):
    """One bar of the results."""

    who: str
    metric: str
    value: float
    rows: str
    is_own: bool


def report_page(record: Record, findings: Findings) -> str:
    """The HTML of the page."""
    shape, packed = record.architecture, record.packed
    is_counted = shape is not None and not record.scheme.kept and not record.scheme.split
    facts = {"scheme": record.scheme.name, "bits": str(record.scheme.bits), "shape": describe(shape) if shape else None}
    facts |= {name: record.origin.get(name) for name in ("date", "commit")}
    few = findings.confusion if findings.confusion and len(record.labels) <= MOST_LABELS else None
    return render(
        "report.html.jinja",
        title=f"Report: {record.name}",
        facts=[(name, value) for name, value in facts.items() if value],
        record=record,
        findings=findings,
        scores=_scores(record, findings),
        confusion=few,
        classes=by_class(few, record.labels) if few else {},
        confused=[] if few else _confused(findings.confusion or (), record.labels),
        figures=_figures(record, findings),
        theme=[(name, light, dark) for light, (name, dark) in THEME.items()],
        cost=cost_of(shape, record.scheme, min(TOKENS, shape.positions)) if shape and is_counted else None,
        tokens=min(TOKENS, shape.positions) if shape else 0,
        parts=bytes_rows(beside_the_rule(packed, len(packed.tokenizer))) if packed else [],
        plain=_plain,
    )


def _scores(record: Record, findings: Findings) -> list[Score]:
    """The model, then what it is to be compared with, best first; metrics of its training carry the dev set's name."""
    trained = "dev set of its training"
    scores = {name: value for name, value in findings.scores.items() if name != ECE}
    own = [Score("this model", name, value, findings.scored, True) for name, value in scores.items()]
    noted = [(who, metrics) for who, metrics in (("this model", record.metrics), ("its teacher", record.teacher))]
    for who, metrics in noted:
        own += [Score(who, name, value, trained, who == "this model") for name, value in metrics.items()]
    floor: list[Score] = []
    for who, metrics in findings.baselines.items():
        floor += [Score(who, name, value, findings.scored, False) for name, value in metrics.items()]
    return own + sorted(floor, key=lambda score: (score.metric, -score.value))


def _confused(confusion: Sequence[Sequence[int]], labels: Sequence[str]) -> list[tuple[str, str, int, float]]:
    """Gold label, answer, rows and their share of the gold label's, most frequent first."""
    pairs = [
        (labels[gold], labels[answer], count, count / sum(counts))
        for gold, counts in enumerate(confusion)
        for answer, count in enumerate(counts)
        if answer != gold and count
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:MOST_PAIRS]


def _figures(record: Record, findings: Findings) -> dict[str, list[PageFigure]]:
    """The figures of each section, as parts of the page."""
    name, log, history = record.scheme.name, record.log, record.history
    figures: dict[str, list[PageFigure]] = {section: [] for section in SECTIONS}

    def add(section: str, draw: Callable[..., Any], *values: Any) -> None:
        drawn = for_page(draw, *values)  # by matplotlib, which escapes texts
        figures[section].append(drawn._replace(panels=[Markup(panel) for panel in drawn.panels]))

    if findings.reliability:
        add("scores", charts.draw_reliability, findings.reliability)
    if charts.metrics_of(log):
        add("training", charts.draw_metrics, log)
    if any("loss" in event for event in log):
        add("training", charts.draw_losses, log)
    if history is not None and history.entropy:
        add("entropy", charts.draw_entropies, {name: (history.steps, charts.bands(history.entropy))}, "step")
    if findings.entropies is not None:
        layers = range(len(findings.entropies["query"]))
        add("entropy", charts.draw_entropies, {name: (layers, charts.bands(findings.entropies))}, "layer")
    if history is not None and history.direction:
        add("direction", charts.draw_directions, {name: history})
    if findings.attention is not None:
        add("attention", draw_model_view, [findings.attention], None, HEADS_INCHES)
    return figures


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items()) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)

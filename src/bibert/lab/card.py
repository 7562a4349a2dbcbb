"""The card of a packed model in Markdown: what it is, how good it is and how it was made.

Every figure is measured here with the packed file itself, or comes from its header; figures of the teacher come from
the notes of its run. The text is in pages/templates/card.md.jinja.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bibert.data.examples import Split
from bibert.data.metrics import BINS, Bin, calibration_error, confusion, reliability, score
from bibert.errors import CheckpointError, ModelFileError
from bibert.lab.mistakes import worst_mistakes
from bibert.lab.pages import render
from bibert.lab.record import Record, load_record
from bibert.lab.tables import markdown_table
from bibert.models import DEFAULT, find_file
from bibert.nn import model_folder
from bibert.runtime.classifier import TextClassifier, load, softmax
from bibert.training.provenance import provenance, weights_digest

LONGEST = 240  # characters of a quoted text
LENGTHS = (0, 10, 20, 30, math.inf)  # words from which a text counts as longer
RECIPE_FIRST = ("seed", "epochs", "max_steps", "batch_size", "learning_rate", "max_length", "norm_scope", "weights")


@dataclass(frozen=True)
class CardRequest:
    """What to put on a card."""

    title: str
    model: str  # the packed file, a folder with one, or a name
    rows: Split  # labelled texts to measure it on
    task: str  # the GLUE task whose dev set the rows are; empty for any other rows
    metrics: Sequence[str]  # names, the selecting one first
    teacher: Path | None  # its run or model folder; None to leave it out
    licence: str  # of the weights, such as apache-2.0
    limits: Sequence[str]  # what a user must know, sentence by sentence


def card(request: CardRequest) -> str:
    """Measure a packed file and describe it."""
    path = find_file(request.model)
    classifier = load(path, threads=1)
    about = classifier.about
    missing = [name for name in ("recipe", "metrics", "data") if name not in about]
    if missing:
        raise ModelFileError(f"{path}: does not name its {missing[0]}; pack it again from the model folder of its run")
    teacher = None if request.teacher is None else _teacher(request.teacher, about.get("teacher_sha256"))
    starts, start = [], about.get("start")  # the model that training started from, the one that this started from, ...
    while isinstance(start, Mapping):
        starts.append(start)
        start = start.get("start")
    text = render(
        "card.md.jinja",
        request=request,
        about=about,
        config=classifier.config,
        labels=classifier.labels,
        max_length=classifier.max_length,
        temperature=classifier.temperature,
        size=path.stat().st_size,
        model_option="" if request.model == DEFAULT else f"--model {request.model} ",
        rows=f"{len(request.rows):,} labelled rows",
        file=Path(request.rows.origin).name,
        figures=_figures(request, classifier, teacher),
        teacher=teacher,
        starts=starts,
        first=RECIPE_FIRST,
        settings=_settings,
    )
    return f"{text}\n"


def _teacher(given: Path, weights: str | None) -> Record:
    """The record of the teacher's run; `weights` is the digest in the packed file, None if it has none."""
    folder = Path(model_folder(given))
    if not provenance(folder):
        raise CheckpointError(f"{given}: is not in a finished run, so it has no notes; give the run of the teacher")
    found = weights_digest(folder)
    if weights is not None and found != weights:
        digests = f"the SHA-256 of its weights is {str(found)[:16]}…, must be {weights[:16]}…"
        remedy = "give the folder that the student was distilled from"
        raise CheckpointError(f"{folder}: is not the teacher of this file: {digests}; {remedy}")
    return load_record(folder.parent)


def _figures(request: CardRequest, classifier: TextClassifier, teacher: Record | None) -> str:
    def percent(values: Iterable[float | None]) -> list[str]:
        return ["–" if value is None else f"{100 * value:.2f} %" for value in values]

    about, own_bits = classifier.about, f"1-1-{classifier.config.activation_bits}"
    runs = [("this model", own_bits, about["data"], about["metrics"])]
    if teacher is not None:
        runs.insert(0, ("teacher", str(teacher.scheme.bits), teacher.data, teacher.metrics))
    rows = []
    for model, bits, data, metrics in runs:
        where = "" if data["name"] == request.task else ", dev set of its run"
        recorded = percent(metrics.get(f"dev_{name}") for name in request.metrics)
        rows.append([f"{model}, torch{where}", bits, *recorded])
    logits, labels = classifier.logits(request.rows.texts, request.rows.pairs), np.asarray(request.rows.labels)
    measured = percent(score(logits, labels, request.metrics).values())
    rows.append([f"this file, {classifier.isa} engine", own_bits, *measured])
    tables = [markdown_table(["model", "bits", *request.metrics], rows)]
    if len(classifier.labels) > 1:
        counts = zip(classifier.labels, confusion(logits, labels), strict=True)
        head, lines = ["gold \\ answer", *classifier.labels], [[name, *map(str, row)] for name, row in counts]
        tables.append(markdown_table(head, lines))
        tables.append(_by_length(request.rows, logits.argmax(axis=-1) == labels))
        scores = softmax(logits, classifier.temperature)
        tables.append(_by_score(reliability(scores, labels)))
        if mistakes := worst_mistakes(request.rows, scores, classifier.labels):
            cells = ([f"{one.score:.4f}", *map(_escaped, one[1:])] for one in mistakes)
            tables.append(markdown_table(["worst mistakes: score", "answer", "gold", "text"], cells))
    return "\n\n".join(tables)


def _by_length(rows: Split, right: Any) -> str:
    """Accuracy on short and on long texts, which the mean over all hides."""
    words, lines = np.array([len(text.split()) for text in rows.joined_texts]), []
    for least, end in pairwise(LENGTHS):
        some = right[(words >= least) & (words < end)]
        if some.size:
            span = f"{least} and more" if end == math.inf else f"{least} to {end - 1}"
            lines.append([span, f"{some.size:,}", f"{100 * some.mean():.1f} %"])
    return markdown_table(["words of the text", "rows", "accuracy"], lines)


def _by_score(bins: Sequence[Bin]) -> str:
    """Mean score and accuracy of rows with similar scores; the distance of all rows is the calibration error."""
    rows = [one.rows for one in bins]
    score, accuracy = (np.average([one[place] for one in bins], weights=rows) for place in (2, 3))
    lines = [
        (f"{one.least:.2f} to {one.least + 1 / BINS:.2f}", *one[1:], abs(one.score - one.accuracy)) for one in bins
    ]
    lines.append(("all (expected calibration error)", sum(rows), score, accuracy, calibration_error(bins)))
    cells = ([name, f"{count:,}", *(f"{100 * share:.1f} %" for share in shares)] for name, count, *shares in lines)
    return markdown_table(["score of the answer", "rows", "mean score", "accuracy", "distance"], cells)


def _escaped(text: str) -> str:
    """A text as a cell of Markdown in which no character has a meaning; a long one is cut."""
    line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|~&#$])", r"\\\1", line if len(line) <= LONGEST else f"{line[:LONGEST]}…")


def _settings(recipe: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """The named settings of a recipe; by default all of them, the telling ones first."""
    names = names or [*RECIPE_FIRST, *sorted(recipe.keys() - set(RECIPE_FIRST))]
    unused = {name for name in ("min_steps", "max_steps") if not recipe.get(name)}
    if "max_steps" not in unused and "min_steps" not in recipe:
        unused.add("epochs")  # in older versions steps replaced epochs
    return ", ".join(f"{name} = {recipe[name]!r}" for name in names if name in recipe.keys() - unused)

"""The card of a packed model in Markdown: what it is, how good it is and how it was made.

Every figure is measured here with the packed file itself, or comes from its header; figures of the teacher come from
the notes of its run. The text is in pages/templates/card.md, with fields of `str.format`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from bibert.data.examples import Split
from bibert.data.metrics import confusion, score
from bibert.errors import CheckpointError, ModelFileError
from bibert.lab.record import Record, load_record
from bibert.lab.tables import markdown_table
from bibert.models import DEFAULT, find_file
from bibert.nn.checkpoint import model_folder
from bibert.runtime.classifier import TextClassifier, load
from bibert.training.provenance import provenance, weights_digest

LENGTHS = (0, 10, 20, 30)  # words from which a text counts as longer
RECIPE_FIRST = ("seed", "epochs", "max_steps", "batch_size", "learning_rate", "max_length", "norm_scope", "weights")
TEMPLATE = resources.files("bibert.lab.pages").joinpath("templates", "card.md")


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
    config, about = classifier.config, classifier.about
    missing = [name for name in ("recipe", "metrics", "data") if name not in about]
    if missing:
        raise ModelFileError(f"{path}: does not name its {missing[0]}; pack it again from the model folder of its run")
    teacher = None if request.teacher is None else _teacher(request.teacher, about.get("teacher_sha256"))
    has_labels = len(classifier.labels) > 1
    scores = "Scores are the softmax of the logits" if has_labels else "The score is the output of the network"
    limits = [
        f"Texts are cut after {classifier.max_length} tokens.",
        f"It comes from one run, with seed {about['recipe'].get('seed')}. {scores}, not calibrated.",
        "It was not examined for bias against groups of people; do not decide about people with it.",
        *request.limits,
    ]
    return TEMPLATE.read_text(encoding="utf-8").format(
        title=request.title,
        licence=request.licence,
        bits=config.activation_bits,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        scheme=about["scheme"],
        size=path.stat().st_size,
        labels=", ".join(classifier.labels) if has_labels else "a score",
        command=f"bibert predict {'' if request.model == DEFAULT else f'--model {request.model} '}'a text'",
        measured_on=_measured_on(request, about["data"]["name"]),
        verified_rows=about["verified_rows"],
        figures=_figures(request, classifier, teacher),
        training="\n".join(f"- {line}" for line in _training(about, teacher)),
        limits="\n".join(f"- {line}" for line in limits),
    )


def _teacher(given: Path, weights: str | None) -> Record:
    """The record of the teacher's run; `weights` is the digest in the packed file, None if it has none."""
    folder = Path(model_folder(given))
    if not provenance(folder):
        raise CheckpointError(f"{given}: is not in a finished run, so it has no notes; give the run of the teacher")
    found = weights_digest(folder)
    if weights is not None and found != weights:
        raise CheckpointError(
            f"{folder}: is not the teacher of this file: the SHA-256 of its weights is {str(found)[:16]}…, must be "
            f"{weights[:16]}…; give the folder that the student was distilled from"
        )
    return load_record(folder.parent)


def _measured_on(request: CardRequest, trained_on: str) -> str:
    """The rows of the figures; only the dev set of its own task is known to have selected the model."""
    rows = f"{len(request.rows):,} labelled rows"
    if request.task == trained_on:
        return f"On {rows} ({request.task}, dev). The model was selected on these rows; expect a little less on others."
    origin = f"{request.task}, dev" if request.task else Path(request.rows.origin).name
    return (
        f"The file was measured on {rows} ({origin}); its training may have used them. The figures of torch are those "
        "of the dev set of each run, on which the model was selected."
    )


def _figures(request: CardRequest, classifier: TextClassifier, teacher: Record | None) -> str:
    def percent(values: Iterable[float | None]) -> list[str]:
        return ["–" if value is None else f"{100 * value:.2f} %" for value in values]

    about, labels = classifier.about, np.asarray(request.rows.labels)
    logits = classifier.logits(request.rows.texts, request.rows.pairs)
    measured = score(logits, labels, request.metrics)

    def noted(model: str, bits: str, data: Mapping[str, Any], metrics: Mapping[str, float]) -> list[str]:
        """A row of the metrics that a run recorded, on its own dev set."""
        where = "" if data["name"] == request.task else ", dev set of its run"
        return [f"{model}, torch{where}", bits, *percent(metrics.get(f"dev_{name}") for name in request.metrics)]

    bits = f"1-1-{classifier.config.activation_bits}"
    rows = [noted("this model", bits, about["data"], about["metrics"])]
    if teacher is not None:
        rows.insert(0, noted("teacher", str(teacher.scheme.bits), teacher.data, teacher.metrics))
    rows.append([f"this file, {classifier.isa} engine", bits, *percent(measured.values())])
    tables = [markdown_table(["model", "bits", *request.metrics], rows)]
    if len(classifier.labels) > 1:
        counts = zip(classifier.labels, confusion(logits, labels), strict=True)
        head, lines = ["gold \\ answer", *classifier.labels], [[name, *map(str, row)] for name, row in counts]
        tables.append(markdown_table(head, lines))
        tables.append(_by_length(request.rows, logits.argmax(axis=-1) == labels))
    return "\n\n".join(tables)


def _by_length(rows: Split, right: Any) -> str:
    """Accuracy on short and on long texts, which the mean over all hides."""
    words, lines = np.array([len(text.split()) for text in rows.joined_texts]), []
    for least, end in zip(LENGTHS, (*LENGTHS[1:], None), strict=True):
        some = right[(words >= least) & (words < (np.inf if end is None else end))]
        if some.size:
            span = f"{least} and more" if end is None else f"{least} to {end - 1}"
            lines.append([span, f"{some.size:,}", f"{100 * some.mean():.1f} %"])
    return markdown_table(["words of the text", "rows", "accuracy"], lines)


def _training(about: Mapping[str, Any], teacher: Record | None) -> list[str]:
    settings = _settings(about["recipe"], [*RECIPE_FIRST, *sorted(about["recipe"].keys() - set(RECIPE_FIRST))])
    called = "a teacher"
    if teacher is not None:
        quantized = f"a teacher of scheme `{teacher.scheme.name}` ({teacher.scheme.bits} bits)"
        called = quantized if teacher.scheme.is_quantized else "a full-precision teacher"
    lines = [
        f"Data: {_data(about['data'])}.",
        f"Scheme `{about['scheme']}`, distilled from {called}. Recipe: {settings}.",
        f"bibert {about['bibert']}, commit {about.get('commit')}, {about.get('date')}, {about.get('cpu')}.",
        *_starts(about.get("start")),
    ]
    if teacher is not None:
        settings = _settings(teacher.recipe, RECIPE_FIRST[:6])
        lines.append(f"Teacher: {teacher.data['name']}, {settings}; commit {teacher.origin.get('commit')}.")
    return lines


def _data(data: Mapping[str, str]) -> str:
    return f"{data['name']}, {data['train']} (SHA-256 of texts and labels {data['sha256'][:16]}…)"


def _starts(start: Mapping[str, Any] | None) -> list[str]:
    """The model that training started from, if it was not the teacher, and the one that this started from."""
    if start is None:
        return []
    if "recipe" not in start:
        digest = f"the SHA-256 of its weights is {start['sha256'][:16]}…" if start["sha256"] else "it is on the Hub"
        return [f"Started from a model that is not of a run of bibert; {digest}."]
    settings = _settings(start["recipe"], RECIPE_FIRST)
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in sorted(start["metrics"].items()))
    said = f"Started from a model of scheme `{start['scheme']}` with {metrics}. Data: {_data(start['data'])}."
    return [f"{said} Recipe: {settings}. Commit {start['commit']}, {start['date']}.", *_starts(start["start"])]


def _settings(recipe: Mapping[str, Any], names: Sequence[str]) -> str:
    unused = "epochs" if recipe.get("max_steps") else "max_steps"  # steps override epochs
    return ", ".join(f"{name} = {recipe[name]!r}" for name in names if name in recipe and name != unused)

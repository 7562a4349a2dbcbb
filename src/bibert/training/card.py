"""The card of a packed model: what it is, how good it is and how it was made, as Markdown.

Every figure is measured here with the packed file itself, or stands in its header since `bibert pack` put it there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bibert.data.examples import Split
from bibert.errors import ModelFileError
from bibert.models import DEFAULT
from bibert.runtime.classifier import TextClassifier, find_file, load
from bibert.training.evaluate import confusion, score

BLANK = "–"
RECIPE_FIRST = ("seed", "epochs", "batch_size", "learning_rate", "max_length", "norm_scope", "weights")


@dataclass(frozen=True)
class Subject:
    """What a card is about.

    Attributes:
        title: its first line.
        model: the packed file, a folder with one, or a name.
        rows: labelled texts to measure it on.
        metrics: names of metrics, the selecting one first.
        teacher: `provenance` of the teacher it was distilled from, if that is known.
        licence: of the weights, such as apache-2.0.
        limits: what a user must know, sentence by sentence.
    """

    title: str
    model: str
    rows: Split
    metrics: Sequence[str]
    teacher: Mapping[str, Any]
    licence: str
    limits: Sequence[str]


def card(subject: Subject) -> str:
    """The card in Markdown.

    Raises:
        ModelFileError: the file does not say where it comes from.
    """
    path = find_file(subject.model)
    classifier = load(path, threads=1)
    missing = [name for name in ("recipe", "metrics", "data") if name not in classifier.about]
    if missing:
        raise ModelFileError(
            f"{path}: does not say by which {missing[0]} it was trained; pack it again from the model folder of its run"
        )
    logits = classifier.logits(*_texts(subject.rows))
    parts = (
        _front_matter(subject),
        _opening(subject, classifier, path),
        _figures(subject, classifier, logits),
        _training(subject, classifier),
        _limits(subject, classifier),
    )
    return "\n\n".join(parts) + "\n"


def _texts(rows: Split) -> tuple[list[str], list[str] | None]:
    return list(rows.texts), None if rows.pairs is None else list(rows.pairs)


def _front_matter(subject: Subject) -> str:
    return f"---\nlibrary_name: bibert\npipeline_tag: text-classification\nlicense: {subject.licence}\n---"


def _opening(subject: Subject, classifier: TextClassifier, path: Path) -> str:
    config, about = classifier.config, classifier.about
    labels = ", ".join(classifier.labels) if len(classifier.labels) > 1 else "a score"
    return (
        f"# {subject.title}\n\n"
        f"A BERT with 1-bit weights, word embeddings and activations ({config.layers} layers, {config.hidden} "
        f"channels, {config.heads} heads; scheme `{about['scheme']}`) in one file of {path.stat().st_size:,} bytes, "
        f"tokenizer included. It answers with: {labels}.\n\n"
        f"```sh\n{_command(subject.model)}\n```"
    )


def _command(model: str) -> str:
    """How to ask the model; the one in the package needs no name."""
    return "bibert predict 'a text'" if model == DEFAULT else f"bibert predict --model {model} 'a text'"


def _figures(subject: Subject, classifier: TextClassifier, logits: Any) -> str:
    labels = np.asarray(subject.rows.labels)
    measured = score(logits, labels, subject.metrics)
    lines = [f"| model | bits | {' | '.join(subject.metrics)} |", "|---" * (2 + len(subject.metrics)) + "|"]
    if subject.teacher:
        lines.append(_row("teacher, torch", "32-32-32", _noted(subject, subject.teacher)))
    lines.append(_row("this model, torch", "1-1-1", _noted(subject, classifier.about)))
    lines.append(_row(f"this file, {classifier.isa} engine", "1-1-1", [measured[name] for name in subject.metrics]))
    text = (
        f"## Figures\n\nOn {len(subject.rows):,} labelled rows ({classifier.about['data']['name']}, dev); the model "
        "was selected on these rows, so the figures are a little on the bright side. Engine and torch gave the same "
        f"bits on {classifier.about['verified_rows']:,} rows when the file was made.\n\n" + "\n".join(lines)
    )
    return text if len(classifier.labels) == 1 else f"{text}\n\n{_confusion(classifier.labels, labels, logits)}"


def _noted(subject: Subject, origin: Mapping[str, Any]) -> list[float | None]:
    """The metrics a run noted at its end; None for one that it did not measure."""
    return [origin["metrics"].get(f"dev_{name}") for name in subject.metrics]


def _row(name: str, bits: str, values: Sequence[float | None]) -> str:
    cells = [BLANK if value is None else f"{100 * value:.2f} %" for value in values]
    return f"| {name} | {bits} | {' | '.join(cells)} |"


def _confusion(names: Sequence[str], labels: Any, logits: Any) -> str:
    counts = confusion(logits, labels)
    lines = [f"| gold \\ answer | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    lines += [f"| {name} | {' | '.join(map(str, row))} |" for name, row in zip(names, counts, strict=True)]
    return "\n".join(lines)


def _training(subject: Subject, classifier: TextClassifier) -> str:
    about = classifier.about
    recipe = about["recipe"]
    order = [*RECIPE_FIRST, *sorted(recipe.keys() - set(RECIPE_FIRST))]
    settings = ", ".join(f"{name} = {recipe[name]!r}" for name in order if name in recipe)
    lines = [
        f"- Data: {about['data']['name']} (SHA-256 of texts and labels {about['data']['sha256'][:16]}…).",
        f"- Scheme `{about['scheme']}`, distilled from a full-precision teacher. Recipe: {settings}.",
        f"- bibert {about['bibert']}, commit {about.get('commit')}, {about.get('date')}, {about.get('cpu')}.",
    ]
    if subject.teacher:
        taught = subject.teacher["recipe"]
        settings = ", ".join(f"{name} = {taught[name]!r}" for name in RECIPE_FIRST[:5])
        lines.append(f"- Teacher: {settings}; commit {subject.teacher.get('commit')}.")
    return "## Training\n\n" + "\n".join(lines)


def _limits(subject: Subject, classifier: TextClassifier) -> str:
    lines = [
        f"Texts are cut after {classifier.max_length} tokens.",
        "One seed was trained. Scores are the softmax of the logits and were not calibrated.",
        "It was not examined for bias against groups of people; do not decide about people with it.",
        *subject.limits,
    ]
    listed = "\n".join(f"- {line}" for line in lines)
    return f"## Limits\n\n{listed}\n\n## Licence\n\n{subject.licence}"

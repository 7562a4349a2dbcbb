"""The card of a packed model: what it is, how good it is and how it was made, as Markdown.

Every figure is measured here with the packed file itself, or stands in its header since `bibert pack` put it there;
what is said of the teacher stands in the notes of its run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bibert.data.examples import Split
from bibert.data.metrics import confusion, score
from bibert.errors import CheckpointError, ModelFileError
from bibert.lab.record import Record, load_record
from bibert.models import DEFAULT, find_file
from bibert.nn.checkpoint import model_folder
from bibert.runtime.classifier import TextClassifier, load
from bibert.training.provenance import provenance, weights_digest

BLANK = "–"
LENGTHS = (0, 10, 20, 30)  # words from which a text is counted among longer ones
RECIPE_FIRST = ("seed", "epochs", "max_steps", "batch_size", "learning_rate", "max_length", "norm_scope", "weights")


@dataclass(frozen=True)
class Subject:
    """What a card is about.

    Attributes:
        title: its first line.
        model: the packed file, a folder with one, or a name.
        rows: labelled texts to measure it on.
        task: the GLUE task whose dev set the rows are; empty for any other rows.
        metrics: names of metrics, the selecting one first.
        teacher: run or model folder of the teacher it was distilled from; None to say nothing of it.
        licence: of the weights, such as apache-2.0.
        limits: what a user must know, sentence by sentence.
    """

    title: str
    model: str
    rows: Split
    task: str
    metrics: Sequence[str]
    teacher: Path | None
    licence: str
    limits: Sequence[str]


def card(subject: Subject) -> str:
    """The card in Markdown.

    Raises:
        ModelFileError: the file does not say where it comes from.
        CheckpointError: nothing is noted of the teacher, or it is not that of this file.
    """
    path = find_file(subject.model)
    classifier = load(path, threads=1)
    missing = [name for name in ("recipe", "metrics", "data") if name not in classifier.about]
    if missing:
        raise ModelFileError(
            f"{path}: does not say by which {missing[0]} it was trained; pack it again from the model folder of its run"
        )
    teacher = None if subject.teacher is None else _teacher(subject.teacher, classifier.about.get("teacher_sha256"))
    logits = classifier.logits(subject.rows.texts, subject.rows.pairs)
    parts = (
        _front_matter(subject),
        _opening(subject, classifier, path),
        _figures(subject, classifier, teacher, logits),
        _training(classifier, teacher),
        _limits(subject, classifier),
    )
    return "\n\n".join(parts) + "\n"


def _teacher(given: Path, weights: str | None) -> Record:
    """What the run of the teacher noted; `weights` is the digest in the packed file, None where it has none."""
    folder = Path(model_folder(given))
    if not provenance(folder):
        raise CheckpointError(f"{given}: lies in no finished run, so it has no notes; give the run of the teacher")
    found = weights_digest(folder)
    if weights is not None and found != weights:
        raise CheckpointError(
            f"{folder}: is not the teacher of this file: the SHA-256 of its weights is {str(found)[:16]}…, must be "
            f"{weights[:16]}…; give the folder that the student was distilled from"
        )
    return load_record(folder.parent)


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


def _figures(subject: Subject, classifier: TextClassifier, teacher: Record | None, logits: Any) -> str:
    labels, about = np.asarray(subject.rows.labels), classifier.about
    measured = score(logits, labels, subject.metrics)
    lines = [f"| model | bits | {' | '.join(subject.metrics)} |", "|---" * (2 + len(subject.metrics)) + "|"]
    if teacher is not None:
        lines.append(_noted(subject, "teacher", str(teacher.scheme.bits), teacher.data, teacher.metrics))
    lines.append(_noted(subject, "this model", "1-1-1", about["data"], about["metrics"]))
    lines.append(_row(f"this file, {classifier.isa} engine", "1-1-1", [measured[name] for name in subject.metrics]))
    text = (
        f"## Figures\n\n{_measured_on(subject, about['data']['name'])} Engine and torch gave the same bits on "
        f"{about['verified_rows']:,} rows when the file was made.\n\n" + "\n".join(lines)
    )
    if len(classifier.labels) == 1:
        return text
    return f"{text}\n\n{_confusion(classifier.labels, labels, logits)}\n\n{_by_length(subject.rows, labels, logits)}"


def _measured_on(subject: Subject, trained_on: str) -> str:
    """Which rows the figures are of; that they selected the model is known of the dev set of its own task alone."""
    rows = f"{len(subject.rows):,} labelled rows"
    if subject.task == trained_on:
        return (
            f"On {rows} ({subject.task}, dev). The model was selected on these rows, so on others expect a little less."
        )
    origin = f"{subject.task}, dev" if subject.task else Path(subject.rows.origin).name
    return (
        f"The file was measured on {rows} ({origin}); whether its training used them is not noted. The figures of "
        "torch are those of the dev set of each run, on which the model was selected."
    )


def _noted(subject: Subject, model: str, bits: str, data: Mapping[str, Any], metrics: Mapping[str, float]) -> str:
    """The line of what a run noted at its end, on its own dev set."""
    where = "" if data["name"] == subject.task else ", dev set of its run"
    return _row(f"{model}, torch{where}", bits, [metrics.get(f"dev_{name}") for name in subject.metrics])


def _row(name: str, bits: str, values: Sequence[float | None]) -> str:
    cells = [BLANK if value is None else f"{100 * value:.2f} %" for value in values]
    return f"| {name} | {bits} | {' | '.join(cells)} |"


def _confusion(names: Sequence[str], labels: Any, logits: Any) -> str:
    counts = confusion(logits, labels)
    lines = [f"| gold \\ answer | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    lines += [f"| {name} | {' | '.join(map(str, row))} |" for name, row in zip(names, counts, strict=True)]
    return "\n".join(lines)


def _by_length(rows: Split, labels: Any, logits: Any) -> str:
    """Accuracy on short and on long texts, which a mean over all would hide."""
    words, right = np.array([len(text.split()) for text in rows.joined_texts]), logits.argmax(axis=-1) == labels
    lines = ["| words of the text | rows | accuracy |", "|---|---|---|"]
    for least, end in zip(LENGTHS, (*LENGTHS[1:], None), strict=True):
        some = right[(words >= least) & (words < (np.inf if end is None else end))]
        if some.size:
            span = f"{least} and more" if end is None else f"{least} to {end - 1}"
            lines.append(f"| {span} | {some.size:,} | {100 * some.mean():.1f} % |")
    return "\n".join(lines)


def _training(classifier: TextClassifier, teacher: Record | None) -> str:
    about = classifier.about
    settings = _settings(about["recipe"], [*RECIPE_FIRST, *sorted(about["recipe"].keys() - set(RECIPE_FIRST))])
    lines = [
        f"- Data: {_data(about['data'])}.",
        f"- Scheme `{about['scheme']}`, distilled from {_called(teacher)}. Recipe: {settings}.",
        f"- bibert {about['bibert']}, commit {about.get('commit')}, {about.get('date')}, {about.get('cpu')}.",
        *_starts(about.get("start")),
    ]
    if teacher is not None:
        settings = _settings(teacher.recipe, RECIPE_FIRST[:6])
        lines.append(f"- Teacher: {teacher.data['name']}, {settings}; commit {teacher.origin.get('commit')}.")
    return "## Training\n\n" + "\n".join(lines)


def _data(data: Mapping[str, str]) -> str:
    return f"{data['name']}, {data['train']} (SHA-256 of texts and labels {data['sha256'][:16]}…)"


def _starts(start: Mapping[str, Any] | None) -> list[str]:
    """What the training started from and what that one started from, where it was not the teacher."""
    if start is None:
        return []
    if "recipe" not in start:
        digest = f"the SHA-256 of its weights is {start['sha256'][:16]}…" if start["sha256"] else "it is on the Hub"
        return [f"- Started from a model that is not of a run of bibert; {digest}."]
    settings = _settings(start["recipe"], RECIPE_FIRST)
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in sorted(start["metrics"].items()))
    said = f"- Started from a model of scheme `{start['scheme']}` with {metrics}. Data: {_data(start['data'])}."
    return [f"{said} Recipe: {settings}. Commit {start['commit']}, {start['date']}.", *_starts(start["start"])]


def _settings(recipe: Mapping[str, Any], names: Sequence[str]) -> str:
    unused = "epochs" if recipe.get("max_steps") else "max_steps"  # the steps count, if any are given
    return ", ".join(f"{name} = {recipe[name]!r}" for name in names if name in recipe and name != unused)


def _called(teacher: Record | None) -> str:
    if teacher is None:
        return "a teacher"
    if not teacher.scheme.is_quantized:
        return "a full-precision teacher"
    return f"a teacher of scheme `{teacher.scheme.name}` ({teacher.scheme.bits} bits)"


def _limits(subject: Subject, classifier: TextClassifier) -> str:
    scores = "Scores are the softmax of the logits and were"
    if len(classifier.labels) == 1:
        scores = "The score is the output of the network and was"
    lines = [
        f"Texts are cut after {classifier.max_length} tokens.",
        f"It comes from one run, with seed {classifier.about['recipe'].get('seed')}. {scores} not calibrated.",
        "It was not examined for bias against groups of people; do not decide about people with it.",
        *subject.limits,
    ]
    listed = "\n".join(f"- {line}" for line in lines)
    return f"## Limits\n\n{listed}\n\n## Licence\n\n{subject.licence}"

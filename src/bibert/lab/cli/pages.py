"""`bibert analyze attention`, `bibert analyze report` and `bibert card`: pages, figures of attention, model cards."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bibert.cli.console import say
from bibert.cli.options import EvaluationOptions, ModelName, option, require_torch, with_option_groups
from bibert.data import MAX_LENGTH
from bibert.data.examples import Split
from bibert.data.glue import get_task
from bibert.data.metrics import calibration_error, confusion, reliability, score, score_answers
from bibert.errors import BibertError, DataError, require_extra
from bibert.lab.attention import attention_map, attention_maps
from bibert.lab.cli.options import TextOptions, load_subjects
from bibert.lab.look import Floats, entropies
from bibert.lab.mistakes import worst_mistakes
from bibert.lab.plots.style import METADATA, save_figure
from bibert.lab.record import Record, load_record
from bibert.models import DEFAULT
from bibert.runtime.classifier import softmax
from bibert.runtime.text import Text

if TYPE_CHECKING:
    from bibert.lab.pages.report import Findings

View = StrEnum("View", ["MODEL", "HEAD"])  # the content of a figure
PAGE = ".html"
MOST_TEXTS = 32  # labelled rows whose entropies are measured


def attention(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Packed files, model folders, run folders, or names on the Hub."),
    ],
    text: Annotated[str, typer.Option("--text", "-t", help="The text that every model reads.")],
    outputs: Annotated[
        list[Path],
        option("An interactive page (.html), or a figure (.svg, .pdf, .png); may be repeated.", "--output", "-o"),
    ],
    pair: Annotated[str | None, option("The second text of a pair.")] = None,
    view: Annotated[
        View, typer.Option(help="Figures: all heads as small images, or one head as lines between tokens.")
    ] = View.MODEL,
    layers: Annotated[
        str | None, option("Layers in --view model, such as 0-3, instead of all.", metavar="FIRST-LAST")
    ] = None,
    layer: Annotated[int | None, option("Layer of --view head, or first open in a page; default 0.", min=0)] = None,
    head: Annotated[int | None, option("Head of --view head, or first open in a page; default 0.", min=0)] = None,
) -> None:
    """Show what every head attends to: full precision, baseline and BiBERT side by side, for the same text.

    Example: bibert analyze attention teacher/model reviews.bibert -t "a gorgeous, witty film" -o attention.html
    """
    _refuse_options_without_effect(outputs, view, layers, (layer, head))
    chosen = None if layers is None else parse_layers(layers)
    require_extra("plot", "bibert analyze attention")
    from bibert.lab.pages import attention_page, save_page
    from bibert.lab.plots.attention import draw_head_view, draw_model_view

    maps = attention_maps(load_subjects(models), text if pair is None else (text, pair))
    say(f"{', '.join(one.title for one in maps)}: {len(maps[0].tokens)} tokens")
    one_head = layer or 0, head or 0
    for output in outputs:
        if output.suffix == PAGE:
            say(f"{save_page(attention_page(maps, *one_head), output)}: written, {output.stat().st_size:,} bytes")
        else:
            figure = draw_head_view(maps, *one_head) if view is View.HEAD else draw_model_view(maps, chosen)
            say(f"{save_figure(figure, output)}: written")


def _refuse_options_without_effect(
    outputs: Sequence[Path], view: View, layers: str | None, one_head: tuple[int | None, int | None]
) -> None:
    """An output of unknown kind, or an option that would change nothing, is an error, not silently ignored."""
    for output in outputs:
        if output.suffix not in (PAGE, *METADATA):
            wanted = f"a page ends in {PAGE}, a figure in {', '.join(METADATA)}"
            raise BibertError(f"{output}: ends in {output.suffix or 'nothing'!r}; {wanted}")
    page = any(output.suffix == PAGE for output in outputs)
    figure = any(output.suffix != PAGE for output in outputs)
    if view is View.HEAD and not figure:
        raise BibertError("--view head needs a figure; a page has both views: add -o head.svg, or leave it out")
    if layers is not None and not (figure and view is View.MODEL):
        raise BibertError("--layers needs a figure with --view model; add -o model.svg, or leave it out")
    if one_head != (None, None) and not (page or view is View.HEAD):
        raise BibertError("--layer and --head need --view head or a page; for --view model give --layers")


def parse_layers(words: str) -> range:
    """`0-3` as the layers 0, 1, 2 and 3; `5` as one."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", words)
    layers = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not layers:
        raise BibertError(f"--layers {words!r}: write the first and the last layer, such as 0-3, or one, such as 5")
    return layers


@with_option_groups
def report(
    model: Annotated[str, typer.Option("--model", "-m", help="A run folder, finished or not, or a packed file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page, an .html file.")],
    data: EvaluationOptions,
    texts: TextOptions,
    train: Annotated[
        Path | None, option("Training rows, for a bag of words to compare with; --task has its own.")
    ] = None,
) -> None:
    """Write one self-contained HTML page: results, curves, data, recipe, entropy, direction, attention and cost.

    Labelled rows, or --task, add scores beside baselines without a network, the confusion matrix, reliability and the
    worst mistakes with their texts; rows or texts add entropies and attention.

    Example: bibert analyze report --model runs/student dev.csv -o report.html
    """
    require_extra("plot", "bibert analyze report")
    if output.suffix != PAGE:
        raise DataError(f"{output}: ends in {output.suffix or 'nothing'!r}; a page ends in {PAGE}")
    from bibert.lab.pages import save_page
    from bibert.lab.pages.report import report_page

    record = load_record(model)
    page = report_page(record, _findings(record, data, texts.load(), train))
    say(f"{save_page(page, output)}: written, {output.stat().st_size:,} bytes")


def _findings(record: Record, data: EvaluationOptions, texts: list[Text], train: Path | None) -> "Findings":
    """Measure whatever the model, the rows and the texts allow."""
    from bibert.lab.pages.report import Findings

    has_rows = data.data is not None or data.task is not None
    if not has_rows and not texts:
        return Findings()
    if record.model is None:
        raise DataError(f"{record.name}: has no model yet; leave out the rows and texts, or wait until it is trained")
    evaluation = data.load_splits(tuple(record.labels), {"data": record.data}) if has_rows else None
    rows = None if evaluation is None else evaluation.first
    read = texts or ([] if rows is None else rows.texts_or_pairs[:MOST_TEXTS])
    tokens = int(record.recipe.get("max_length", MAX_LENGTH))
    found = Findings()
    if record.has_bits:
        [(title, subject)] = load_subjects([record.model], tokens).items()
        found = Findings(entropies(subject.insides(read)), attention_map(subject, title, read[0]))
    if evaluation is None or rows is None:
        return found
    logits = _logits(record.model, rows, tokens)
    scored = f"{len(rows):,} rows of {Path(rows.origin).name}"
    found = replace(found, scores=score(logits, rows.labels, evaluation.metrics), scored=scored)
    if len(record.labels) == 1:
        return found
    probabilities = softmax(logits, record.temperature)
    bins = reliability(probabilities, rows.labels)
    training = _training_rows(data, train, rows, tuple(record.labels))
    return replace(
        found,
        confusion=confusion(logits, rows.labels),
        reliability=bins,
        mistakes=worst_mistakes(rows, probabilities, record.labels),
        scores={**found.scores, "ece": calibration_error(bins)},
        baselines=_baselines(rows, training, evaluation.metrics),
    )


def _training_rows(data: EvaluationOptions, train: Path | None, rows: Split, labels: tuple[str, ...]) -> Split | None:
    """The rows of --train, or those beside the dev set of a task."""
    from bibert.data.glue import TRAIN_FILE, load_glue
    from bibert.data.tables import load_split

    if train is not None:
        return load_split(train, data.columns, labels)
    has_own = data.task is not None and Path(rows.origin).with_name(TRAIN_FILE).is_file()
    return load_glue(data.task, data.data).train if has_own and data.task and data.data else None


def _baselines(rows: Split, train: Split | None, metrics: Sequence[str]) -> dict[str, dict[str, float]]:
    """What needs no network: the most frequent label, and a bag of words where there are rows to train it on."""
    answers: dict[str, Any] = {"always the same label": Counter(rows.labels).most_common(1)[0][:1] * len(rows)}
    if train is not None and find_spec("sklearn") is not None:
        from bibert.training.floor import bag_of_words

        answers["bag of words"] = bag_of_words(train).predict(rows.joined_texts)
    return {who: score_answers(one, rows.labels, metrics) for who, one in answers.items()}


def _logits(model: Path, rows: Split, tokens: int) -> Floats:
    if model.is_dir():
        require_torch("scoring a model folder")
        from bibert.nn.checkpoint import load_classifier
        from bibert.training.evaluate import predict_logits

        return predict_logits(load_classifier(model), rows, tokens)
    from bibert.runtime.classifier import load

    return load(model).logits(rows.texts, rows.pairs)


@with_option_groups
def card(
    data: EvaluationOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="The card, a Markdown file.")],
    title: Annotated[str, typer.Option(help="First line of the card.")],
    model: ModelName = DEFAULT,
    teacher: Annotated[Path | None, option("Model folder of its teacher, inside its run.", "--teacher", "-t")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights, as the Hub names it.")] = "other",
    limits: Annotated[list[str] | None, option("A sentence on what it cannot do; may be repeated.", "--limit")] = None,
) -> None:
    """Describe a packed file in Markdown: what it is, how good it is on labelled rows, how it was made.

    The worst mistakes are quoted with their texts.

    Example: bibert card dev.csv -m reviews.bibert --title "Sentiment of reviews" -o reviews.md
    """
    require_extra("plot", "bibert card")
    from bibert.lab.card import CardRequest
    from bibert.lab.card import card as write_card
    from bibert.lab.pages import save_page
    from bibert.runtime.classifier import load

    classifier = load(model, threads=1)
    evaluation = data.load_splits(classifier.labels, classifier.about)
    rows = evaluation.first
    task = "" if data.task is None else get_task(data.task).name
    text = write_card(CardRequest(title, model, rows, task, evaluation.metrics, teacher, licence, tuple(limits or ())))
    say(f"{save_page(text, output)}: measured on {len(rows):,} rows")

"""`bibert analyze report`: one page with all that is known of a run or a packed file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import say
from bibert.cli.data_options import EvaluationOptions
from bibert.cli.options import with_option_groups
from bibert.data.examples import MAX_LENGTH
from bibert.errors import DataError, require_extra
from bibert.lab.cli.subjects import load_subjects
from bibert.lab.cli.texts import TextOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bibert.data.examples import Split
    from bibert.lab.pages.report import Findings
    from bibert.lab.record import Record
    from bibert.runtime.text import Row

MOST_TEXTS = 32  # of labelled rows that entropies are taken on


@with_option_groups
def report(
    model: Annotated[str, typer.Option("--model", "-m", help="A run folder, finished or not, or a packed file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page, an .html file.")],
    data: EvaluationOptions,
    texts: TextOptions,
) -> None:
    """Write one self-contained HTML page: results, curves, data, recipe, entropy, direction, attention and cost.

    Labelled rows, or --task, add the score on them and the confusion matrix; they, or texts, add entropies and
    attention.

    Example: bibert analyze report --model runs/student dev.csv -o report.html
    """
    require_extra("plot", "bibert analyze report")
    if output.suffix != ".html":
        raise DataError(f"{output}: a page ends in .html, this one in {output.suffix or 'nothing'!r}")
    from bibert.lab.pages.render import save_page
    from bibert.lab.pages.report import report_page
    from bibert.lab.record import load_record

    record = load_record(model)
    page = report_page(record, _findings(record, data, texts.load()))
    say(f"{save_page(page, output)}: written, {output.stat().st_size:,} bytes")


def _findings(record: "Record", data: EvaluationOptions, texts: "list[Row]") -> "Findings":
    """Measure what the model, the rows and the texts allow."""
    from bibert.lab.pages.report import Findings

    has_rows = data.data is not None or data.task is not None
    if not has_rows and not texts:
        return Findings()
    if record.model is None:
        raise DataError(f"{record.name}: has no model yet; leave the rows and texts out, or wait for its end")
    rows, names = _rows(record, data) if has_rows else (None, ())
    read = texts or ([] if rows is None else rows.texts_or_pairs[:MOST_TEXTS])
    tokens = int(record.recipe.get("max_length", MAX_LENGTH))
    found = _inside(record.model, read, tokens) if record.has_bits else Findings()
    if rows is None:
        return found
    from bibert.data.metrics import confusion, score

    logits = _logits(record.model, rows, tokens)
    return replace(
        found,
        confusion=confusion(logits, rows.labels) if len(record.labels) > 1 else None,
        scores=score(logits, rows.labels, names),
        scored=f"{len(rows):,} rows of {Path(rows.origin).name}",
    )


def _rows(record: "Record", data: EvaluationOptions) -> "tuple[Split, tuple[str, ...]]":
    """The rows, of a task with two dev sets the first, and the metrics for them."""
    splits, names = data.load_splits(tuple(record.labels))
    return next(iter(splits.values())), names


def _inside(model: Path, texts: "list[Row]", tokens: int) -> "Findings":
    from bibert.lab.attention import attention_map
    from bibert.lab.entropy import entropies
    from bibert.lab.pages.report import Findings

    [(title, subject)] = load_subjects([model], tokens).items()
    return Findings(entropies(subject.insides(texts)), attention_map(subject, title, texts[0]))


def _logits(model: Path, rows: "Split", tokens: int) -> "NDArray[np.float32]":
    if model.is_dir():
        require_extra("train", "scoring a model folder")
        from bibert.nn.checkpoint import load_classifier
        from bibert.training.evaluate import predict_logits

        return predict_logits(load_classifier(model), rows, tokens)
    from bibert.runtime.classifier import load

    return load(model).logits(rows.texts, rows.pairs)

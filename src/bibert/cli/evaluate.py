"""`bibert evaluate`: the metrics of a trained model, a folder by torch or a packed file by the engine."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from bibert.cli import options
from bibert.cli.console import print_metrics, print_table, say, tracked
from bibert.errors import BibertError
from bibert.models import SUFFIX
from bibert.nn import network_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bibert.data.examples import Split


class Evaluated(NamedTuple):
    """A model to evaluate: its scheme, its labels, where it cuts a text, its temperature and its logits of a split."""

    scheme: str
    labels: tuple[str, ...]
    max_length: int
    temperature: float
    about: Mapping[str, Any]  # where it comes from
    logits: "Callable[[Split], NDArray[np.float32]]"


@options.with_option_groups
def evaluate(
    model: Annotated[str, typer.Option("--model", "-m", help=f"Folder of a teacher or student. {options.PACKED_HELP}")],
    data: options.EvaluationOptions,
    max_length: options.MaxLength = None,
    json: options.Json = False,
) -> None:
    """Evaluate a trained model on the dev set of a task, or on every row of a file.

    A packed file needs no torch, and cuts texts at the length it was packed with. Classes get their precision, recall
    and F1, and ece, the expected calibration error: how far scores are from the share of right answers, in 15 bins.

    Example: bibert evaluate test.csv --model reviews.bibert
    """
    from bibert.data.metrics import by_class, calibration_error, confusion, reliability, score
    from bibert.runtime.classifier import softmax

    folder = Path(model)
    # A folder with a packed file and no network is that file; a folder with neither is refused as a network.
    is_network = folder.is_dir() and (network_folder(folder) is not None or not any(folder.glob(f"*{SUFFIX}")))
    evaluated = _network(folder, max_length) if is_network else _packed(model, max_length)
    splits, names = data.load_splits(evaluated.labels, evaluated.about)
    rows = " and ".join(
        f"{len(split):,} {'rows' if split.pairs is None else 'pairs'} of {Path(split.origin).name}"
        for split in splits.values()
    )
    say(f"evaluating {model} on {rows}, texts cut after {evaluated.max_length} tokens")
    metrics: dict[str, float] = {}
    classes: dict[str, dict[str, dict[str, float]]] = {}
    for name, split in splits.items():
        logits, prefix = evaluated.logits(split), "" if data.task is None else f"{name}_"
        metrics |= {f"{prefix}{metric}": value for metric, value in score(logits, split.labels, names).items()}
        if len(evaluated.labels) > 1:
            bins = reliability(softmax(logits, evaluated.temperature), split.labels)
            metrics[f"{prefix}ece"] = calibration_error(bins)
            classes[name] = by_class(confusion(logits, split.labels), evaluated.labels)
    details = {"temperature": evaluated.temperature, "classes": classes}
    print_metrics({evaluated.scheme: metrics}, {evaluated.scheme: model}, json, **details)
    for name, figures in () if json else classes.items():
        table = Table("class", "precision", "recall", "f1", "support", title=None if data.task is None else name)
        for label, found in figures.items():
            *shares, support = found.values()
            table.add_row(escape(label), *(f"{100 * share:.1f}" for share in shares), f"{support:,}")
        print_table(table)


def _network(folder: Path, max_length: int | None) -> Evaluated:
    options.require_torch("bibert evaluate with a model folder")
    from bibert.nn.checkpoint import load_classifier
    from bibert.training.evaluate import predict_logits
    from bibert.training.provenance import provenance

    classifier = load_classifier(folder)
    origin, positions = provenance(folder), classifier.model.config.max_position_embeddings
    longest = min(max_length or options.usual_length(origin.get("recipe", {}), positions), positions)
    logits = partial(predict_logits, classifier, max_length=longest, watch=partial(tracked, title="evaluating"))
    scheme = classifier.model.config.quantization.name
    return Evaluated(scheme, classifier.label_names, longest, origin.get("temperature", 1.0), origin, logits)


def _packed(model: str, max_length: int | None) -> Evaluated:
    from bibert.runtime.classifier import load

    classifier = load(model)
    if max_length is not None:
        remedy = f"leave --max-length {max_length} out, or pack its folder again with it"
        raise BibertError(f"{model}: was packed to cut texts after {classifier.max_length} tokens; {remedy}")

    def logits(split: "Split") -> "NDArray[np.float32]":
        texts = tracked(split.texts, len(split), "evaluating")  # the classifier takes a window of them at a time
        return classifier.logits(texts, split.pairs, lambda row: f"{split.origin}: row {row + 1}")

    about = classifier.about
    scheme = str(about.get("scheme", "bibert"))
    return Evaluated(scheme, classifier.labels, classifier.max_length, classifier.temperature, about, logits)

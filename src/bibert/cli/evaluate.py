"""`bibert evaluate`: the score of a trained model, a folder's by torch or a packed file's by the engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibert.cli.console import say, tracked
from bibert.cli.lengths import MaxLength, usual_length
from bibert.cli.options import Json, ScoringOptions, with_option_groups
from bibert.errors import BibertError, require_extra
from bibert.models import SUFFIX
from bibert.nn.folders import network_folder

if TYPE_CHECKING:
    from bibert.data.examples import Split
    from bibert.runtime.classifier import TextClassifier


@dataclass(frozen=True)
class Judged:
    """A model that is scored.

    Attributes:
        scheme: the name of its scheme.
        labels: names of its classes; none, or one, for scores.
        max_length: tokens after which it cuts a text.
        score: the named metrics of it on a split.
    """

    scheme: str
    labels: tuple[str, ...]
    max_length: int
    score: "Callable[[Split, Sequence[str]], dict[str, float]]"


@with_option_groups
def evaluate(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="Folder of a teacher or student, a packed file, a file's name on the Hub, or sst2, "
            "which is in the package.",
        ),
    ],
    data: ScoringOptions,
    max_length: MaxLength = None,
    json: Json = False,
) -> None:
    """Score a trained model on the dev set of a task, or on every row of a file.

    A packed file is scored without torch, and cuts texts where it was packed to cut them.

    Example: bibert evaluate test.csv --model reviews.bibert
    """
    from bibert.cli.results import print_metrics

    judged = _of_file(model, max_length) if _is_packed(model) else _of_folder(Path(model), max_length)
    splits, names = data.load_splits(judged.labels)
    rows = " and ".join(
        f"{len(split):,} {'rows' if split.pairs is None else 'pairs'} of {Path(split.origin).name}"
        for split in splits.values()
    )
    say(f"scoring {model} on {rows}, texts cut after {judged.max_length} tokens")
    metrics = {
        metric if data.task is None else f"{name}_{metric}": value
        for name, split in splits.items()
        for metric, value in judged.score(split, names).items()
    }
    print_metrics({judged.scheme: metrics}, {judged.scheme: model}, json)


def _is_packed(model: str) -> bool:
    """Whether it is a file, or a name that leads to one; a folder with both is that of a network."""
    folder = Path(model)
    return not folder.is_dir() or (network_folder(folder) is None and any(folder.glob(f"*{SUFFIX}")))


def _of_file(model: str, max_length: int | None) -> Judged:
    from bibert.runtime.classifier import load

    classifier = load(model)
    if max_length is not None:
        raise BibertError(
            f"{model}: was packed to cut texts after {classifier.max_length} tokens; leave --max-length {max_length} "
            "out, or pack its folder again with it"
        )
    scheme = str(classifier.about.get("scheme", "bibert"))
    return Judged(scheme, classifier.labels, classifier.max_length, partial(_score_file, classifier))


def _score_file(classifier: "TextClassifier", split: "Split", names: "Sequence[str]") -> dict[str, float]:
    """The named metrics by the engine, some rows at a time, so that one sees how far it is."""
    import numpy as np

    from bibert.data.metrics import score
    from bibert.runtime.classifier import WINDOW

    windows, pairs = [slice(start, start + WINDOW) for start in range(0, len(split), WINDOW)], split.pairs
    logits = [
        classifier.logits(split.texts[rows], None if pairs is None else pairs[rows])
        for rows in tracked(windows, len(windows), "scoring")
    ]
    return score(np.concatenate(logits), split.labels, names)


def _of_folder(folder: Path, max_length: int | None) -> Judged:
    require_extra("train", "bibert evaluate with a model folder")
    from bibert.cli.progress import quiet_libraries
    from bibert.nn.loading import load_classifier
    from bibert.training.evaluate import evaluate as score
    from bibert.training.provenance import provenance

    quiet_libraries()
    classifier = load_classifier(folder)
    recipe, positions = provenance(folder).get("recipe", {}), classifier.model.config.max_position_embeddings
    longest = min(max_length or usual_length(recipe, positions), positions)
    watch = partial(tracked, title="scoring")
    return Judged(
        scheme=classifier.model.config.quantization.name,
        labels=classifier.label_names,
        max_length=longest,
        score=lambda split, names: score(classifier, split, names, longest, watch=watch),
    )

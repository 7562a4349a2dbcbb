"""`bibert evaluate`: the score of a trained model."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bibert.cli.console import say, tracked
from bibert.cli.lengths import MaxLength, usual_length
from bibert.cli.options import Json, ScoringOptions, with_option_groups
from bibert.errors import require_extra


@with_option_groups
def evaluate(
    model: Annotated[Path, typer.Option("--model", "-m", help="Folder of a teacher or student.")],
    data: ScoringOptions,
    max_length: MaxLength = None,
    json: Json = False,
) -> None:
    """Score a trained model on the dev set of a task, or on every row of a file.

    Example: bibert evaluate test.csv --model runs/reviews/student/model
    """
    require_extra("train", "bibert evaluate")
    from bibert.cli.progress import quiet_libraries
    from bibert.cli.results import show_metrics
    from bibert.nn.loading import load_classifier
    from bibert.training.evaluate import evaluate as score
    from bibert.training.run import provenance

    quiet_libraries()
    classifier = load_classifier(model)
    splits, names = data.load_splits(classifier.label_names)
    recipe, positions = provenance(model).get("recipe", {}), classifier.model.config.max_position_embeddings
    longest = min(max_length or usual_length(recipe, positions), positions)
    say(f"scoring {model}, texts cut after {longest} tokens")
    watch = partial(tracked, title="scoring")
    metrics = {
        f"{split}_{metric}": value
        for split, rows in splits.items()
        for metric, value in score(classifier, rows, names, longest, watch=watch).items()
    }
    name = classifier.model.config.quantization.name
    show_metrics({name: metrics}, {name: model}, json)

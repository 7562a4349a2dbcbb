"""A packed model inside the engines that hold the data: DuckDB, Polars, pandas, Ray Data and Spark.

Each file has what one engine needs; here is what they share. All give the labels and scores of `bibert predict`: a
string and a 32-bit float for each text, and null for null. docs/integrations.md shows how to use them.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bibert.errors import DataError
from bibert.runtime.classifier import TextClassifier, load
from bibert.runtime.writers import Labeller

Model = TextClassifier | Path | str  # what users give: a classifier, or what `bibert.load` takes


def classifier_of(model: Model, threads: int | None = None) -> TextClassifier:
    """Return the classifier; with `threads`, one that uses that many."""
    if not isinstance(model, TextClassifier):
        return load(model, threads or 0)
    return model if threads in (None, model.engine.threads) else TextClassifier(model.packed, threads or 0)


def new_columns(present: Collection[str], prefix: str) -> tuple[str, str]:
    """Return the names of the columns of labels and scores; raise `DataError` if the data has one already."""
    names = f"{prefix}label", f"{prefix}score"
    if taken := [name for name in names if name in present]:
        raise DataError(f"the data has a column {taken[0]!r} already; give the new columns a prefix")
    return names


def answers(classifier: TextClassifier, texts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the label and the score of each text, None for None; a regression has the name of its score as label."""
    rows = [row for row, text in enumerate(texts) if text is not None]
    present = [texts[row] for row in rows]
    *labels, scores = Labeller(classifier)(present, lambda number: f"row {rows[number]}")
    found = zip(labels[0] if labels else classifier.labels * len(present), scores, strict=True)
    answered = [(None, None) if text is None else next(found) for text in texts]
    return [label for label, _ in answered], [score for _, score in answered]


def arrow_answers(classifier: TextClassifier, texts: Any) -> tuple[Any, Any]:
    """Return arrays of Arrow for an array of texts: labels (string) and scores (float)."""
    import pyarrow

    labels, scores = answers(classifier, texts.to_pylist())
    return pyarrow.array(labels, pyarrow.string()), pyarrow.array(scores, pyarrow.float32())


def arrow_labels(classifier: TextClassifier, texts: Any) -> Any:
    """Return an array of labels."""
    return arrow_answers(classifier, texts)[0]


def arrow_structs(classifier: TextClassifier, texts: Any) -> Any:
    """Return an array of structs with the fields label and score."""
    import pyarrow

    missing = pyarrow.array([text is None for text in texts.to_pylist()], pyarrow.bool_())
    return pyarrow.StructArray.from_arrays(arrow_answers(classifier, texts), ["label", "score"], mask=missing)

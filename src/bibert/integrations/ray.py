"""Ray Data: labels for a data set, by actors that each hold the model."""

from typing import TYPE_CHECKING, Any

from bibert.integrations import Model, arrow_answers, classifier_of, new_columns
from bibert.models import DEFAULT
from bibert.runtime.classifier import TextClassifier

if TYPE_CHECKING:
    from ray.data import Dataset

ROWS_PER_BATCH = 2048


def predict(dataset: "Dataset", text: str, model: Model = DEFAULT, *, prefix: str = "", **options: Any) -> "Dataset":
    """Add the columns label and score of the texts in a column; `options` replace those of `map_batches`.

    There are as many actors as nodes, each with a thread for each CPU of its node. Actors reserve no CPU: Ray's own
    tasks, which read and write the data, then find one however few there are, and never wait for an actor.

    Examples:
        >>> predict(ray.data.read_parquet("reviews.parquet"), "text").write_parquet("labelled")
    """
    import ray
    from ray.data import ActorPoolStrategy

    nodes = sum(node["Alive"] for node in ray.nodes())
    usual = {
        "fn_constructor_args": (classifier_of(model, threads=0), text, prefix),
        "compute": ActorPoolStrategy(size=max(1, nodes)),
        "num_cpus": 0,
        "batch_size": ROWS_PER_BATCH,
        "batch_format": "pyarrow",
    }
    if "concurrency" in options:  # Ray ignores it beside `compute`
        del usual["compute"]
    return dataset.map_batches(_Actor, **{**usual, **options})


class _Actor:
    def __init__(self, classifier: TextClassifier, text: str, prefix: str) -> None:
        self._classifier, self._text, self._prefix = classifier, text, prefix

    def __call__(self, batch: Any) -> Any:
        names = new_columns(batch.column_names, self._prefix)
        for name, column in zip(names, arrow_answers(self._classifier, batch[self._text]), strict=True):
            batch = batch.append_column(name, column)
        return batch

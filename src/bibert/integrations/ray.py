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

    There is an actor with one thread for each CPU of the cluster but one. An actor reserves half a CPU, and none where
    there is only one: Ray's own tasks need a whole CPU to read the data, and would wait for ever without it.

    Examples:
        >>> predict(ray.data.read_parquet("reviews.parquet"), "text").write_parquet("labelled")
    """
    import ray
    from ray.data import ActorPoolStrategy

    cpus = int(ray.cluster_resources().get("CPU", 1))
    usual = {
        "fn_constructor_args": (classifier_of(model, threads=1), text, prefix),
        "compute": ActorPoolStrategy(size=max(1, cpus - 1)),
        "num_cpus": 0.5 if cpus > 1 else 0,
        "batch_size": ROWS_PER_BATCH,
        "batch_format": "pyarrow",
    }
    return dataset.map_batches(_Actor, **{**usual, **options})


class _Actor:
    def __init__(self, classifier: TextClassifier, text: str, prefix: str) -> None:
        self._classifier, self._text, self._prefix = classifier, text, prefix

    def __call__(self, batch: Any) -> Any:
        names = new_columns(batch.column_names, self._prefix)
        for name, column in zip(names, arrow_answers(self._classifier, batch[self._text]), strict=True):
            batch = batch.append_column(name, column)
        return batch

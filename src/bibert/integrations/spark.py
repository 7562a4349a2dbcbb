"""Spark: labels for a data frame with `mapInArrow`, and the SQL functions `bibert(text)` and `bibert_scored(text)`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bibert.integrations import Model, arrow_answers, arrow_labels, arrow_structs, classifier_of, new_columns
from bibert.models import DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def predict(frame: "DataFrame", text: str, model: Model = DEFAULT, *, prefix: str = "") -> "DataFrame":
    """Add the columns label and score of the texts in a column. A task of Spark has one thread, and its own copy.

    Spark runs as many tasks as the frame has partitions; `repartition` a frame that has few.

    Examples:
        >>> predict(spark.read.parquet("reviews.parquet"), "text").write.parquet("labelled")
    """
    from pyspark.sql.types import FloatType, StringType, StructType

    label, score = new_columns(frame.columns, prefix)
    classifier = classifier_of(model, threads=1)

    def label_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            labels, scores = arrow_answers(classifier, batch[text])
            yield batch.append_column(label, labels).append_column(score, scores)

    schema = StructType([*frame.schema.fields]).add(label, StringType()).add(score, FloatType())
    return frame.mapInArrow(label_batches, schema)


def register(session: "SparkSession", model: Model = DEFAULT, name: str = "bibert") -> None:
    """Add two SQL functions: `name` returns the label, `name` with `_scored` a struct of label and score.

    Examples:
        >>> register(spark, "reviews.bibert")
        >>> spark.sql("SELECT text, bibert(text) AS label FROM reviews")
    """
    from pyarrow import Array
    from pyspark.sql.functions import arrow_udf

    classifier = classifier_of(model, threads=1)

    def label(texts: Array) -> Array:  # Spark reads the types
        return arrow_labels(classifier, texts)

    def scored(texts: Array) -> Array:
        return arrow_structs(classifier, texts)

    session.udf.register(name, arrow_udf(label, "string"))
    session.udf.register(f"{name}_scored", arrow_udf(scored, "label string, score float"))

"""DuckDB: the SQL functions `bibert(text)` and `bibert_scored(text)`."""

from functools import partial
from typing import TYPE_CHECKING

from bibert.errors import require_extra
from bibert.integrations import Model, arrow_labels, arrow_structs, classifier_of
from bibert.models import DEFAULT

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WITH_NULLS = {"type": "arrow", "null_handling": "special"}  # a chunk of rows at a time, which may have nulls


def register(connection: "DuckDBPyConnection", model: Model = DEFAULT, name: str = "bibert") -> None:
    """Add two functions to a connection: `name` returns the label, `name` with `_scored` a struct of label and score.

    Examples:
        >>> register(connection, "reviews.bibert")
        >>> connection.sql("SELECT text, bibert(text) AS label FROM 'reviews.parquet'")
        >>> connection.sql("SELECT text, unnest(bibert_scored(text)) FROM 'reviews.parquet'")
    """
    require_extra("data", "bibert.integrations.duckdb")
    classifier, text = classifier_of(model), connection.sqltype("VARCHAR")
    answer = connection.sqltype("STRUCT(label VARCHAR, score FLOAT)")
    label, scored = partial(arrow_labels, classifier), partial(arrow_structs, classifier)
    connection.create_function(name, label, [text], text, **WITH_NULLS)
    connection.create_function(f"{name}_scored", scored, [text], answer, **WITH_NULLS)

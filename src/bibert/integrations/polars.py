"""Polars: the namespace `bibert` of expressions, data frames and lazy frames. Importing this registers it."""

from typing import Any

import polars as pl

from bibert.integrations import Model, answers, classifier_of, new_columns
from bibert.models import DEFAULT

ANSWER = pl.Struct({"label": pl.String, "score": pl.Float32})


@pl.api.register_expr_namespace("bibert")
class BibertExpression:
    """What an expression of texts gains."""

    def __init__(self, texts: pl.Expr) -> None:
        self._texts = texts

    def predict(self, model: Model = DEFAULT) -> pl.Expr:
        """Return a struct of label and score for each text."""
        classifier = classifier_of(model)

        def structs(texts: pl.Series) -> pl.Series:
            labels, scores = answers(classifier, texts.to_list())
            columns = pl.DataFrame({"label": labels, "score": scores}, ANSWER.to_schema())
            return columns.to_struct(texts.name).zip_with(texts.is_not_null(), pl.Series([None], dtype=ANSWER))

        return self._texts.map_batches(structs, return_dtype=ANSWER, is_elementwise=True)


@pl.api.register_dataframe_namespace("bibert")
@pl.api.register_lazyframe_namespace("bibert")
class BibertFrame:
    """What a frame gains."""

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    def predict(self, text: str, model: Model = DEFAULT, *, prefix: str = "") -> Any:
        """Return the frame with the columns label and score of the texts in a column.

        Examples:
            >>> pl.scan_parquet("reviews.parquet").bibert.predict("text").sink_parquet("labelled.parquet")
        """
        names = new_columns(self._frame.collect_schema().names(), prefix)
        found = BibertExpression(pl.col(text)).predict(model).struct.rename_fields(names)
        return self._frame.with_columns(found.struct.unnest())

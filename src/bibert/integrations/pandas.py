"""pandas: the accessor `df.bibert`. Importing this registers it."""

import pandas as pd

from bibert.integrations import Model, answers, classifier_of, new_columns
from bibert.models import DEFAULT


@pd.api.extensions.register_dataframe_accessor("bibert")
class BibertFrame:
    """What a data frame gains."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def predict(self, text: str, model: Model = DEFAULT, *, prefix: str = "") -> pd.DataFrame:
        """Return the frame with the columns label and score of the texts in a column; missing texts have neither.

        Examples:
            >>> pd.read_csv("reviews.csv").bibert.predict("text", "reviews.bibert")
        """
        label, score = new_columns(self._frame.columns, prefix)
        texts = self._frame[text].astype(object)
        labels, scores = answers(classifier_of(model), texts.where(texts.notna(), None).tolist())
        index = self._frame.index
        return self._frame.assign(**{label: pd.Series(labels, index), score: pd.Series(scores, index, "float32")})

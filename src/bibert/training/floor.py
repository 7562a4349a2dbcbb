"""What one gets without a network, by the metrics and on the dev rows of a training: the floor it has to leave.

Scores have no such floor here; the classifier of words itself is in `words`.
"""

from collections import Counter

from bibert.data.examples import TextData
from bibert.data.metrics import score_answers
from bibert.training.words import bag_of_words


def majority_class(data: TextData) -> dict[str, float]:
    """The metrics of always answering the most frequent class of each dev split, as `{"dev_accuracy": 0.5, …}`."""
    answers = {name: Counter(split.labels).most_common(1)[0][0] for name, split in data.dev.items()}
    return _metrics(data, {name: [answer] * len(data.dev[name]) for name, answer in answers.items()})


def words_alone(data: TextData) -> dict[str, float]:
    """The metrics of a bag of words that learned from the training rows; both texts of a pair are one to it.

    Raises:
        DataError: there is nothing to count, or too much.
    """
    model = bag_of_words(data.train)
    return _metrics(data, {name: model.predict(split.joined_texts).tolist() for name, split in data.dev.items()})


def _metrics(data: TextData, answers: dict[str, list[float]] | dict[str, list[int]]) -> dict[str, float]:
    return {
        f"{name}_{metric}": value
        for name, split in data.dev.items()
        for metric, value in score_answers(answers[name], split.labels, data.metrics).items()
    }

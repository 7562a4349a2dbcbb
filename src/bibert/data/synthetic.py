"""The project's own data: English reviews from a small grammar, so that a first run needs no download.

A review is one judgement among neutral sentences. Negation, contrast and comparison decide the label, and a judging
word stands in good and in bad reviews alike, only somewhat more often in its own: counting words helps a little,
reading helps fully. The label follows from the text alone, without noise. The words are in `synthetic_words`.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from bibert.data import synthetic_words as words
from bibert.data.examples import Split, TextData
from bibert.errors import DataError

LABEL_NAMES = ("negative", "positive")
MOST_ROWS = 1_000_000  # far below the number of reviews there are, so that drawing new ones stays quick

# Patterns with their weights. `{same}` judges as the review does and `{other}` judges the other way: a pattern is
# drawn without knowing the label, so nothing but the judging words and their order can give it away.
CLAIMS = {
    "{part} {is} {same}": 4,
    "{part} {is} {very} {same}": 2,
    "{part} {is} {not} {other}": 2,
}
# A judgement is the sentence that decides. A counterclaim is a claim of the other kind; neither the first nor the
# last judging word decides always.
JUDGEMENTS = {
    "{claim}": 10,
    "{claim} and {claim}": 4,
    "{part} {is} {same}, not {other}": 2,
    "{part} {is} more {same} than {other}": 2,
    "{part} {is} less {other} than {same}": 2,
    "{counterclaim} but {claim}": 4,
    "although {counterclaim}, {claim}": 3,
    "{claim} although {counterclaim}": 5,
}


def synthetic_reviews(train_rows: int, dev_rows: int, seed: int) -> TextData:
    """Train and dev data of the given sizes; no dev text occurs in the train data.

    The train split holds the texts of `make_reviews(train_rows, seed)`, whatever `dev_rows` is.

    Raises:
        DataError: one of the numbers is below 1, or their sum is above a million.
    """
    if min(train_rows, dev_rows) < 1:
        raise DataError(f"synthetic reviews: {train_rows} train and {dev_rows} dev rows; each must be at least 1")
    reviews = make_reviews(train_rows + dev_rows, seed)
    return TextData(
        name="synthetic reviews",
        train=_rows(reviews, slice(train_rows)),
        dev={"dev": _rows(reviews, slice(train_rows, None))},
        label_names=LABEL_NAMES,
        metrics=("accuracy",),
        source=reviews.origin,
    )


def make_reviews(rows: int, seed: int) -> Split:
    """Draw `rows` different reviews; the same seed gives the same ones, and fewer rows give the first of them.

    Raises:
        DataError: `rows` is not between 1 and a million.
    """
    if not 1 <= rows <= MOST_ROWS:
        raise DataError(f"synthetic reviews: {rows} rows asked for; ask for 1 to {MOST_ROWS}")
    drawn = dict(islice(_distinct_reviews(random.Random(seed)), rows))
    return Split(tuple(drawn), None, tuple(drawn.values()), f"synthetic reviews (seed {seed})")


def _rows(split: Split, rows: slice) -> Split:
    return Split(split.texts[rows], None, split.labels[rows], split.origin)


def _distinct_reviews(rng: random.Random) -> Iterator[tuple[str, float]]:
    seen: set[str] = set()
    while True:
        label = rng.randrange(len(LABEL_NAMES))
        text = _write_review(rng, positive=label == 1)
        if text not in seen:
            seen.add(text)
            yield text, float(label)


def _write_review(rng: random.Random, *, positive: bool) -> str:
    """The judgement with up to two neutral sentences before or after it."""
    domain = rng.choice(words.DOMAINS)
    sentences = rng.sample(words.SCENES + domain.scenes, k=rng.choice((0, 1, 1, 2)))
    sentences.insert(rng.randint(0, len(sentences)), _judgement(rng))
    filled = _fill("\n".join(sentences), _word_lists(domain, positive), rng)
    return " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in filled.split("\n"))


def _judgement(rng: random.Random) -> str:
    pattern = _draw(JUDGEMENTS, rng)
    while "{claim}" in pattern:
        pattern = pattern.replace("{claim}", _draw(CLAIMS, rng), 1)
    swapped = {"{same}": "{other}", "{other}": "{same}"}
    counterclaim = " ".join(swapped.get(word, word) for word in _draw(CLAIMS, rng).split())
    return pattern.replace("{counterclaim}", counterclaim).replace("{is}", rng.choice(("is", "was")))


def _draw(weighted: Mapping[str, int], rng: random.Random) -> str:
    return rng.choices(list(weighted), weights=list(weighted.values()))[0]


def _word_lists(domain: words.Domain, positive: bool) -> dict[str, Sequence[str]]:
    good, bad = words.GOOD + domain.good, words.BAD + domain.bad
    return {
        "same": good if positive else bad,
        "other": bad if positive else good,
        "thing": domain.things,
        "part": domain.parts,
        "not": words.NEGATORS,
        "very": words.INTENSIFIERS,
        "name": words.NAMES,
        "place": words.PLACES,
        "month": words.MONTHS,
        "day": words.DAYS,
        "weather": words.WEATHERS,
        "colour": words.COLOURS,
        "relative": words.RELATIVES,
        "job": words.JOBS,
    }


def _fill(pattern: str, lists: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    """Put a word into each slot; no word comes twice in the slots of one name."""
    for slot, choices in lists.items():
        marker = "{" + slot + "}"
        for word in rng.sample(choices, k=pattern.count(marker)):
            pattern = pattern.replace(marker, word, 1)
    return pattern

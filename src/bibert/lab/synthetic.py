"""The project's own data: English reviews from a small grammar, so that a first run needs no download.

A review is one judgement among neutral sentences. Negation, contrast and comparison decide the label, and a judging
word occurs in good and in bad reviews, only somewhat more often in its own: counting words helps a little, reading
helps fully. The label follows from the text alone, without noise. The grammar is in reviews.toml.
"""

import random
import tomllib
from collections.abc import Mapping
from importlib import resources

from bibert.data.examples import Split, TextData
from bibert.errors import DataError

LABEL_NAMES = ("negative", "positive")
MOST_ROWS = 1_000_000  # far fewer than there are reviews, so that drawing new ones stays quick
GRAMMAR = tomllib.loads(resources.files("bibert.lab").joinpath("reviews.toml").read_text(encoding="utf-8"))


def synthetic_reviews(train_rows: int, dev_rows: int, seed: int) -> TextData:
    """Return train and dev data of the given sizes; no dev text occurs in the train data.

    The train split is `make_reviews(train_rows, seed)`, whatever `dev_rows` is.
    """
    if min(train_rows, dev_rows) < 1:
        raise DataError(f"synthetic reviews: {train_rows} train and {dev_rows} dev rows; each must be at least 1")
    reviews = make_reviews(train_rows + dev_rows, seed)
    parts = slice(train_rows), slice(train_rows, None)
    train, dev = (Split(reviews.texts[rows], None, reviews.labels[rows], reviews.origin) for rows in parts)
    return TextData("synthetic reviews", train, {"dev": dev}, LABEL_NAMES, ("accuracy",), source=reviews.origin)


def make_reviews(rows: int, seed: int) -> Split:
    """Draw `rows` different reviews; the same seed gives the same ones, and fewer rows give the first of them."""
    if not 1 <= rows <= MOST_ROWS:
        raise DataError(f"synthetic reviews: {rows} rows asked for; ask for 1 to {MOST_ROWS}")
    rng = random.Random(seed)
    drawn: dict[str, float] = {}
    while len(drawn) < rows:
        label = rng.randrange(len(LABEL_NAMES))
        drawn.setdefault(_write_review(rng, positive=label == 1), float(label))
    return Split(tuple(drawn), None, tuple(drawn.values()), f"synthetic reviews (seed {seed})")


def _write_review(rng: random.Random, *, positive: bool) -> str:
    """Write the judgement with up to two neutral sentences around it, then fill the slots."""
    shared, domain = GRAMMAR["any"], rng.choice(GRAMMAR["domains"])
    sentences = rng.sample(shared["scenes"] + domain["scenes"], k=rng.choice((0, 1, 1, 2)))
    sentences.insert(rng.randint(0, len(sentences)), _judgement(rng))
    review = "\n".join(sentences)
    good, bad = shared["good"] + domain["good"], shared["bad"] + domain["bad"]
    same, other = (good, bad) if positive else (bad, good)
    words = {"same": same, "other": other, "thing": domain["things"], "part": domain["parts"], **GRAMMAR["words"]}
    for slot, choices in words.items():
        marker = "{" + slot + "}"
        for word in rng.sample(choices, k=review.count(marker)):  # no word twice in the slots of one name
            review = review.replace(marker, word, 1)
    return " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in review.split("\n"))


def _judgement(rng: random.Random) -> str:
    pattern = _draw(GRAMMAR["judgements"], rng)
    while "{claim}" in pattern:
        pattern = pattern.replace("{claim}", _draw(GRAMMAR["claims"], rng), 1)
    swapped = {"{same}": "{other}", "{other}": "{same}"}
    counterclaim = " ".join(swapped.get(word, word) for word in _draw(GRAMMAR["claims"], rng).split())
    return pattern.replace("{counterclaim}", counterclaim).replace("{is}", rng.choice(("is", "was")))


def _draw(weighted: Mapping[str, int], rng: random.Random) -> str:
    return rng.choices(list(weighted), weights=list(weighted.values()))[0]

"""The project's own data: English reviews from a small grammar, so that a first run needs no download.

A review is one judgement among neutral sentences. Negation, contrast and comparison decide the label, and a judging
word occurs in good and in bad reviews, only somewhat more often in its own: counting words helps a little, reading
helps fully. The label follows from the text alone, without noise.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from bibert.data.examples import Split, TextData
from bibert.errors import DataError

LABEL_NAMES = ("negative", "positive")
MOST_ROWS = 1_000_000  # far fewer than there are reviews, so that drawing new ones stays quick

# Patterns with their weights. `{same}` judges as the review does, `{other}` the other way: a pattern is drawn without
# knowing the label, so only the judging words and their order reveal it.
CLAIMS = {
    "{part} {is} {same}": 4,
    "{part} {is} {very} {same}": 2,
    "{part} {is} {not} {other}": 2,
}
# A judgement is the sentence that decides. A counterclaim is a claim of the other kind; neither the first nor the last
# judging word always decides.
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


@dataclass(frozen=True)
class Domain:
    """The subject of a kind of review; its good and bad words suit only this kind."""

    things: tuple[str, ...]
    parts: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]
    scenes: tuple[str, ...]


def _words(text: str, before: str = "") -> tuple[str, ...]:
    return tuple(before + word for word in text.split())


GOOD = _words("good great superb excellent wonderful brilliant lovely impressive delightful splendid perfect pleasant")
BAD = _words("bad poor awful terrible horrible dreadful weak annoying disappointing dismal miserable unpleasant")

FILMS = Domain(
    things=_words("film movie series documentary sequel comedy"),
    parts=_words("plot acting script music ending dialogue story cast editing pacing opening soundtrack", "the "),
    good=_words("funny gripping charming clever moving witty fresh touching"),
    bad=_words("boring dull silly tedious predictable confusing stale tiresome"),
    scenes=(
        "I watched it with {name} on a {day}",
        "we saw the {thing} at a cinema in {place}",
        "it was filmed in {place} and {place}",
        "the {thing} lasts about two hours",
        "{name} plays a {job} from {place}",
        "it starts with a {job} and a {colour} car",
    ),
)
PRODUCTS = Domain(
    things=_words("phone laptop camera printer headset tablet"),
    parts=_words("battery screen keyboard sound case charger manual design display software lens cable", "the "),
    good=_words("reliable sturdy handy precise smooth durable elegant efficient"),
    bad=_words("flimsy faulty fragile sluggish noisy unreliable crude ugly"),
    scenes=(
        "I bought it in {month}",
        "the {thing} arrived from {place} on a {day}",
        "my {relative} ordered the {colour} one",
        "the box holds two cables and a {colour} bag",
        "{name} has the same {thing} in {colour}",
        "I use it at the office every {day}",
    ),
)
SERVICES = Domain(
    things=_words("hotel restaurant cafe hostel tour bakery"),
    parts=_words("staff waiter manager chef service team host guide driver porter barman receptionist", "the "),
    good=_words("friendly polite attentive quick helpful warm prompt generous"),
    bad=_words("rude slow careless sloppy cold unfriendly chaotic grumpy"),
    scenes=(
        "we stayed in {place} for a week",
        "{name} booked the {thing} for {month}",
        "we arrived on a {day} after lunch",
        "the {thing} lies in the centre of {place}",
        "I came here with my {relative}",
        "it has a {colour} door near the station",
    ),
)
DOMAINS = (FILMS, PRODUCTS, SERVICES)

# Scenes that suit any review. No scene holds a judging word or one that turns a judgement (not, but, than, ...), so it
# never changes a label.
SCENES = (
    "{name} told me about it in {month}",
    "my {relative} lives in {place}",
    "it was a {weather} {day} in {month}",
    "I talked to {name} about it",
    "{name} and {name} came along",
    "my {relative} is a {job}",
)

# The words for each slot, in the order in which slots are filled.
WORDS: Mapping[str, tuple[str, ...]] = {
    "not": ("not", "never", "hardly", "not at all", "far from", "by no means"),
    "very": _words("very really truly extremely absolutely utterly"),
    "name": _words(
        "Anna Bruno Carla David Elena Felix Grace Hugo Irene Jonas Karin Luis Maria Nils Olga Paul Rosa Simon Tina "
        "Victor Wanda Yusuf"
    ),
    "place": _words(
        "Berlin Boston Cairo Dublin Geneva Hamburg Lima Lisbon London Madrid Milan Oslo Paris Prague Rome Seoul Tokyo "
        "Toronto Turin Utrecht Vienna Warsaw Zurich"
    ),
    "month": _words("January February March April May June July August September October November December"),
    "day": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "weather": _words("rainy sunny windy cloudy snowy foggy"),
    "colour": _words("black white blue green red grey yellow brown"),
    "relative": _words("sister brother mother father cousin uncle aunt neighbour colleague"),
    "job": _words("doctor teacher pilot baker nurse farmer lawyer painter singer sailor"),
}


def synthetic_reviews(train_rows: int, dev_rows: int, seed: int) -> TextData:
    """Return train and dev data of the given sizes; no dev text occurs in the train data.

    The train split is `make_reviews(train_rows, seed)`, whatever `dev_rows` is.

    Raises:
        DataError: one of the numbers is below 1, or their sum is above a million.
    """
    if min(train_rows, dev_rows) < 1:
        raise DataError(f"synthetic reviews: {train_rows} train and {dev_rows} dev rows; each must be at least 1")
    reviews = make_reviews(train_rows + dev_rows, seed)
    train, dev = (
        Split(reviews.texts[rows], None, reviews.labels[rows], reviews.origin)
        for rows in (slice(train_rows), slice(train_rows, None))
    )
    return TextData("synthetic reviews", train, {"dev": dev}, LABEL_NAMES, ("accuracy",), source=reviews.origin)


def make_reviews(rows: int, seed: int) -> Split:
    """Draw `rows` different reviews; the same seed gives the same ones, and fewer rows give the first of them.

    Raises:
        DataError: `rows` is not between 1 and a million.
    """
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
    domain = rng.choice(DOMAINS)
    sentences = rng.sample(SCENES + domain.scenes, k=rng.choice((0, 1, 1, 2)))
    sentences.insert(rng.randint(0, len(sentences)), _judgement(rng))
    review = "\n".join(sentences)
    good, bad = GOOD + domain.good, BAD + domain.bad
    same, other = (good, bad) if positive else (bad, good)
    words = {"same": same, "other": other, "thing": domain.things, "part": domain.parts, **WORDS}
    for slot, choices in words.items():
        marker = "{" + slot + "}"
        for word in rng.sample(choices, k=review.count(marker)):  # no word twice in the slots of one name
            review = review.replace(marker, word, 1)
    return " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in review.split("\n"))


def _judgement(rng: random.Random) -> str:
    pattern = _draw(JUDGEMENTS, rng)
    while "{claim}" in pattern:
        pattern = pattern.replace("{claim}", _draw(CLAIMS, rng), 1)
    swapped = {"{same}": "{other}", "{other}": "{same}"}
    counterclaim = " ".join(swapped.get(word, word) for word in _draw(CLAIMS, rng).split())
    return pattern.replace("{counterclaim}", counterclaim).replace("{is}", rng.choice(("is", "was")))


def _draw(weighted: Mapping[str, int], rng: random.Random) -> str:
    return rng.choices(list(weighted), weights=list(weighted.values()))[0]

"""The words of the synthetic reviews: pure data, read by `synthetic`.

Good and bad words come in lists of equal length. A neutral scene holds no judging word and none of the words that
turn a judgement (not, but, although, than, ...), so it never changes a label.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Domain:
    """What one kind of review talks about; the good and bad words here are those that suit only this kind."""

    things: tuple[str, ...]
    parts: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]
    scenes: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _parts(text: str) -> tuple[str, ...]:
    return tuple(f"the {word}" for word in text.split())


GOOD = _words("good great superb excellent wonderful brilliant lovely impressive delightful splendid perfect pleasant")
BAD = _words("bad poor awful terrible horrible dreadful weak annoying disappointing dismal miserable unpleasant")

FILMS = Domain(
    things=_words("film movie series documentary sequel comedy"),
    parts=_parts("plot acting script music ending dialogue story cast editing pacing opening soundtrack"),
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
    parts=_parts("battery screen keyboard sound case charger manual design display software lens cable"),
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
    parts=_parts("staff waiter manager chef service team host guide driver porter barman receptionist"),
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

# Scenes that suit a review of anything.
SCENES = (
    "{name} told me about it in {month}",
    "my {relative} lives in {place}",
    "it was a {weather} {day} in {month}",
    "I talked to {name} about it",
    "{name} and {name} came along",
    "my {relative} is a {job}",
)

NEGATORS = ("not", "never", "hardly", "not at all", "far from", "by no means")
INTENSIFIERS = _words("very really truly extremely absolutely utterly")
NAMES = _words(
    "Anna Bruno Carla David Elena Felix Grace Hugo Irene Jonas Karin Luis Maria Nils Olga Paul Rosa Simon Tina Victor "
    "Wanda Yusuf"
)
PLACES = _words(
    "Berlin Boston Cairo Dublin Geneva Hamburg Lima Lisbon London Madrid Milan Oslo Paris Prague Rome Seoul Tokyo "
    "Toronto Turin Utrecht Vienna Warsaw Zurich"
)
MONTHS = _words("January February March April May June July August September October November December")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
WEATHERS = _words("rainy sunny windy cloudy snowy foggy")
COLOURS = _words("black white blue green red grey yellow brown")
RELATIVES = _words("sister brother mother father cousin uncle aunt neighbour colleague")
JOBS = _words("doctor teacher pilot baker nurse farmer lawyer painter singer sailor")

"""The synthetic reviews: same seed, no overlap, no noise, and counting words is not enough."""

import re
from collections import Counter

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from bibert.errors import DataError
from bibert.lab.synthetic import GRAMMAR, LABEL_NAMES, make_reviews, synthetic_reviews

DOMAINS = [GRAMMAR["any"], *GRAMMAR["domains"]]
GOOD, BAD = ({word for domain in DOMAINS for word in domain[kind]} for kind in ("good", "bad"))


def words_of(text):
    return re.findall("[a-z]+", text.lower())


def read_label(text):
    """A reader's rules, written without a look at the grammar: which clause decides, which word, is it negated."""
    (sentence,) = (part for part in text.lower().split(".") if (GOOD | BAD) & set(words_of(part)))
    if sentence.strip().startswith("although"):
        clause = sentence.split(", ")[1]
    else:
        clause = sentence.split(" although ")[0].split(" but ")[-1]
    if match := re.search(r"more (\w+) than|less \w+ than (\w+)|(\w+), not \w+", clause):
        return int(any(word in GOOD for word in match.groups() if word))
    judging = next(word for word in words_of(clause) if word in GOOD | BAD)
    negated = any(f" {negator} " in clause.split(judging)[0] for negator in GRAMMAR["words"]["not"])
    return int((judging in GOOD) != negated)


def test_the_label_follows_from_the_text_alone():
    reviews = make_reviews(5000, seed=1)
    assert [read_label(text) for text in reviews.texts] == list(reviews.labels)


def test_the_same_seed_gives_the_same_reviews_another_seed_others_and_fewer_rows_the_first():
    assert make_reviews(300, seed=5) == make_reviews(300, seed=5)
    assert not set(make_reviews(300, seed=5).texts) & set(make_reviews(300, seed=6).texts)
    assert make_reviews(50, seed=3).texts == make_reviews(200, seed=3).texts[:50]
    assert synthetic_reviews(50, 20, seed=3).train == make_reviews(50, seed=3)


def test_these_are_the_reviews_of_seed_zero():
    # A change of the grammar changes every number measured on this data; it must not happen unnoticed.
    assert make_reviews(3, seed=0).texts == (
        "The software was precise although the sound was far from pleasant.",
        "My colleague lives in Seoul. The cable is utterly dismal although the screen is truly excellent.",
        "My sister is a sailor. The box holds two cables and a yellow bag. "
        "The battery was by no means great although the screen was durable.",
    )


def test_no_dev_text_occurs_in_train_and_none_occurs_twice():
    data = synthetic_reviews(4000, 1000, seed=0)
    texts = data.train.texts + data.dev["dev"].texts
    assert (len(data.train), len(data.dev["dev"])) == (4000, 1000)
    assert len(set(texts)) == len(texts) == 5000
    assert data.label_names == LABEL_NAMES == ("negative", "positive")
    assert data.metrics == ("accuracy",)
    assert data.train.pairs is None
    assert set(data.train.labels) == {0.0, 1.0}


def test_a_bag_of_words_learns_something_but_stays_below_three_quarters():
    data = synthetic_reviews(4000, 1000, seed=0)
    vectorizer = TfidfVectorizer()
    model = LogisticRegression(C=10.0, max_iter=1000).fit(vectorizer.fit_transform(data.train.texts), data.train.labels)
    accuracy = model.score(vectorizer.transform(data.dev["dev"].texts), data.dev["dev"].labels)
    assert 0.55 < accuracy < 0.75


def test_both_classes_are_equally_frequent_and_use_the_same_words():
    reviews = make_reviews(5000, seed=2)
    assert sum(reviews.labels) / len(reviews) == pytest.approx(0.5, abs=0.02)
    counts = [Counter(), Counter()]
    for text, label in zip(reviews.texts, reviews.labels, strict=True):
        counts[int(label)].update(words_of(text))
    vocabulary = counts[0] + counts[1]
    assert 280 <= len(vocabulary) <= 500
    shares = {word: counts[1][word] / vocabulary[word] for word in GOOD | BAD}
    assert min(shares.values()) > 0.25
    assert max(shares.values()) < 0.75


def test_good_and_bad_words_are_balanced_and_in_no_scene():
    assert all(len(domain["good"]) == len(domain["bad"]) for domain in DOMAINS)
    assert not GOOD & BAD
    scenes = " ".join(scene for domain in DOMAINS for scene in domain["scenes"])
    turning = {"not", "never", "hardly", "far", "means", "but", "although", "more", "less", "than"}
    assert not (GOOD | BAD | turning) & set(words_of(scenes))


@pytest.mark.parametrize("rows", [0, -1, 1_000_001])
def test_impossible_numbers_of_rows_are_refused(rows):
    with pytest.raises(DataError, match=f"{rows} rows .* 1 to 1000000"):
        make_reviews(rows, seed=0)
    with pytest.raises(DataError, match="10 train and 0 dev rows"):
        synthetic_reviews(10, 0, seed=0)

"""Augmentation: what varies and what stays, seeds and shards, pairs, and files in and out."""

import random

import numpy as np
import pytest

from bibert.data.augment import (
    STOP_WORDS,
    AugmentConfig,
    Candidates,
    LabelledText,
    WordVectors,
    augment_rows,
    load_rows,
    save_rows,
    vary,
)
from bibert.data.columns import Columns
from bibert.data.tables import load_table
from bibert.errors import DataError

FILMS = ["film", "movie", "picture", "feature"]
MOODS = ["dull", "boring", "tedious", "slow"]
# Two groups of words, far from each other: with three candidates a word is replaced within its group.
WORDS = Candidates(
    vectors=WordVectors(FILMS + MOODS, np.array([[10, n] for n in range(4)] + [[-10, n] for n in range(4)], np.float32))
)
CONFIG = AugmentConfig(variants=30, candidates=3)
TEXT = "The film is dull, not funny."


def augmented(rows, config=CONFIG, first_row=0):
    return list(augment_rows(rows, WORDS, config, first_row))


def test_the_original_comes_first_and_variants_replace_words_by_their_candidates():
    (group,) = augmented([LabelledText(TEXT, None, "3.5")])
    assert group[0] == LabelledText(TEXT, None, "3.5")
    texts = [row.text for row in group]
    assert len(texts) > 5
    assert len(set(texts)) == len(texts)
    assert "the film is dull , not funny ." not in texts  # the original with its marks set apart is not new
    for row in group[1:]:
        the, film, is_, dull, *rest = row.text.split(" ")
        assert (the, is_, rest) == ("the", "is", [",", "not", "funny", "."])
        assert film in FILMS
        assert dull in MOODS
        assert row.label == "3.5"


def test_words_are_replaced_with_the_given_probability():
    rows = [LabelledText("film " * 50, None, "0")] * 20
    groups = augmented(rows, AugmentConfig(variants=10, candidates=3, probability=0.4))
    words = [word for group in groups for row in group[1:] for word in row.text.split()]
    assert sum(word != "film" for word in words) / len(words) == pytest.approx(0.4, abs=0.02)
    assert [words.count(word) / len(words) for word in FILMS[1:]] == pytest.approx([0.4 / 3] * 3, abs=0.02)


def test_as_many_variants_are_made_as_there_are_and_are_asked_for():
    variants = vary("film film", WORDS, AugmentConfig(50, 3, 1.0), random.Random(0))
    assert len(variants) == 9
    assert all("film" not in variant.split() for variant in variants)  # probability 1 replaces every word
    assert 1 <= len(vary("film dull " * 10, WORDS, AugmentConfig(4, 3), random.Random(0))) <= 4
    assert vary("It is 1999!", WORDS, CONFIG, random.Random(0)) == []


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    rows = [LabelledText(TEXT, None, "0")] * 3
    first, second, _ = augmented(rows)
    assert first != second  # though their texts are equal
    assert augmented(rows) == augmented(rows)
    assert augmented(rows) != augmented(rows, AugmentConfig(30, 3, seed=1))


def test_a_shard_gives_the_rows_of_the_whole():
    rows = [LabelledText(f"{film} {mood}", None, "0") for film in FILMS for mood in MOODS]
    whole = augmented(rows)
    assert augmented(rows[:5]) + augmented(rows[5:], first_row=5) == whole
    assert augmented(rows[5:]) != whole[5:]


def test_each_text_of_a_pair_varies_beside_the_original_of_the_other():
    (group,) = augmented([LabelledText("a film", "so dull", "1")])
    pairs = [(row.text, row.pair) for row in group]
    assert pairs[0] == ("a film", "so dull")
    firsts = {text for text, pair in pairs if pair == "so dull"} - {"a film"}
    seconds = {pair for text, pair in pairs if text == "a film"} - {"so dull"}
    assert firsts == {"a movie", "a picture", "a feature"}
    assert seconds == {"so boring", "so tedious", "so slow"}
    assert len(pairs) == 1 + len(firsts) + len(seconds)


def test_rows_are_taken_one_at_a_time():
    taken = []

    def stream():
        for number in range(100):
            taken.append(number)
            yield LabelledText("film", None, "0")

    groups = augment_rows(stream(), WORDS, CONFIG)
    next(groups)
    assert taken == [0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": 0}, "variants is 0, .* 1"),
        ({"candidates": -1}, "candidates is -1, .* 1"),
        ({"probability": 0.0}, r"probability is 0\.0, .* above 0 and at most 1"),
        ({"probability": float("nan")}, "probability is nan"),
        ({"seed": -1}, "seed is -1, .* 0"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        AugmentConfig(**changes)


def test_a_table_keeps_the_names_of_its_columns(tmp_path):
    (tmp_path / "in.csv").write_text('id,review,stars\n1,"a film, dull",2\n2,nice,5\n')
    file = load_rows(tmp_path / "in.csv", Columns(text="review", label="stars"))
    written = save_rows(tmp_path / "out.tsv", file, augmented(file.rows))
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert lines[:2] == ["review\tstars", "a film, dull\t2"]
    assert lines[-1] == "nice\t5"
    assert len(lines) == written + 1
    data = load_table(tmp_path / "out.tsv", tmp_path / "in.csv", Columns(text="review", label="stars"))
    assert data.label_names == ("2", "5")
    assert len(data.train) == written


def test_breaks_inside_a_text_become_spaces_and_quotes_stay(tmp_path):
    rows = [LabelledText('a\tb\r\n"c" d', None, "x")]
    (tmp_path / "in.tsv").write_text("text\tlabel\nq\tx\n")
    like = load_rows(tmp_path / "in.tsv", Columns())
    assert save_rows(tmp_path / "out.tsv", like, [rows]) == 1
    assert (tmp_path / "out.tsv").read_bytes() == b'text\tlabel\na b  "c" d\tx\n'


def test_a_row_without_a_label_is_named(tmp_path):
    (tmp_path / "in.tsv").write_text("text\tlabel\ngood\t1\nbad\t\n")
    with pytest.raises(DataError, match=r"in\.tsv:3: no label in column 'label'"):
        load_rows(tmp_path / "in.tsv", Columns())


VECTORS = WordVectors(
    ["film", "movie", "unwatchable", "awful"], np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], np.float32)
)


class OnePieceWords:
    """A masked LM that knows a few words and always proposes the same."""

    def __init__(self, known, *, is_uncased=True):
        self.known = known
        self.is_uncased = is_uncased
        self.asked = []

    def propose(self, words, places, count):
        self.asked = [words[place] for place in places]
        return {place: ("first", "second")[:count] for place in places if words[place] in self.known}


def test_one_piece_words_go_to_the_masked_lm_and_all_others_to_glove():
    words, film = ["film", "unwatchable"], OnePieceWords({"film"})
    assert Candidates(film, VECTORS).find(words, 1) == {0: ("first",), 1: ("awful",)}
    assert Candidates(vectors=VECTORS).find(words, 1) == {0: ("movie",), 1: ("awful",)}
    assert Candidates(film).find(words, 2) == {0: ("first", "second")}  # without GloVe the others stay
    assert Candidates(OnePieceWords(set()), VECTORS).find(["sesquipedalian"], 5) == {}
    with pytest.raises(DataError, match=r"masked LM .*, GloVe vectors .*, or both"):
        Candidates()


def test_stop_words_numbers_marks_and_foreign_letters_are_never_asked_about():
    model = OnePieceWords(set())
    words = ["The", "film", "not", "3d", "1999", "!", "naïve", "plot", "t", "[MASK]"]
    Candidates(model, VECTORS).find(words, 5)
    assert model.asked == ["film", "plot"]
    assert all(word.isascii() and word.isalpha() and word.islower() for word in STOP_WORDS)
    assert {"not", "no", "never", "nor", "but", "than", "the", "t"} <= STOP_WORDS
    assert not {"good", "bad", "film", "like"} & STOP_WORDS


def test_texts_are_split_as_bert_does_a_cased_model_keeps_the_case_and_glove_is_asked_in_lower_case():
    candidates = Candidates(OnePieceWords(set(), is_uncased=False), VECTORS)
    assert candidates.split("Film, Ünwatchable") == ["Film", ",", "Ünwatchable"]
    assert candidates.find(["Film"], 1) == {0: ("movie",)}
    words = Candidates(vectors=VECTORS).split("It's a Café--really!\t[MASK]")
    assert words == ["it", "'", "s", "a", "cafe", "-", "-", "really", "!", "[", "mask", "]"]

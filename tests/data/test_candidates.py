"""Who is asked about which word: the masked LM, GloVe, or nobody."""

import numpy as np
import pytest

from bibert.data.candidates import Candidates
from bibert.data.stop_words import STOP_WORDS
from bibert.data.word_vectors import WordVectors
from bibert.errors import DataError

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


def test_one_piece_words_go_to_the_masked_lm_and_the_others_to_glove():
    found = Candidates(OnePieceWords({"film"}), VECTORS).find(["film", "unwatchable"], 1)
    assert found == {0: ("first",), 1: ("awful",)}


def test_without_a_masked_lm_every_word_goes_to_glove():
    assert Candidates(vectors=VECTORS).find(["film", "unwatchable"], 1) == {0: ("movie",), 1: ("awful",)}


def test_without_glove_the_other_words_stay():
    assert Candidates(OnePieceWords({"film"})).find(["film", "unwatchable"], 2) == {0: ("first", "second")}


def test_a_word_that_nobody_knows_stays():
    assert Candidates(OnePieceWords(set()), VECTORS).find(["sesquipedalian"], 5) == {}


def test_stop_words_numbers_marks_and_foreign_letters_are_never_asked_about():
    model = OnePieceWords(set())
    words = ["The", "film", "not", "3d", "1999", "!", "naïve", "plot", "t", "[MASK]"]
    Candidates(model, VECTORS).find(words, 5)
    assert model.asked == ["film", "plot"]


def test_a_cased_model_keeps_the_case_and_glove_is_asked_in_lower_case():
    candidates = Candidates(OnePieceWords(set(), is_uncased=False), VECTORS)
    assert candidates.split("Film, Ünwatchable") == ["Film", ",", "Ünwatchable"]
    assert candidates.find(["Film"], 1) == {0: ("movie",)}


def test_texts_are_split_as_bert_splits_them():
    words = Candidates(vectors=VECTORS).split("It's a Café--really!\t[MASK]")
    assert words == ["it", "'", "s", "a", "cafe", "-", "-", "really", "!", "[", "mask", "]"]


def test_no_source_of_words_at_all_is_refused():
    with pytest.raises(DataError, match="a masked LM, GloVe vectors, or both"):
        Candidates()


def test_stop_words_are_plain_lower_case_words_and_hold_the_negations():
    assert all(word.isascii() and word.isalpha() and word.islower() for word in STOP_WORDS)
    assert {"not", "no", "never", "nor", "but", "than", "the", "t"} <= STOP_WORDS
    assert not {"good", "bad", "film", "like"} & STOP_WORDS

"""Texts in pieces: together they have the tokens of the text, and of a strange text they are short."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers.models import BPE
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bibert.runtime import text as texts
from bibert.runtime.text import SMALLEST_PIECE, Scissors

NORMALIZERS = {
    "uncased": {},
    "cased": {"lowercase": False},
    "accents kept": {"strip_accents": False},
    "Chinese not split, control characters kept": {"handle_chinese_chars": False, "clean_text": False},
}
MORSELS = [
    *("the ", "film", " is", "good", ".", ", ", "unable", "  ", " " * 700, "\n", "\t\t", "\u00a0", "\u3000", "\u2028"),
    *("é", "e\u0301", "\u0301", "\u0338", "=", "\u2260", "ß", "İ", "Σ", "ﬁ", "\u00ad", "\u200d", "\u200b", "\ufeff"),
    *("中文", "中", "\u3402", "\uf900", "。", "，", "カタカナ", "한국어", "ไทย", "हिन्दी", "🙂", "👩\u200d👧", "—", "“"),
    *("\0", "\x0b", "\x85", "\x7f", "\ufffd", "[MASK]", "[SEP]", "[CLS", "[", "]", "[MA", "SK]", "[mask]", "<e1>"),
    *("x" * 99, "x" * 100, "x" * 101, "y" * 1500, "é" * 1200, "\u0301" * 1300, "한" * 700, "\0" * 900, "a\u0301" * 800),
]
ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
LONG_TEXTS = st.lists(st.sampled_from(MORSELS) | ANY_TEXT, min_size=1, max_size=60).map("".join)


def tokens(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module", params=NORMALIZERS.values(), ids=NORMALIZERS.keys())
def tokenizer(request, new_tokenizer):
    return new_tokenizer(added=(AddedToken("<e1>", normalized=False, rstrip=True),), **request.param)


@settings(max_examples=80, deadline=None)
@given(LONG_TEXTS)
def test_the_pieces_have_the_tokens_of_the_text(tokenizer, text):
    pieces = list(Scissors(tokenizer, max_length=8).pieces(text))
    assert [token for piece in pieces for token in tokens(tokenizer, piece)] == tokens(tokenizer, text)


def test_a_long_text_has_several_pieces_and_a_short_one_is_left_as_it_is(tokenizer):
    scissors, short = Scissors(tokenizer, max_length=8), "a  " + "b" * (SMALLEST_PIECE - 3)
    assert list(scissors.pieces(short)) == [short]
    assert list(scissors.pieces("")) == [""]
    assert len(list(scissors.pieces("the film " * 500))) == -(-4500 // SMALLEST_PIECE)


def test_an_added_token_is_never_cut(tokenizer):
    text = "[MASK]" * 1000
    pieces = list(Scissors(tokenizer, max_length=8).pieces(text))
    assert len(pieces) > 5
    assert all(piece.count("[MASK]") * len("[MASK]") == len(piece) for piece in pieces)


STRANGE = {"one word": "a", "spaces": " ", "emoji": "🙂", "syllables": "한", "letters with accents": "a\u0301"}


@pytest.mark.parametrize("morsel", STRANGE.values(), ids=STRANGE.keys())
def test_a_text_with_few_tokens_in_many_characters_is_squeezed(tokenizer, morsel):
    assert sum(map(len, Scissors(tokenizer, max_length=8).pieces(morsel * 50_000))) <= 2 * SMALLEST_PIECE


def characters_of(charset, step=1):
    pattern = re.compile(f"[{charset}]")
    codes = (code for code in range(0x20000) if not 0xD800 <= code < 0xE000 and pattern.match(chr(code)))
    return [chr(code) for code in codes][::step]


@pytest.mark.parametrize("options", NORMALIZERS.values(), ids=NORMALIZERS.keys())
def test_no_character_inside_a_word_ends_it(options):
    normalize, split = BertNormalizer(**options).normalize_str, BertPreTokenizer().pre_tokenize_str
    characters = characters_of(texts.INSIDE_A_WORD)
    assert len(characters) > 10_000
    assert [hex(ord(character)) for character in characters if len(split(normalize(f"a{character}b"))) != 1] == []


@pytest.mark.parametrize("options", NORMALIZERS.values(), ids=NORMALIZERS.keys())
def test_every_character_that_a_text_is_cut_behind_ends_a_word(options):
    normalize, split = BertNormalizer(**options).normalize_str, BertPreTokenizer().pre_tokenize_str

    def words(text):
        return [word for word, _ in split(normalize(text))]

    edges = characters_of(texts.SPACES + texts.PUNCTUATION)
    if options.get("handle_chinese_chars", True):
        edges += characters_of(texts.IDEOGRAPHS, step=9)  # 27,000 that are all alike
    for rest in ("b", "\u0301b", "\u0338", "\u200db"):  # an accent must not reach across the edge
        assert [edge for edge in edges if words(f"a{edge}{rest}") != words(f"a{edge}") + words(rest)] == []


UNUSUAL = {
    "an added token that is normalized": AddedToken("covid", normalized=True),
    "an added token that must be a word": AddedToken("<e>", normalized=False, single_word=True),
    "an added token with a space": AddedToken("< e >", normalized=False),
    "an added token of letters": AddedToken("covid", normalized=False),
    "a very long added token": AddedToken("<" + "e" * texts.LONGEST_ADDED, normalized=False),
}


@pytest.mark.parametrize("added", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_with_unusual_tokens_a_text_is_one_piece(new_tokenizer, added):
    text = "covid < e > film " * 1000
    assert list(Scissors(new_tokenizer(added=(added,)), max_length=8).pieces(text)) == [text]


def test_for_a_tokenizer_of_another_kind_a_text_is_one_piece(new_tokenizer):
    tokenizer = new_tokenizer()
    tokenizer.model = BPE({"a": 0, "b": 1}, [])
    tokenizer.normalizer = None
    text = "a b " * 1000
    assert list(Scissors(tokenizer, max_length=8).pieces(text)) == [text]

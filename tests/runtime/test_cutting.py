"""Cutting before tokenizing: the same tokens as cutting after, and few characters for the tokenizer."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers.models import BPE
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bibert.runtime import cutting
from bibert.runtime.cutting import Cutter

MAX_LENGTH = 12  # so a text is long from 193 characters on
NORMALIZERS = {
    "uncased": {},
    "cased": {"lowercase": False},
    "accents kept": {"strip_accents": False},
    "Chinese not split, control characters kept": {"handle_chinese_chars": False, "clean_text": False},
}
PIECES = [
    *("the ", "film", " is", "good", ".", ", ", "unable", "  ", " " * 700, "\n", "\t\t", "\u00a0", "\u3000", "\u2028"),
    *("é", "e\u0301", "\u0301", "\u0338", "=", "\u2260", "ß", "İ", "Σ", "ﬁ", "\u00ad", "\u200d", "\u200b", "\ufeff"),
    *(
        "中文",
        "中",
        "\u3402",
        "\uf900",
        "。",
        "，",
        "カタカナ",
        "한국어",
        "ไทย",
        "हिन्दी",
        "🙂",
        "👩\u200d👧",
        "\u2014",
        "“q”",
    ),
    *(
        "\0",
        "\x0b",
        "\x85",
        "\x7f",
        "\ufffd",
        "[MASK]",
        "[SEP]",
        "[CLS",
        "[",
        "]",
        "[MA",
        "SK]",
        "[mask]",
        "<e1>",
        "<e1",
    ),
    *("x" * 99, "x" * 100, "x" * 101, "y" * 1500, "é" * 1200, "\u0301" * 1300, "한" * 700, "\0" * 900, "a\u0301" * 800),
]
LONG_TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), min_size=1, max_size=60).map("".join)


def without_surrogates(text):
    return re.sub("[\ud800-\udfff]", "", text)


def encode(tokenizer, *texts):
    encoding = tokenizer.encode(*texts)
    return encoding.ids, encoding.type_ids


@pytest.fixture(scope="module", params=NORMALIZERS.values(), ids=NORMALIZERS.keys())
def tokenizer(request, new_tokenizer):
    tokenizer = new_tokenizer(added=(AddedToken("<e1>", normalized=False, rstrip=True),), **request.param)
    tokenizer.enable_truncation(MAX_LENGTH)
    return tokenizer


@settings(max_examples=150, deadline=None)
@given(LONG_TEXTS)
def test_a_cut_text_has_the_tokens_of_the_whole(tokenizer, text):
    text = without_surrogates(text)
    assert encode(tokenizer, Cutter(tokenizer, MAX_LENGTH).cut(text)) == encode(tokenizer, text)


@pytest.mark.parametrize("max_length", [MAX_LENGTH, MAX_LENGTH + 1])  # what two texts share is odd, even
def test_a_cut_pair_has_the_tokens_of_the_whole(new_tokenizer, max_length):
    tokenizer = new_tokenizer()
    tokenizer.enable_truncation(max_length)
    cutter, draw = Cutter(tokenizer, max_length), random.Random(0)
    for _ in range(300):
        pair = ["".join(draw.choices(PIECES, k=draw.choice((0, 3, 30, 60)))) for _ in range(2)]
        assert encode(tokenizer, *cutter.cut_pair(*pair)) == encode(tokenizer, *pair)


@pytest.mark.parametrize(("first", "second"), [(700, 701), (701, 700), (700, 700), (699, 5000), (5000, 699)])
def test_of_two_long_texts_the_one_with_more_tokens_keeps_the_odd_one(new_tokenizer, first, second):
    tokenizer = new_tokenizer()
    tokenizer.enable_truncation(MAX_LENGTH)
    pair = ("film " * first, "a very good film indeed" + " bad" * (second - 6))  # 4.9 and 4 characters a token
    cut = Cutter(tokenizer, MAX_LENGTH).cut_pair(*pair)
    assert encode(tokenizer, *cut) == encode(tokenizer, *pair)
    assert all(len(text) < 4 * cutting.SMALLEST_PIECE for text in cut)


def test_a_text_that_is_not_long_is_left_as_it_is(tokenizer):
    text = "a  b" + "x" * (cutting.SHORT * MAX_LENGTH - 4)
    cutter = Cutter(tokenizer, MAX_LENGTH)
    assert cutter.cut(text) is text
    assert cutter.cut_pair(text, "b") == (text, "b")


HUGE = {"words": "hello world ", "one word": "a", "ideographs": "中", "spaces": " ", "emoji": "🙂", "punctuation": "—"}


@pytest.mark.parametrize("piece", HUGE.values(), ids=HUGE.keys())
def test_of_a_huge_text_the_tokenizer_sees_little(new_tokenizer, monkeypatch, piece):
    tokenizer = new_tokenizer()
    tokenizer.enable_truncation(128)
    cutter, seen = Cutter(tokenizer, 128), []
    count = cutter.count
    monkeypatch.setattr(cutter, "count", lambda text: seen.append(text) or count(text))
    text = piece * (100_000 // len(piece))
    cut = cutter.cut(text)
    assert len(cut) + sum(map(len, seen)) < 3 * cutting.SHORT * 128
    assert encode(tokenizer, cut) == encode(tokenizer, text)


def characters_of(charset):
    pattern = re.compile(f"[{charset}]")
    return [chr(code) for code in range(0x110000) if pattern.match(chr(code)) and not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize("options", NORMALIZERS.values(), ids=NORMALIZERS.keys())
def test_no_character_inside_a_word_ends_it(options):
    normalize, split = BertNormalizer(**options).normalize_str, BertPreTokenizer().pre_tokenize_str
    characters = characters_of(cutting.INSIDE_A_WORD)
    assert len(characters) > 10_000
    assert [hex(ord(character)) for character in characters if len(split(normalize(f"a{character}b"))) != 1] == []


@pytest.mark.parametrize("options", NORMALIZERS.values(), ids=NORMALIZERS.keys())
def test_every_character_that_a_text_is_cut_behind_ends_a_word(options):
    normalize, split = BertNormalizer(**options).normalize_str, BertPreTokenizer().pre_tokenize_str

    def words(text):
        return [word for word, _ in split(normalize(text))]

    ideographs = cutting.IDEOGRAPHS if options.get("handle_chinese_chars", True) else ""
    edges = characters_of(cutting.SPACES + cutting.PUNCTUATION + ideographs)
    for rest in ("b", "\u0301b", "\u0338", "\u200db"):  # an accent must not reach across the edge
        whole = {edge: words(f"a{edge}{rest}") for edge in edges}
        assert [edge for edge in edges if whole[edge] != words(f"a{edge}") + words(rest)] == []


UNUSUAL = {
    "an added token that is normalized": AddedToken("covid", normalized=True),
    "an added token that must be a word": AddedToken("<e>", normalized=False, single_word=True),
    "an added token with a space": AddedToken("< e >", normalized=False),
    "an added token of letters": AddedToken("covid", normalized=False),
    "a very long added token": AddedToken("<" + "e" * cutting.LONGEST_ADDED, normalized=False),
}


@pytest.mark.parametrize("added", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_a_tokenizer_with_unusual_tokens_gets_the_whole_text(new_tokenizer, added):
    tokenizer = new_tokenizer(added=(added,))
    tokenizer.enable_truncation(MAX_LENGTH)
    text = "covid < e > film " * 1000
    assert Cutter(tokenizer, MAX_LENGTH).cut(text) is text


def test_a_tokenizer_of_another_kind_gets_the_whole_text(new_tokenizer):
    tokenizer = new_tokenizer()
    tokenizer.model = BPE({"a": 0, "b": 1}, [])
    tokenizer.normalizer = None
    text = "a b " * 1000
    assert Cutter(tokenizer, MAX_LENGTH).cut(text) is text

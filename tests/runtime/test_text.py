"""Texts to ids: those of transformers, without padding; and the pieces of a long text have the tokens of the text."""

import json
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from bibert.errors import EngineError, ModelFileError
from bibert.runtime import text
from bibert.runtime.text import PARALLEL_FROM, SMALLEST_PIECE, Scissors, TextEncoder

MAX_LENGTH = 16
TEXTS = ["the film is good", "", "Café unable, [MASK]!", "中文 film", "x" * 300, "bad " * 300, "a\0b\u200dc 😀"]
PAIRS = ["is it?", "bad " * 300, "", "[SEP]", "film " * 40, "good " * 299, "b"]


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return TextEncoder(tokenizer, 200, MAX_LENGTH)


@pytest.fixture(scope="module")
def transformers_tokenizer(tokenizer):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_buffer(tokenizer), pad_token="[PAD]")


def as_lists(encoded):
    return [row.ids.tolist() for row in encoded], [row.token_types.tolist() for row in encoded]


def test_texts_and_pairs_have_the_ids_of_transformers(encoder, transformers_tokenizer):
    options = {"truncation": True, "max_length": MAX_LENGTH, "return_token_type_ids": True}
    single = transformers_tokenizer(TEXTS, **options)
    assert as_lists(encoder.encode(TEXTS)) == (single["input_ids"], single["token_type_ids"])
    double = transformers_tokenizer(TEXTS, PAIRS, **options)
    rows = list(zip(TEXTS, PAIRS, strict=True))
    assert as_lists(encoder.encode(rows)) == (double["input_ids"], double["token_type_ids"])
    assert max(len(row.ids) for row in encoder.encode(rows)) == MAX_LENGTH


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8"), max_size=400))
def test_any_text_has_the_ids_of_plain_tokenization(encoder, tokenizer, any_text):
    plain = Tokenizer.from_buffer(tokenizer)
    plain.enable_truncation(MAX_LENGTH)
    assert encoder.encode([any_text])[0].ids.tolist() == plain.encode(any_text).ids


@pytest.mark.parametrize("max_length", [MAX_LENGTH, MAX_LENGTH + 1])  # what two texts share is odd, even
def test_pairs_of_any_lengths_are_truncated_as_in_transformers(tokenizer, max_length):
    encoder, plain = TextEncoder(tokenizer, 200, max_length), Tokenizer.from_buffer(tokenizer)
    plain.enable_truncation(max_length, strategy="longest_first")
    pairs = [("bad " * first, "film " * second) for first in range(20) for second in range(20)]
    expected = [plain.encode(*pair) for pair in pairs]
    assert as_lists(encoder.encode(pairs)) == ([row.ids for row in expected], [row.type_ids for row in expected])


@pytest.mark.parametrize(("first", "second"), [(250, 251), (251, 250), (250, 250), (249, 700), (700, 249)])
def test_the_longer_of_two_long_texts_keeps_the_odd_token(encoder, tokenizer, first, second):
    plain = Tokenizer.from_buffer(tokenizer)
    plain.enable_truncation(MAX_LENGTH, strategy="longest_first")
    pair = ("film " * first, "is it the film ?" + " [UNK]" * (second - 5))  # the longer text may have fewer tokens
    assert encoder.encode([pair])[0].ids.tolist() == plain.encode(*pair).ids


def test_the_tokenizer_sees_little_of_a_huge_text(encoder, monkeypatch):
    seen, ids_of = [], encoder.ids_of
    monkeypatch.setattr(encoder, "ids_of", lambda piece: seen.append(piece) or ids_of(piece))
    for piece in ("hello world ", "a", "中", " ", "😀", "—"):
        seen.clear()
        found = encoder.encode([piece * (2_000_000 // len(piece))])[0]
        assert sum(map(len, seen)) <= 2 * SMALLEST_PIECE
        assert found.ids.tolist() == encoder.encode([piece * (1000 // len(piece))])[0].ids.tolist()
        assert found.truncated


def test_many_rows_are_encoded_like_single_rows(encoder, tokenizer):
    rows = [*TEXTS, *zip(TEXTS, PAIRS, strict=True)] * 5
    assert len(rows) >= PARALLEL_FROM
    alone = [encoder.encode([row])[0] for row in rows]
    in_one_thread = TextEncoder(tokenizer, 200, MAX_LENGTH, parallel=False).encode(rows)
    assert as_lists(encoder.encode(rows)) == as_lists(alone) == as_lists(in_one_thread)
    row = alone[0]
    assert row.ids.dtype == row.token_types.dtype == np.int32
    assert encoder.encode([]) == []


def test_truncation_is_reported(tokenizer):
    encoder = TextEncoder(tokenizer, 200, MAX_LENGTH, most_characters=1000)
    rows = ["the film", "film " * 14, "film " * 15, ("film", "bad " * 20), " " * 1000, " " * 1001, ("a", "\0" * 1001)]
    assert [row.truncated for row in encoder.encode(rows)] == [False, False, True, True, False, True, True]


def test_characters_after_the_limit_are_not_read(tokenizer):
    encoder = TextEncoder(tokenizer, 200, MAX_LENGTH, most_characters=1000)
    found = encoder.encode([" " * 999 + "a film", (" " * 1000 + "film", "bad")])
    assert as_lists(found) == as_lists(encoder.encode(["a", ("", "bad")]))


@pytest.mark.parametrize("half", ["a \ud800 film", "\udfff", "film \ud83d" * 400])
def test_half_a_character_becomes_the_replacement_character(encoder, half):
    whole = half.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert as_lists(encoder.encode([half, (half, half)])) == as_lists(encoder.encode([whole, (whole, whole)]))


BAD_ROWS = {
    "a number": (1.5, r"row 7: 1\.5 \(float\)"),
    "None": (None, r"row 7: None \(NoneType\)"),
    "bytes": (b"film", r"row 7: b'film' \(bytes\)"),
    "a pair with a number": (("film", 3), r"row 7: .*pair .*3 \(int\)"),
    "three texts": (("a", "b", "c"), r"row 7: \('a', 'b', 'c'\) \(tuple\)"),
    "a very long list": ([1] * 10**5, r"row 7: \[1, 1.{,40} \(list\)"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_row_that_is_not_a_text_is_refused_with_its_number_and_type(encoder, row, message):
    with pytest.raises(EngineError, match=message):
        encoder.encode(["a", "b", row], first=5)


@pytest.mark.parametrize(
    "garbage", [b"", b"{}", b"\xff", b"null", b'{"version": "1.0"}', b'{"model": {"type": "WordPi']
)
def test_an_invalid_tokenizer_is_a_bad_file(garbage):
    with pytest.raises(ModelFileError, match=r"^tokenizer: .*BERT"):
        TextEncoder(garbage, 200, MAX_LENGTH)


def test_a_tokenizer_with_more_tokens_than_the_embedding_has_rows_is_refused(tokenizer):
    tokens = Tokenizer.from_buffer(tokenizer).get_vocab_size()
    TextEncoder(tokenizer, tokens, MAX_LENGTH)
    with pytest.raises(ModelFileError, match=f"tokenizer: model.vocab .* 1 to {tokens - 1};"):
        TextEncoder(tokenizer, tokens - 1, MAX_LENGTH)


def test_a_tokenizer_whose_template_names_a_token_it_does_not_have_is_a_bad_file(tokenizer):
    broken = json.loads(tokenizer)
    del broken["post_processor"]["special_tokens"]["[SEP]"]
    with pytest.raises(ModelFileError, match=r"tokenizer: .*\[SEP\].* special_tokens"):
        TextEncoder(json.dumps(broken).encode(), 200, MAX_LENGTH)


def test_a_text_of_a_token_type_that_the_model_does_not_have_is_refused(tokenizer):
    turned = Tokenizer.from_buffer(tokenizer)
    turned.post_processor = TemplateProcessing(
        single="[CLS] $A:1", pair="[CLS] $A:0 $B:1", special_tokens=[("[CLS]", 2)]
    )
    TextEncoder(turned.to_str().encode(), 200, MAX_LENGTH, token_types=2)
    with pytest.raises(ModelFileError, match=r"tokenizer: .*token type 1, .* 1 types"):
        TextEncoder(turned.to_str().encode(), 200, MAX_LENGTH, token_types=1)


def test_special_tokens_stand_where_the_tokenizer_puts_them(tokenizer):
    turned = Tokenizer.from_buffer(tokenizer)
    turned.post_processor = TemplateProcessing(
        single="$A [SEP] [CLS]", pair="$B:1 [SEP]:3 [SEP] $A:2", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    encoder, plain = TextEncoder(turned.to_str().encode(), 200, MAX_LENGTH), turned
    plain.enable_truncation(MAX_LENGTH)
    rows = [*TEXTS, *zip(TEXTS, PAIRS, strict=True)]
    expected = plain.encode_batch(rows)
    assert as_lists(encoder.encode(rows)) == ([row.ids for row in expected], [row.type_ids for row in expected])


def test_special_tokens_must_leave_room_for_the_text(tokenizer):
    with pytest.raises(ModelFileError, match=r"2 special tokens.* has 2"):
        TextEncoder(tokenizer, 200, 2)
    encoder = TextEncoder(tokenizer, 200, 3)
    assert len(encoder.encode(["film film"])[0].ids) == 3
    with pytest.raises(EngineError, match=r"row 1: .*3 special tokens.* has 3"):
        encoder.encode(["film", ("film", "film")])


def test_padding_and_truncation_in_the_file_are_ignored(tokenizer, encoder):
    changed = Tokenizer.from_buffer(tokenizer)
    changed.enable_padding(length=50)
    changed.enable_truncation(5, strategy="only_second", direction="left")
    found = TextEncoder(changed.to_str().encode(), 200, MAX_LENGTH).encode(TEXTS)
    assert as_lists(found) == as_lists(encoder.encode(TEXTS))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_does_not_wait_for_threads_it_does_not_have(tokenizer, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    encoder, rows = TextEncoder(tokenizer, 200, MAX_LENGTH), TEXTS * 20
    expected = as_lists(encoder.encode(rows))
    child = os.fork()
    if child == 0:
        os._exit(0 if as_lists(encoder.encode(rows)) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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


def tokens(tokenizer, words):
    return tokenizer.encode(words, add_special_tokens=False).ids


@pytest.fixture(scope="module", params=NORMALIZERS.values(), ids=NORMALIZERS.keys())
def bert_tokenizer(request, new_tokenizer):
    return new_tokenizer(added=(AddedToken("<e1>", normalized=False, rstrip=True),), **request.param)


@settings(max_examples=80)
@given(LONG_TEXTS)
def test_the_pieces_have_the_tokens_of_the_text(bert_tokenizer, long_text):
    pieces = list(Scissors(bert_tokenizer, max_length=8).pieces(long_text))
    assert [token for piece in pieces for token in tokens(bert_tokenizer, piece)] == tokens(bert_tokenizer, long_text)


def test_a_long_text_has_several_pieces_and_a_short_one_is_left_as_it_is(bert_tokenizer):
    scissors, short = Scissors(bert_tokenizer, max_length=8), "a  " + "b" * (SMALLEST_PIECE - 3)
    assert list(scissors.pieces(short)) == [short]
    assert list(scissors.pieces("")) == [""]
    assert len(list(scissors.pieces("the film " * 500))) == -(-4500 // SMALLEST_PIECE)


def test_an_added_token_is_never_cut(bert_tokenizer):
    pieces = list(Scissors(bert_tokenizer, max_length=8).pieces("[MASK]" * 1000))
    assert len(pieces) > 5
    assert all(piece.count("[MASK]") * len("[MASK]") == len(piece) for piece in pieces)


STRANGE = {"one word": "a", "spaces": " ", "emoji": "🙂", "syllables": "한", "letters with accents": "a\u0301"}


@pytest.mark.parametrize("morsel", STRANGE.values(), ids=STRANGE.keys())
def test_a_text_with_few_tokens_in_many_characters_is_squeezed(bert_tokenizer, morsel):
    assert sum(map(len, Scissors(bert_tokenizer, max_length=8).pieces(morsel * 50_000))) <= 2 * SMALLEST_PIECE


def characters_of(charset, step=1):
    pattern = re.compile(f"[{charset}]")
    codes = (code for code in range(0x20000) if not 0xD800 <= code < 0xE000 and pattern.match(chr(code)))
    return [chr(code) for code in codes][::step]


@pytest.mark.parametrize("options", NORMALIZERS.values(), ids=NORMALIZERS.keys())
def test_no_character_inside_a_word_ends_it(options):
    normalize, split = BertNormalizer(**options).normalize_str, BertPreTokenizer().pre_tokenize_str
    characters = characters_of(text.INSIDE_A_WORD)
    assert len(characters) > 10_000
    assert [hex(ord(character)) for character in characters if len(split(normalize(f"a{character}b"))) != 1] == []


@pytest.mark.parametrize("options", NORMALIZERS.values(), ids=NORMALIZERS.keys())
def test_a_text_is_cut_only_after_characters_that_end_a_word(options):
    normalize, split = BertNormalizer(**options).normalize_str, BertPreTokenizer().pre_tokenize_str

    def words(line):
        return [word for word, _ in split(normalize(line))]

    edges = characters_of(text.SPACES + text.PUNCTUATION)
    if options.get("handle_chinese_chars", True):
        edges += characters_of(text.IDEOGRAPHS, step=9)  # 27,000 that are all alike
    for rest in ("b", "\u0301b", "\u0338", "\u200db"):  # an accent must not reach across the edge
        assert [edge for edge in edges if words(f"a{edge}{rest}") != words(f"a{edge}") + words(rest)] == []


UNUSUAL = {
    "an added token that is normalized": AddedToken("covid", normalized=True),
    "an added token that must be a word": AddedToken("<e>", normalized=False, single_word=True),
    "an added token with a space": AddedToken("< e >", normalized=False),
    "an added token of letters": AddedToken("covid", normalized=False),
    "a very long added token": AddedToken("<" + "e" * text.LONGEST_ADDED, normalized=False),
}


@pytest.mark.parametrize("added", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_with_unusual_tokens_a_text_is_one_piece(new_tokenizer, added):
    long_text, tokenizer = "covid < e > film " * 1000, new_tokenizer()
    assert list(Scissors(new_tokenizer(added=(added,)), max_length=8).pieces(long_text)) == [long_text]
    many = [AddedToken(f"]{number}]", normalized=False) for number in range(text.MOST_ADDED)]  # beside the usual five
    assert list(Scissors(new_tokenizer(added=many), max_length=8).pieces(long_text)) == [long_text]
    tokenizer.model, tokenizer.normalizer = BPE({"a": 0, "b": 1}, []), None  # a tokenizer of another kind
    assert list(Scissors(tokenizer, max_length=8).pieces(long_text)) == [long_text]

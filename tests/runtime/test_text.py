"""Texts to ids: those of transformers, without padding, for whatever people call a text."""

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.processors import TemplateProcessing

from bibert.errors import EngineError, ModelFileError
from bibert.runtime.text import PARALLEL_FROM, SMALLEST_PIECE, TextEncoder

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


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=400))
def test_any_text_has_the_ids_of_plain_tokenization(encoder, tokenizer, text):
    plain = Tokenizer.from_buffer(tokenizer)
    plain.enable_truncation(MAX_LENGTH)
    assert encoder.encode([text])[0].ids.tolist() == plain.encode(text).ids


@pytest.mark.parametrize("max_length", [MAX_LENGTH, MAX_LENGTH + 1])  # what two texts share is odd, even
def test_pairs_of_any_lengths_share_the_room_as_in_transformers(tokenizer, max_length):
    encoder, plain = TextEncoder(tokenizer, 200, max_length), Tokenizer.from_buffer(tokenizer)
    plain.enable_truncation(max_length, strategy="longest_first")
    pairs = [("bad " * first, "film " * second) for first in range(20) for second in range(20)]
    expected = [plain.encode(*pair) for pair in pairs]
    assert as_lists(encoder.encode(pairs)) == ([row.ids for row in expected], [row.type_ids for row in expected])


@pytest.mark.parametrize(("first", "second"), [(250, 251), (251, 250), (250, 250), (249, 700), (700, 249)])
def test_of_two_long_texts_the_one_with_more_tokens_keeps_the_odd_one(encoder, tokenizer, first, second):
    plain = Tokenizer.from_buffer(tokenizer)
    plain.enable_truncation(MAX_LENGTH, strategy="longest_first")
    pair = ("film " * first, "is it the film ?" + " [UNK]" * (second - 5))  # the longer text may have fewer tokens
    assert encoder.encode([pair])[0].ids.tolist() == plain.encode(*pair).ids


def test_of_a_huge_text_the_tokenizer_sees_little(encoder, monkeypatch):
    seen, ids_of = [], encoder.ids_of
    monkeypatch.setattr(encoder, "ids_of", lambda text: seen.append(text) or ids_of(text))
    for piece in ("hello world ", "a", "中", " ", "😀", "—"):
        seen.clear()
        found = encoder.encode([piece * (2_000_000 // len(piece))])[0]
        assert sum(map(len, seen)) <= 2 * SMALLEST_PIECE
        assert found.ids.tolist() == encoder.encode([piece * (1000 // len(piece))])[0].ids.tolist()
        assert found.truncated


def test_many_rows_are_encoded_as_one_by_one(encoder, tokenizer):
    rows = [*TEXTS, *zip(TEXTS, PAIRS, strict=True)] * 5
    assert len(rows) >= PARALLEL_FROM
    alone = [encoder.encode([row])[0] for row in rows]
    in_one_thread = TextEncoder(tokenizer, 200, MAX_LENGTH, parallel=False).encode(rows)
    assert as_lists(encoder.encode(rows)) == as_lists(alone) == as_lists(in_one_thread)


def test_ids_are_what_the_engine_takes_and_no_rows_are_fine(encoder):
    row = encoder.encode(["the film"])[0]
    assert row.ids.dtype == row.token_types.dtype == np.int32
    assert encoder.encode([]) == []


def test_it_is_told_when_something_was_left_out(tokenizer):
    encoder = TextEncoder(tokenizer, 200, MAX_LENGTH, most_characters=1000)
    rows = ["the film", "film " * 14, "film " * 15, ("film", "bad " * 20), " " * 1000, " " * 1001, ("a", "\0" * 1001)]
    assert [row.truncated for row in encoder.encode(rows)] == [False, False, True, True, False, True, True]


def test_what_is_behind_the_most_characters_is_not_read(tokenizer):
    encoder = TextEncoder(tokenizer, 200, MAX_LENGTH, most_characters=1000)
    found = encoder.encode([" " * 999 + "a film", (" " * 1000 + "film", "bad")])
    assert as_lists(found) == as_lists(encoder.encode(["a", ("", "bad")]))


@pytest.mark.parametrize("text", ["a \ud800 film", "\udfff", "film \ud83d" * 400])
def test_half_a_character_becomes_the_replacement_character(encoder, text):
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert as_lists(encoder.encode([text, (text, text)])) == as_lists(encoder.encode([whole, (whole, whole)]))


def test_a_string_of_numpy_is_a_text(encoder):
    assert as_lists(encoder.encode(np.array(["the film", "bad"]))) == as_lists(encoder.encode(["the film", "bad"]))


BAD_ROWS = {
    "a number": (1.5, r"row 7: 1\.5 \(float\)"),
    "None": (None, r"row 7: None \(NoneType\)"),
    "bytes": (b"film", r"row 7: b'film' \(bytes\)"),
    "a pair with a number": (("film", 3), r"row 7: .*pair .*3 \(int\)"),
    "three texts": (("a", "b", "c"), r"row 7: \('a', 'b', 'c'\) \(tuple\)"),
    "a very long list": ([1] * 10**5, r"row 7: \[1, 1.{,40} \(list\)"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_what_is_no_text_is_refused_with_its_number_and_its_type(encoder, row, message):
    with pytest.raises(EngineError, match=message):
        encoder.encode(["a", "b", row], first=5)


@pytest.mark.parametrize(
    "garbage", [b"", b"{}", b"\xff", b"null", b'{"version": "1.0"}', b'{"model": {"type": "WordPi']
)
def test_a_tokenizer_that_is_none_is_a_bad_file(garbage):
    with pytest.raises(ModelFileError, match=r"tokenizer: .*read \(.+\).* again"):
        TextEncoder(garbage, 200, MAX_LENGTH)


def test_a_tokenizer_with_more_tokens_than_the_embedding_has_rows_is_refused(tokenizer):
    tokens = Tokenizer.from_buffer(tokenizer).get_vocab_size()
    TextEncoder(tokenizer, tokens, MAX_LENGTH)
    with pytest.raises(ModelFileError, match=f"tokenizer: .*{tokens} tokens.* {tokens - 1} rows"):
        TextEncoder(tokenizer, tokens - 1, MAX_LENGTH)


def test_a_tokenizer_without_its_unknown_token_is_refused():
    tokenizer = Tokenizer(WordPiece({"a": 0}, unk_token="[UNK]"))
    with pytest.raises(ModelFileError, match=r"tokenizer: '\[UNK\]'"):
        TextEncoder(tokenizer.to_str().encode(), 200, MAX_LENGTH)


def test_a_tokenizer_that_makes_no_tokens_of_a_text_is_refused():
    silent = Tokenizer(BPE({"b": 0}, []))
    with pytest.raises(ModelFileError, match=r"tokenizer: .*each text"):
        TextEncoder(silent.to_str().encode(), 200, MAX_LENGTH)


def test_a_tokenizer_whose_template_names_a_token_it_does_not_have_is_a_bad_file(tokenizer):
    broken = json.loads(tokenizer)
    del broken["post_processor"]["special_tokens"]["[SEP]"]
    with pytest.raises(ModelFileError, match=r"tokenizer: .*read \(.+\).* again"):
        TextEncoder(json.dumps(broken).encode(), 200, MAX_LENGTH)


def test_a_tokenizer_that_fails_at_a_text_is_an_error_with_its_rows():
    letters = Tokenizer(Unigram([("a", 0.0), ("b", 0.0)]))
    encoder = TextEncoder(letters.to_str().encode(), 200, MAX_LENGTH)
    with pytest.raises(EngineError, match=r"rows 3 to 4: .*\(.+\)"):
        encoder.encode(["ab", "zzz"], first=3)


def test_a_text_without_any_token_is_refused_with_its_number():
    letters = Tokenizer(BPE({"a": 0}, []))
    encoder = TextEncoder(letters.to_str().encode(), 200, MAX_LENGTH)
    with pytest.raises(EngineError, match=r"row 6: .*no tokens"):
        encoder.encode(["a", ""], first=5)


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


def test_what_the_file_says_of_padding_and_truncation_does_not_matter(tokenizer, encoder):
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

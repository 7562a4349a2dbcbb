"""A tokenizer, token ids, batches and their order."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibert.data import MOST_CHARACTERS, encoding
from bibert.data.encoding import (
    SPECIAL_TOKENS,
    Collator,
    EncodedSplit,
    LengthGroupedSampler,
    batches_by_length,
    encode,
    train_tokenizer,
)
from bibert.data.examples import Split
from bibert.errors import DataError, RecipeError

TEXTS = ("a good film", "bad", "a film so long that nobody saw its end")
PAIRS = ("yes", "no it was bad", "so it was")
SINGLE = Split(TEXTS, None, (1, 0, 2), "here")
PAIRED = Split(TEXTS, PAIRS, (1.5, 0.0, 2.0), "here")


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS + PAIRS)


REVIEWS = ["The plot is dull, but the acting is superb.", "The acting is not dull!"]
TOKENS = {
    "special tokens have ids 0 to 4": ("", list(SPECIAL_TOKENS)),
    "a known word is one piece whatever its case": ("THE Acting, dull!", ["the", "acting", ",", "dull", "!"]),
    "an unknown word falls apart into characters": ("plug", ["p", "##l", "##u", "##g"]),
    "a word with unknown characters is unknown": ("zebra 東", ["[UNK]", "[UNK]"]),
    "accents are stripped": ("PLÓT", ["plot"]),
}


@pytest.mark.parametrize(("text", "tokens"), TOKENS.values(), ids=TOKENS)
def test_texts_are_split_as_bert_does(text, tokens):
    tokenizer = train_tokenizer(REVIEWS)
    assert (tokenizer.tokenize(text) if text else tokenizer.convert_ids_to_tokens([0, 1, 2, 3, 4])) == tokens


def test_pairs_follow_the_template_of_bert_also_after_saving(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer(REVIEWS, max_length=64)
    encoded = tokenizer("dull", "superb acting")
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    assert tokens == ["[CLS]", "dull", "[SEP]", "superb", "acting", "[SEP]"]
    assert encoded["token_type_ids"] == [0, 0, 0, 1, 1, 1]
    assert encoded["attention_mask"] == [1] * 6
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == "dull superb acting"
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 64
    assert loaded("dull", "superb acting") == encoded


def test_the_most_frequent_words_are_kept_and_ties_go_by_the_alphabet():
    kept = train_tokenizer(["aab aab bba abb"], vocab_size=len(SPECIAL_TOKENS) + 6).get_vocab()
    assert set(kept) == {*SPECIAL_TOKENS, "a", "b", "##a", "##b", "aab", "abb"}


def test_the_same_texts_give_the_same_vocabulary_in_another_process():
    program = (
        "import json; from bibert.lab.synthetic import make_reviews;"
        "from bibert.data.encoding import train_tokenizer;"
        "print(json.dumps(train_tokenizer(make_reviews(200, 0).texts).get_vocab(), sort_keys=True))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert sorted(json.loads(runs[0]).values()) == list(range(len(json.loads(runs[0]))))


@pytest.mark.parametrize(
    ("texts", "vocab_size", "says"),
    [(REVIEWS, 6, r"vocab_size is 6.* \d+$"), ([], 100, "at least one"), (["  "], 100, "at least one")],
)
def test_a_vocabulary_without_room_or_words_is_refused(texts, vocab_size, says):
    with pytest.raises(DataError, match=says):
        train_tokenizer(texts, vocab_size)


@pytest.mark.parametrize("split", [SINGLE, PAIRED], ids=["single", "pairs"])
@pytest.mark.parametrize("max_length", [5, 8, 64])
def test_rows_are_what_the_tokenizer_gives_for_each_text_alone(split, max_length, tokenizer):
    encoded = encode(split, tokenizer, max_length)
    for row, text in enumerate(split.texts):
        pair = None if split.pairs is None else split.pairs[row]
        expected = tokenizer(text, pair, truncation=True, max_length=max_length)
        assert encoded[row]["input_ids"].tolist() == expected["input_ids"]
        assert encoded[row]["token_type_ids"].tolist() == expected["token_type_ids"]
    assert encoded.lengths.tolist() == [len(encoded[row]["input_ids"]) for row in range(len(encoded))]


def test_splits_longer_than_a_tokenizer_call_keep_their_order(tokenizer, monkeypatch):
    whole = encode(SINGLE, tokenizer, 64)
    monkeypatch.setattr(encoding, "ROWS_PER_CALL", 2)
    parts = encode(SINGLE, tokenizer, 64)
    assert parts.input_ids.tolist() == whole.input_ids.tolist()
    assert parts.offsets.tolist() == whole.offsets.tolist()


def test_storage_is_compact_and_tensors_have_the_types_the_losses_need(tokenizer):
    encoded, scores = encode(SINGLE, tokenizer, 64), encode(PAIRED, tokenizer, 64)
    assert (encoded.input_ids.dtype, encoded.token_type_ids.dtype) == (np.int32, np.int8)
    assert (encoded.labels.dtype, scores.labels.dtype) == (np.int64, np.float32)  # whole numbers are classes
    collator = Collator(tokenizer.pad_token_id)
    assert {tensor.dtype for tensor in collator([encoded[0]]).values()} == {torch.int64}
    assert collator([scores[0]])["labels"].dtype == torch.float32


@pytest.mark.parametrize("size", [1, 2, 5])
def test_batches_by_length_hold_every_row_once(tokenizer, size):
    encoded = encode(SINGLE, tokenizer, 64)
    batches = list(batches_by_length(encoded, Collator(tokenizer.pad_token_id), size))
    rows = np.concatenate([rows for rows, _ in batches])
    assert rows.tolist() == np.argsort(encoded.lengths).tolist()
    labels = torch.cat([batch["labels"] for _, batch in batches])
    assert labels.tolist() == encoded.labels[rows].tolist()


def test_rows_are_counted_from_both_ends_and_splits_can_be_joined(tokenizer):
    encoded, paired = encode(SINGLE, tokenizer, 64), encode(PAIRED, tokenizer, 64)
    joined = EncodedSplit.joined([paired, encoded])
    for found, expected in zip(joined, [*paired, *encoded], strict=True):
        assert all(np.array_equal(found[name], value) for name, value in expected.items())
    assert encoded[-1]["labels"] == 2
    with pytest.raises(IndexError, match="row 3 of 3"):
        encoded[3]


def test_a_text_is_read_up_to_the_most_characters(tokenizer):
    blank = " " * MOST_CHARACTERS
    split = Split((f"{blank}film", f"{blank[1:]}f"), None, (0.0, 0.0), "made up")
    assert encode(split, tokenizer, 16).lengths.tolist() == [2, 3]  # the special tokens, and one letter


def test_no_room_for_text_is_refused(tokenizer):
    with pytest.raises(RecipeError, match=r"max_length is 3, .* 4 or more"):
        encode(PAIRED, tokenizer, 3)


def test_a_batch_is_padded_to_its_longest_row(tokenizer):
    encoded = encode(PAIRED, tokenizer, 64)
    batch = Collator(pad_token_id=7)([encoded[0], encoded[1]])
    longest = int(encoded.lengths[:2].max())
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {
        "input_ids": (2, longest),
        "attention_mask": (2, longest),
        "token_type_ids": (2, longest),
        "labels": (2,),
    }
    assert batch["attention_mask"].sum(1).tolist() == encoded.lengths[:2].tolist()
    padding = batch["attention_mask"] == 0
    assert padding.any()
    assert (batch["input_ids"][padding] == 7).all()
    assert (batch["token_type_ids"][padding] == 0).all()
    assert batch["input_ids"][1][~padding[1]].tolist() == encoded[1]["input_ids"].tolist()


@given(
    lengths=st.lists(st.integers(2, 50), min_size=1, max_size=300),
    batch_size=st.integers(2, 40),
    extra=st.lists(st.integers(2, 50), max_size=60),
    share=st.floats(0.1, 0.9),
)
@settings(max_examples=50)
def test_every_row_comes_once_an_epoch_and_every_batch_has_its_share_of_extra_rows(lengths, batch_size, extra, share):
    rows, per_batch, seen = len(lengths), max(1, int(share * batch_size)) if extra else 0, []
    sampler = LengthGroupedSampler(lengths, batch_size, 1, extra, per_batch)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        order = list(sampler)
        assert len(order) == len(sampler)
        assert sorted(row for row in order if row < rows) == list(range(rows))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        found = [[row - rows for row in batch if row >= rows] for batch in batches]
        assert [len(batch) for batch in found] == [per_batch] * -(-rows // (batch_size - per_batch))
        seen += [row for batch in found for row in batch]
    times = np.bincount(seen, minlength=len(extra)) if extra else np.zeros(1)
    assert times.max() - times.min() <= 1  # none comes again before all were seen


@pytest.mark.parametrize("extra", [{}, {"extra": range(2, 90), "extra_per_batch": 3}], ids=["alone", "with extra"])
def test_the_order_is_a_function_of_seed_and_epoch(extra):
    lengths = np.random.default_rng(0).integers(2, 60, 500)

    def order(seed, epoch):
        sampler = LengthGroupedSampler(lengths, 8, seed, **extra)
        sampler.set_epoch(epoch)
        return tuple(sampler)

    sampler = LengthGroupedSampler(lengths, 8, seed=1, **extra)
    assert list(sampler) == list(sampler)
    assert order(1, 3) == order(1, 3)
    assert len({order(1, 3), order(1, 4), order(2, 3), order(3, 1)}) == 4


@pytest.mark.parametrize("extra", [0, 6])
def test_rows_of_a_batch_have_similar_lengths(extra):
    lengths = np.random.default_rng(0).integers(2, 66, 8000 + 800 * extra)
    sampler = LengthGroupedSampler(lengths[:8000], 16, 0, lengths[8000:], extra)
    batches = np.array(list(sampler))
    batches = batches[: len(batches) // 16 * 16].reshape(-1, 16)
    spread = lengths[batches].max(1) - lengths[batches].min(1)
    assert np.mean(spread) < 3  # about 57 for a random order
    assert np.corrcoef(np.arange(len(batches)), lengths[batches].mean(1))[0, 1] < 0.2  # yet batches come in any order


def test_an_unfilled_batch_comes_last():
    lengths = list(range(2, 25))
    order = list(LengthGroupedSampler(lengths, 5, seed=0))
    runs = [sorted(order[start : start + 5]) for start in range(0, 20, 5)]
    assert sorted(runs) == [list(range(start, start + 5)) for start in range(0, 20, 5)]

"""Token ids, batches and their order."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from bibert.data import encoding
from bibert.data.encoding import Collator, LengthGroupedSampler, batches_by_length, check_length, encode
from bibert.data.examples import Split
from bibert.data.tokenizer import train_tokenizer
from bibert.errors import DataError, RecipeError

TEXTS = ("a good film", "bad", "a film so long that nobody saw its end")
PAIRS = ("yes", "no it was bad", "so it was")
SINGLE = Split(TEXTS, None, (1, 0, 2), "here")
PAIRED = Split(TEXTS, PAIRS, (1.5, 0.0, 2.0), "here")


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS + PAIRS)


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


def test_storage_is_compact(tokenizer):
    encoded = encode(PAIRED, tokenizer, 64)
    assert (encoded.input_ids.dtype, encoded.token_type_ids.dtype) == (np.int32, np.int8)


def test_whole_number_labels_are_classes_and_others_scores(tokenizer):
    assert encode(SINGLE, tokenizer, 64).labels.dtype == np.int64
    assert encode(PAIRED, tokenizer, 64).labels.dtype == np.float32


@pytest.mark.parametrize("size", [1, 2, 5])
def test_batches_by_length_hold_every_row_once(tokenizer, size):
    encoded = encode(SINGLE, tokenizer, 64)
    batches = list(batches_by_length(encoded, Collator(tokenizer.pad_token_id), size))
    rows = np.concatenate([rows for rows, _ in batches])
    assert rows.tolist() == np.argsort(encoded.lengths).tolist()
    labels = torch.cat([batch["labels"] for _, batch in batches])
    assert labels.tolist() == encoded.labels[rows].tolist()


def test_rows_are_counted_from_both_ends(tokenizer):
    encoded = encode(SINGLE, tokenizer, 64)
    assert encoded[-1]["labels"] == 2
    with pytest.raises(IndexError, match="row 3 of 3"):
        encoded[3]


def test_no_room_for_text_is_refused(tokenizer):
    with pytest.raises(RecipeError, match="max_length is 3, but special tokens alone take 3; set it to 4 or more"):
        encode(PAIRED, tokenizer, 3)


def test_a_batch_is_padded_to_its_longest_row(tokenizer):
    encoded = encode(PAIRED, tokenizer, 64)
    batch = Collator(tokenizer.pad_token_id)([encoded[0], encoded[1]])
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
    assert (batch["input_ids"][padding] == tokenizer.pad_token_id).all()
    assert (batch["token_type_ids"][padding] == 0).all()
    assert batch["input_ids"][1][~padding[1]].tolist() == encoded[1]["input_ids"].tolist()


def test_padding_uses_the_id_it_is_given(tokenizer):
    batch = Collator(pad_token_id=7)([encode(SINGLE, tokenizer, 64)[row] for row in (1, 2)])
    assert batch["input_ids"][0, -1] == 7


def test_tensor_types_are_those_the_losses_need(tokenizer):
    collator = Collator(tokenizer.pad_token_id)
    classes = collator([encode(SINGLE, tokenizer, 64)[0]])
    scores = collator([encode(PAIRED, tokenizer, 64)[0]])
    assert {tensor.dtype for tensor in classes.values()} == {torch.int64}
    assert scores["labels"].dtype == torch.float32


def test_a_fixed_length_pads_every_batch_alike(tokenizer):
    encoded = encode(SINGLE, tokenizer, 64)
    assert Collator(tokenizer.pad_token_id, pad_to=64)([encoded[1]])["input_ids"].shape == (1, 64)
    with pytest.raises(DataError, match="more than pad_to=4"):
        Collator(tokenizer.pad_token_id, pad_to=4)([encoded[2]])


def test_a_data_loader_takes_all_parts_together(tokenizer):
    encoded = encode(SINGLE, tokenizer, 64)
    sampler = LengthGroupedSampler(encoded.lengths, batch_size=2, seed=0)
    loader = DataLoader(encoded, batch_size=2, sampler=sampler, collate_fn=Collator(tokenizer.pad_token_id))
    assert sorted(label for batch in loader for label in batch["labels"].tolist()) == [0, 1, 2]


@given(lengths=st.lists(st.integers(2, 50), min_size=1, max_size=300), batch_size=st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_every_row_comes_once_an_epoch(lengths, batch_size):
    sampler = LengthGroupedSampler(lengths, batch_size, seed=1)
    assert sorted(sampler) == list(range(len(lengths))) == list(range(len(sampler)))


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(2, 60, 500)

    def order(seed, epoch):
        sampler = LengthGroupedSampler(lengths, 8, seed)
        sampler.set_epoch(epoch)
        return tuple(sampler)

    assert order(1, 3) == order(1, 3)
    assert len({order(1, 3), order(1, 4), order(2, 3), order(3, 1)}) == 4


def test_reading_an_order_twice_gives_it_twice():
    sampler = LengthGroupedSampler([5, 3, 9, 2, 7], 2, seed=0)
    assert list(sampler) == list(sampler)


def test_rows_of_a_batch_have_similar_lengths():
    lengths = np.random.default_rng(0).integers(2, 66, 8000)
    batches = np.array(list(LengthGroupedSampler(lengths, 16, seed=0))).reshape(-1, 16)
    spread = lengths[batches].max(1) - lengths[batches].min(1)
    assert np.mean(spread) < 3  # about 57 for a random order
    assert np.corrcoef(np.arange(len(batches)), lengths[batches].mean(1))[0, 1] < 0.2  # yet batches come in any order


def test_an_unfilled_batch_comes_last():
    lengths = list(range(2, 25))
    order = list(LengthGroupedSampler(lengths, 5, seed=0))
    runs = [sorted(order[start : start + 5]) for start in range(0, 20, 5)]
    assert sorted(runs) == [list(range(start, start + 5)) for start in range(0, 20, 5)]


def test_sequences_longer_than_the_positions_are_refused():
    check_length(512, 512)
    with pytest.raises(RecipeError, match="max_length is 513, the model has 512 positions; set max_length"):
        check_length(513, 512)

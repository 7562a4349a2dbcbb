"""The masked LM: its proposals against a plain computation, long texts, other tokenizers, wrong checkpoints."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from bibert.data.encoding import train_tokenizer
from bibert.errors import CheckpointError
from bibert.training import masked_lm
from bibert.training.masked_lm import MaskedWordModel, load_masked_lm

TEXTS = ["the plot is dull but the acting is superb", "a clever film with a warm and funny ending"]
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def bert(tokenizer, positions=64, spare=0):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer) + spare, max_position_embeddings=positions, **SHAPE)
    model = BertForMaskedLM(config).eval()
    torch.nn.init.normal_(model.get_input_embeddings().weight)  # the usual small ones give every place the same words
    return model


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, max_length=64)


def plain_proposals(model, tokenizer, words, place, count):
    masked = " ".join([*words[:place], tokenizer.mask_token, *words[place + 1 :]])
    inputs = tokenizer(masked, " ".join(words), return_tensors="pt")
    position = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        best = model(**inputs).logits[0, position].topk(count).indices.tolist()
    pieces = tokenizer.convert_ids_to_tokens(best)
    return tuple(piece for piece in pieces if not piece.startswith("##") and piece not in tokenizer.all_special_tokens)


@pytest.mark.parametrize("tokens_per_batch", [1, 50, 8192])
def test_batched_proposals_are_those_of_one_masked_pair_at_a_time(tokenizer, tokens_per_batch, monkeypatch):
    monkeypatch.setattr(masked_lm, "TOKENS_PER_BATCH", tokens_per_batch)
    model = bert(tokenizer)
    words = TEXTS[0].split()
    found = MaskedWordModel(model, tokenizer).propose(words, range(len(words)), 15)
    assert found == {place: plain_proposals(model, tokenizer, words, place, 15) for place in range(len(words))}
    assert len(set(found.values())) > 1


def test_pieces_inside_a_word_and_special_tokens_are_never_proposed(tokenizer):
    words = TEXTS[1].split()
    found = MaskedWordModel(bert(tokenizer), tokenizer).propose(words, [1], len(tokenizer))
    assert set(found[1]) == {token for token in tokenizer.get_vocab() if not token.startswith(("##", "["))}


def test_words_of_several_pieces_are_left_out(tokenizer):
    words = ["the", "plots", "is", "dull"]
    assert set(MaskedWordModel(bert(tokenizer), tokenizer).propose(words, [1, 3], 5)) == {3}
    assert MaskedWordModel(bert(tokenizer), tokenizer).propose(words, [1], 5) == {}


def test_a_vocabulary_padded_beyond_the_tokenizer_proposes_known_words_only(tokenizer):
    model = MaskedWordModel(bert(tokenizer, spare=50), tokenizer)
    assert None not in model.propose(["dull", "film"], [0], 1000)[0]


def test_of_a_long_pair_the_second_text_is_cut(tokenizer):
    model = MaskedWordModel(bert(tokenizer), tokenizer)
    words = ["dull"] * 40  # 40 + 40 and three special tokens, in 64 positions
    assert set(model.propose(words, [0, 39], 5)) == {0, 39}


def test_of_a_text_longer_than_the_positions_the_end_is_left_out(tokenizer):
    model = MaskedWordModel(bert(tokenizer), tokenizer)
    words = ["dull"] * 100
    assert set(model.propose(words, range(100), 5)) == set(range(62))


def test_a_text_without_words_has_no_proposals(tokenizer):
    assert MaskedWordModel(bert(tokenizer), tokenizer).propose([], [], 5) == {}


def byte_level_tokenizer():
    words = ["dull", "film", "a", "good"]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted({*"Ġ", *"".join(words)})]
    merges = []
    for word in words:
        whole = ""
        for letter in "Ġ" + word:
            if whole:
                merges.append((whole, letter))
            whole += letter
            pieces.append(whole)
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    pipeline = Tokenizer(models.BPE(vocabulary, list(dict.fromkeys(merges))))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
        "cls_token": "<s>",
        "sep_token": "</s>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=pipeline, model_max_length=32, **names)


def test_a_byte_level_model_proposes_words_without_its_space_mark():
    tokenizer = byte_level_tokenizer()
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=40, pad_token_id=1, **SHAPE)
    torch.manual_seed(0)
    model = MaskedWordModel(RobertaForMaskedLM(config), tokenizer)
    found = model.propose(["a", "good", "film", "oooo"], range(4), len(tokenizer))
    assert set(found) == {0, 1, 2}
    assert {"dull", "film", "a", "good"} <= set(found[1])
    assert not any("Ġ" in word or word == "" for word in found[1])
    assert not model.is_uncased


def test_a_tokenizer_that_lowers_case_makes_the_model_uncased(tokenizer):
    assert MaskedWordModel(bert(tokenizer), tokenizer).is_uncased


def test_a_saved_checkpoint_proposes_the_same_words(tokenizer, tmp_path):
    model = bert(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    words = TEXTS[0].split()
    expected = MaskedWordModel(model, tokenizer).propose(words, [1, 3], 15)
    assert load_masked_lm(tmp_path).propose(words, [1, 3], 15) == expected


def test_a_checkpoint_without_a_masked_lm_head_is_refused(tokenizer, tmp_path):
    BertModel(BertConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"\d+ weights of a masked LM are missing \(cls\.predictions"):
        load_masked_lm(tmp_path)


def test_a_tokenizer_larger_than_the_model_is_refused_with_both_numbers(tokenizer, tmp_path):
    BertForMaskedLM(BertConfig(vocab_size=10, **SHAPE)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=f"the tokenizer has {len(tokenizer)} tokens and the model 10"):
        load_masked_lm(tmp_path)


def test_a_folder_without_a_checkpoint_is_refused_in_one_line(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be loaded as a masked LM") as refused:
        load_masked_lm(tmp_path)
    assert "\n" not in str(refused.value)

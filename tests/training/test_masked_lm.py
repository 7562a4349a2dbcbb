"""The masked LM: its proposals against a plain computation, long texts, other tokenizers, wrong checkpoints."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
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
    found = MaskedWordModel(bert(tokenizer, spare=50), tokenizer).propose(words, [1], 1000)  # a padded vocabulary
    assert set(found[1]) == {token for token in tokenizer.get_vocab() if not token.startswith(("##", "["))}


def test_words_of_several_pieces_are_left_out_and_the_end_of_long_texts(tokenizer):
    words = ["the", "plots", "is", "dull"]
    assert set(MaskedWordModel(bert(tokenizer), tokenizer).propose(words, [1, 3], 5)) == {3}
    model = MaskedWordModel(bert(tokenizer), tokenizer)
    assert model.propose(words, [1], 5) == {}
    assert set(model.propose(["dull"] * 40, [0, 39], 5)) == {0, 39}  # 40 + 40 and 3 special tokens, in 64 positions
    assert set(model.propose(["dull"] * 100, range(100), 5)) == set(range(62))
    assert model.propose([], [], 5) == {}


def byte_level_tokenizer():
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pipeline.train_from_iterator(["dull film a good"], trainers.BpeTrainer(special_tokens=special, show_progress=False))
    pipeline.decoder = decoders.ByteLevel()
    pipeline.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    names = {"pad": "<pad>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>", "sep": "</s>"}
    tokens = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=pipeline, model_max_length=32, **tokens)


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


def test_a_saved_checkpoint_proposes_the_same_words(tokenizer, tmp_path):
    model = bert(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    words, loaded = TEXTS[0].split(), load_masked_lm(tmp_path)
    assert loaded.propose(words, [1, 3], 15) == MaskedWordModel(model, tokenizer).propose(words, [1, 3], 15)
    assert loaded.is_uncased


WRONG = {
    "no checkpoint": (None, "cannot be loaded as a masked LM"),
    "no masked-LM head": (BertModel, r"\d+ weights of a masked LM are missing \(cls\.predictions"),
    "fewer tokens than the tokenizer": (BertForMaskedLM, r"tokenizer has \d+ token ids.* 10 rows"),
}


@pytest.mark.parametrize(("kind", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_checkpoint_is_refused_in_one_line(kind, says, tokenizer, tmp_path):
    if kind is not None:
        vocabulary = 10 if kind is BertForMaskedLM else len(tokenizer)
        kind(BertConfig(vocab_size=vocabulary, **SHAPE)).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=says) as refused:
        load_masked_lm(tmp_path)
    assert "\n" not in str(refused.value)

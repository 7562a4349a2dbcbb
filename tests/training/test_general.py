"""The general stage: an encoder binarized on plain text learns, resumes, and refuses what has no meaning there."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from bibert.data.examples import Split
from bibert.errors import CheckpointError, DataError, NumericError, RecipeError
from bibert.files import read_json_lines
from bibert.nn.checkpoint import load_classifier
from bibert.training import general
from bibert.training.general import encode_general, general_data, generalize
from bibert.training.recipe import Recipe

RECIPE = Recipe(
    learning_rate=2e-3, epochs=10, batch_size=16, max_length=16, eval_every=4, log_every=1, dropout=0.1, average=0.9
)


@pytest.fixture
def texts(data, monkeypatch):
    """Different texts without labels; eight are set aside."""
    monkeypatch.setattr(general, "DEV_ROWS", 8)
    found = tuple(dict.fromkeys(data.train.texts))
    return Split(found, None, (0,) * len(found), "texts.txt")


def test_of_eight_neighbours_two_make_a_pair_and_the_first_texts_are_set_aside(texts, start):
    data = general_data(texts)
    train, tokenizer = data.train.texts, load_classifier(start).tokenizer
    assert (data.dev["dev"].texts, train) == (texts.texts[:8], texts.texts[8:])
    encoded = encode_general(data, load_classifier(start), RECIPE).train
    rows = [encoded[row] for row in range(len(encoded))]
    pairs = [(train[row], train[row + 1]) for row in range(0, len(train) - 1, 8)]
    expected = [(text,) for row, text in enumerate(train) if row % 8 > 1] + pairs
    found = [tokenizer(*row, truncation=True, max_length=RECIPE.max_length) for row in expected]
    assert [row["input_ids"].tolist() for row in rows] == [row["input_ids"] for row in found]
    assert [bool(row["token_type_ids"].any()) for row in rows] == [len(row) == 2 for row in expected]


def test_the_pooled_token_learns_the_sentence_and_a_killed_run_ends_with_the_same_weights(
    texts, start, tmp_path, weights_of, change_at
):
    runs = tmp_path / "whole", tmp_path / "killed"
    with pytest.raises(NumericError):
        generalize(start, "bibert_4", general_data(texts), runs[1], RECIPE, callbacks=[change_at(20)])
    metrics = [generalize(start, "bibert_4", general_data(texts), run, RECIPE) for run in runs]
    assert metrics[0] == metrics[1]
    assert weights_of(runs[0] / "model") == weights_of(runs[1] / "model")
    cosines = [line["eval_dev_cosine"] for line in read_json_lines(runs[0] / "log.jsonl") if "eval_dev_cosine" in line]
    assert cosines[0] < 0.5 < 0.8 < max(cosines) == metrics[0]["dev_cosine"]
    assert all(before < after for before, after in pairwise(cosines[:3]))


def test_another_student_continues(texts, start, tmp_path):
    short = replace(RECIPE, max_steps=2, average=0.0)
    generalize(start, "bibert_4", general_data(texts), tmp_path / "four", short)
    first, still = load_classifier(tmp_path / "four").model, replace(short, learning_rate=1e-30)
    generalize(start, "bibert_plus", general_data(texts), tmp_path / "one", still, start=tmp_path / "four")
    after = load_classifier(tmp_path / "one").model
    for name in ("classifier.weight", "bert.encoder.layer.1.intermediate.dense.weight"):
        assert torch.equal(after.get_parameter(name), first.get_parameter(name))


@pytest.mark.parametrize("term", ["prediction", "gold"])
def test_terms_of_a_task_a_quantized_encoder_and_too_few_texts_are_refused(texts, start, student, tmp_path, term):
    with pytest.raises(RecipeError, match=rf"weights\.{term}"):
        generalize(start, "bibert", general_data(texts), tmp_path / "run", replace(RECIPE, weights={term: 1.0}))
    with pytest.raises(CheckpointError, match=rf"{student}: .*quantized.*full-precision"):
        generalize(student, "bibert", general_data(texts), tmp_path / "run", RECIPE)
    few = replace(texts, texts=texts.texts[:11], labels=(0,) * 11)
    with pytest.raises(DataError, match=r"texts\.txt: has 11 .* 8 .*add texts"):
        general_data(few)
    assert not (tmp_path / "run").exists()

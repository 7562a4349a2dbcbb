"""Every rival that is installed runs the model, the table says what others need; shapes, batches, the random BERT."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from bibert.errors import BibertError
from bibert.lab.architecture import count_parameters
from bibert.lab.rivals.engines import (
    CALIBRATION_BATCHES,
    OURS,
    RIVALS,
    Blueprint,
    Shape,
    get_rivals,
    load_engine,
    random_batch,
)
from bibert.nn.packable import packed_config

# How far a logit may be from torch's float32, as a share of the largest: rounding, and coarse steps in every layer. A
# graph that reads its inputs in the wrong way is off by half or more.
TOLERANCE = {"fp32": 1e-5, "int8": 0.4}


@pytest.mark.filterwarnings("ignore")  # of the libraries about themselves, while they convert
@pytest.mark.parametrize("rival", RIVALS.values(), ids=list(RIVALS))
def test_a_rival_computes_the_same_bert_at_every_shape(rival, tiny, tmp_path):
    if rival.missing:
        pytest.skip(f"{' '.join(rival.missing)} not installed")
    path = rival.build(Blueprint(tiny), tmp_path)
    runs = [load(path, 1) for load in (rival.load, rival.load_for_texts) if load is not None]
    torch_fp32 = RIVALS["torch-fp32"]
    expected = torch_fp32.load(torch_fp32.build(Blueprint(tiny), tmp_path), 1)
    for shape in (Shape(1, 8), Shape(3, 24), Shape(1, 1)):
        batch = random_batch(shape, tiny.vocabulary)
        wanted = expected(*batch)
        for run in runs:
            found = run(*batch)
            assert found.shape == (shape.batch, 3)
            assert np.abs(found - wanted).max() <= TOLERANCE[rival.name.partition("-")[2]] * np.abs(wanted).max()


def test_int8_is_not_float32_under_another_name(tiny, tmp_path):
    batch = random_batch(Shape(2, 20), tiny.vocabulary)
    rivals = get_rivals(["torch-fp32", "torch-int8"])
    full, quantized = (rival.load(rival.build(Blueprint(tiny), tmp_path), 1) for rival in rivals)
    assert (full(*batch) != quantized(*batch)).any()
    assert rivals[1].bytes_in(tmp_path) < rivals[0].bytes_in(tmp_path)


def test_the_number_of_threads_reaches_torch(tiny, tmp_path):
    import torch

    before, rival = torch.get_num_threads(), RIVALS["torch-fp32"]
    try:
        rival.load(rival.build(Blueprint(tiny), tmp_path), 3)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_our_engine_is_loaded_as_rivals_are(tiny, tiny_file):
    assert load_engine(OURS, tiny_file, 1)(*random_batch(Shape(2, 5), tiny.vocabulary)).shape == (2, 3)


def test_names_choose_rivals_in_their_order_and_once():
    chosen = get_rivals(["onnx-int8", "torch-fp32", "onnx-int8"])
    assert [rival.name for rival in chosen] == ["onnx-int8", "torch-fp32"]
    assert get_rivals([]) == tuple(RIVALS.values())


def test_an_unknown_rival_is_refused_with_the_closest_name():
    with pytest.raises(BibertError, match=r"'onnx-int4'.*'onnx-int8'"):
        get_rivals(["onnx-int4"])


def test_a_rival_names_the_packages_it_misses(monkeypatch):
    there = {"torch", "transformers", "openvino"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name in there else None)
    assert RIVALS["torch-int8"].missing == ()
    assert RIVALS["openvino-int8"].missing == ("nncf",)
    assert RIVALS["onnx-fp32"].missing == ("onnx", "onnxscript", "onnxruntime")


def test_a_shape_is_read_as_it_is_written():
    assert Shape.parse("8x128") == Shape(8, 128)
    assert str(Shape(8, 128)) == "8x128"


@pytest.mark.parametrize("word", ["", "8", "x8", "8x", "0x8", "8x0", "-1x8", "8x8x8", "8X8", "8 x 8", "1e3x8", "٣x8"])
def test_any_other_shape_is_refused_with_an_example(word):
    with pytest.raises(BibertError, match="8x128"):
        Shape.parse(word)


def test_a_batch_holds_ids_of_the_vocabulary_without_padding_and_follows_its_seed():
    ids, mask = random_batch(Shape(4, 100), vocabulary=7)
    assert ids.shape == mask.shape == (4, 100)
    assert set(np.unique(ids)) == set(range(7))
    assert (mask == 1).all()
    np.testing.assert_array_equal(ids, random_batch(Shape(4, 100), 7)[0])
    assert (random_batch(Shape(4, 100), 7, seed=1)[0] != ids).any()


def test_a_random_bert_has_the_shape_of_the_packed_model_or_is_refused_with_both_numbers(tiny):
    bert = Blueprint(tiny).bert()
    assert packed_config(bert.config.to_dict()) == tiny
    assert sum(weight.numel() for weight in bert.parameters()) == sum(count_parameters(tiny).values())
    assert bert.config._attn_implementation == "sdpa"
    assert not bert.training
    with pytest.raises(BibertError, match=r"64 channels.* needs 32"):
        Blueprint(replace(tiny, heads=4)).bert()


def test_int8_is_calibrated_with_random_ids_of_several_lengths(tiny):
    batches = list(Blueprint(tiny).calibration())
    assert len(batches) == CALIBRATION_BATCHES
    assert {ids.shape for ids, _ in batches} == {(1, 24), (1, 16), (1, 8)}  # the model takes 24 tokens
    assert all(ids.max() < tiny.vocabulary for ids, _ in batches)

"""Every rival that is installed really runs the model; the table says what the others need."""

import importlib.util

import numpy as np
import pytest

from bibert.errors import BibertError
from bibert.lab.rivals.engines import OURS, RIVALS, Blueprint, Shape, get_rivals, load_engine, random_batch

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

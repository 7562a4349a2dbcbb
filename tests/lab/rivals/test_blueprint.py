"""What rivals are built from survives the way to the child, and real texts replace random ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from bibert.errors import CheckpointError
from bibert.lab.rivals.alone import build_alone
from bibert.lab.rivals.blueprint import RANDOM_BATCHES, Blueprint
from bibert.lab.rivals.table import RIVALS


@pytest.mark.parametrize("weights", [None, Path("folder/model")])
def test_a_blueprint_is_the_same_after_json(tiny, weights):
    blueprint = Blueprint(tiny, weights, ((2, 7, 3), (2, 3)))
    assert Blueprint.from_dict(json.loads(json.dumps(blueprint.to_dict()))) == blueprint


def test_without_texts_ranges_come_from_random_ids_of_several_lengths(tiny):
    batches = list(Blueprint(tiny).calibration())
    assert len(batches) == RANDOM_BATCHES
    assert {ids.shape for ids, _ in batches} == {(1, 24), (1, 16), (1, 8)}  # the model takes 24 tokens
    assert all(ids.max() < tiny.vocabulary for ids, _ in batches)


def test_ranges_come_from_the_texts_that_are_given(tiny):
    batches = list(Blueprint(tiny, texts=((2, 7, 3), (2, 3))).calibration())
    assert [ids.tolist() for ids, _ in batches] == [[[2, 7, 3]], [[2, 3]]]
    assert [mask.tolist() for _, mask in batches] == [[[1, 1, 1]], [[1, 1]]]


@pytest.mark.parametrize("name", ["torch-fp32", "torch-int8"])
@pytest.mark.filterwarnings("ignore")
def test_a_child_builds_a_rival_with_the_weights_of_a_folder(name, save_untrained, tmp_path):
    texts = ["a fine film", "a bad film"]
    first, second = (
        Blueprint.of_classifier(save_untrained(tmp_path / f"model-{spread}", texts, initializer_range=spread), [])
        for spread in (0.02, 0.5)
    )
    batch = np.array([[2, 5, 3]]), np.ones((1, 3), dtype=np.int64)
    found = []
    for number, blueprint in enumerate((first, second)):
        folder = tmp_path / f"built-{number}"
        folder.mkdir()
        found.append(RIVALS[name].load(build_alone(name, blueprint, folder), 1)(*batch))
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_a_folder_without_a_classifier_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing"):
        Blueprint.of_classifier(tmp_path / "nothing", [])

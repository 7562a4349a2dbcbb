"""Names of models, and settings that contradict each other."""

import pytest

from bibert.errors import BibertError
from bibert.serving.settings import Settings, named


def test_a_model_is_named_by_its_file_its_hub_id_or_by_hand():
    words = ["sst2", "models/reviews.bibert", "owner/name@main", "fast=other/reviews.bibert"]
    assert named(words) == {
        "sst2": "sst2",
        "reviews": "models/reviews.bibert",
        "name": "owner/name@main",
        "fast": "other/reviews.bibert",
    }


def test_a_file_may_have_an_equals_sign_in_its_path(tmp_path):
    path = tmp_path / "rate=0.1" / "reviews.bibert"
    path.parent.mkdir()
    path.touch()
    assert named([str(path), f"best={path}"]) == {"reviews": str(path), "best": str(path)}


@pytest.mark.parametrize("words", [["a.bibert", "folder/a.bibert"], ["my file.bibert"], ["a/b=x.bibert"], ["a="], [""]])
def test_names_that_repeat_or_cannot_be_part_of_an_address_are_refused(words):
    with pytest.raises(BibertError, match="NAME="):
        named(words)


def test_the_largest_request_must_fit_into_the_queue():
    with pytest.raises(BibertError, match=r"64.*32.*--max-queue"):
        Settings(max_client_batch=64, max_queue=32)


def test_no_threads_means_one_for_each_cpu():
    assert Settings(threads=3).threads_of_a_model == 3
    assert Settings().threads_of_a_model >= 1

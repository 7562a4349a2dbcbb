"""A packed model small enough for a test, as a config and as a file."""

import pytest
from random_models import random_packed

from bibert.packed.file import save
from bibert.packed.schema import PackedConfig


@pytest.fixture(scope="session")
def tiny():
    sizes = {"layers": 2, "hidden": 32, "heads": 2, "head_size": 16, "intermediate": 48}
    return PackedConfig(**sizes, vocabulary=50, positions=24, token_types=2, labels=3)


@pytest.fixture(scope="session")
def tiny_file(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "tiny.bibert"
    save(random_packed(tiny), path)
    return path

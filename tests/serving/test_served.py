"""A served model whose file was replaced: a reload that fails for a passing reason is tried again, and told once."""

import os
import shutil

import pytest

from bibert.serving.served import ServedModel


@pytest.mark.parametrize("error", [OSError(5, "the disk fails"), MemoryError()])
def test_a_file_that_cannot_be_read_for_a_moment_is_tried_again(error, packed_file, tmp_path, monkeypatch, caplog):
    def fails(*_):
        raise error

    path = shutil.copy(packed_file, tmp_path / "model.bibert")
    model = ServedModel("model", str(path))
    os.utime(path, ns=(0, 0))  # another file
    with monkeypatch.context() as patch:
        patch.setattr("bibert.packed.file._read", fails)
        model.reload_if_replaced()
        model.reload_if_replaced()
    assert (model.reloads, caplog.text.count("old model stays")) == (0, 1)
    model.reload_if_replaced()
    assert model.reloads == 1

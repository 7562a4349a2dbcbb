"""Atomic writes: what a reader finds after success, after an error, in odd places; tests/packed kills the writer."""

import os

import pytest

from bibert.errors import BibertError, CheckpointError
from bibert.files import load_json, save_json, write_whole


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("mode", "content"), [("w", "µ\n\r\n"), ("wb", b"\x00\xff")])
def test_the_name_appears_when_the_block_ends_and_line_ends_are_kept(tmp_path, mode, content):
    path = tmp_path / "a.txt"
    with write_whole(str(path), mode) as file:
        file.write(content)
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == (content.encode() if mode == "w" else content)
    assert names_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_block_keeps_the_old_file_and_leaves_no_other(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_and_fail():
        with write_whole(path) as file:
            file.write("new")
            raise error

    with pytest.raises(error):
        write_and_fail()
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_a_failing_fsync_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full_disk(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"), write_whole(path) as file:
        file.write("new")
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_data_reach_the_disk_before_the_name_changes(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _descriptor: seen.append(path.exists()))
    with write_whole(path) as file:
        file.write("new")
    assert seen == ([False] if os.name == "nt" else [False, True])  # the second one is the folder


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with write_whole(tmp_path / "whole"):
        pass
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_points_at_the_new_file(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with write_whole(tmp_path / "link") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(("place", "message"), [("nowhere/a", "nowhere"), (".", "regular"), (os.devnull, "regular")])
def test_a_missing_folder_is_named_and_a_folder_or_device_is_never_replaced(tmp_path, place, message):
    with pytest.raises(BibertError, match=message), write_whole(tmp_path / place):
        pass
    assert names_in(tmp_path) == []


def test_json_comes_back_and_broken_json_is_named(tmp_path):
    save_json(tmp_path / "run.json", {"seed": 42})
    assert load_json(tmp_path / "run.json") == {"seed": 42}
    assert load_json(tmp_path / "missing.json") is None
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"run\.json: not valid JSON"):
        load_json(tmp_path / "run.json")

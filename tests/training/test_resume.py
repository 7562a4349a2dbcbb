"""Checkpoints that a kill tore, disks that fill up, and folders that two runs want."""

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from bibert.errors import CheckpointError
from bibert.training import resume
from bibert.training.provenance import provenance
from bibert.training.recipe import Recipe
from bibert.training.resume import (
    MANIFEST,
    checkpoints_of,
    disk_space,
    drop_old_checkpoints,
    is_whole,
    last_checkpoint,
    locked,
    write_manifest,
)
from bibert.training.teacher import finetune

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")


@pytest.fixture
def checkpoint(tmp_path):
    """A function that writes a whole checkpoint as the Trainer would."""

    def write(step, best=None):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in FILES:
            (folder / name).write_bytes(name.encode() * 100 + str(step).encode())
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "best_global_step": best}))
        write_manifest(folder)
        return folder

    return write


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def append(path, more):
    path.write_bytes(path.read_bytes() + more)


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


TEARS: dict[str, Callable[[Path], None]] = {
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "empty manifest": lambda folder: (folder / MANIFEST).write_text(""),
    "half a manifest": lambda folder: (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:40]),
    "manifest of nothing": lambda folder: (folder / MANIFEST).write_text('{"files": {}}'),
    "manifest of another kind": lambda folder: (folder / MANIFEST).write_text('["files"]'),
    "manifest that is not text": lambda folder: (folder / MANIFEST).write_bytes(b"\xff\x00"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no optimizer": lambda folder: (folder / "optimizer.pt").unlink(),
    "no trainer state": lambda folder: (folder / "trainer_state.json").unlink(),
    "cut weights": lambda folder: os.truncate(folder / "model.safetensors", 10),
    "empty optimizer": lambda folder: os.truncate(folder / "optimizer.pt", 0),
    "one flipped bit": lambda folder: flip(folder / "model.safetensors"),
    "a byte too many": lambda folder: append(folder / "scheduler.pt", b"!"),
    "folder where a file was": lambda folder: ((folder / "rng_state.pth").unlink(), (folder / "rng_state.pth").mkdir()),
    "empty folder": empty,
    "file where the folder was": lambda folder: (shutil.rmtree(folder), folder.write_text("")),
}


@pytest.mark.parametrize("kind", TEARS)
def test_a_torn_checkpoint_is_set_aside_and_the_one_before_is_used(checkpoint, tmp_path, caplog, kind):
    before, torn = checkpoint(10), checkpoint(20)
    TEARS[kind](torn)
    with caplog.at_level(logging.WARNING):
        assert last_checkpoint(tmp_path) == before
    assert not torn.exists()
    assert (tmp_path / "torn" / "checkpoint-20").exists()
    assert "checkpoint-20 is incomplete" in caplog.text


def test_a_file_where_torn_checkpoints_go_is_named(checkpoint, tmp_path):
    empty(checkpoint(10))
    (tmp_path / "torn").write_text("")
    with pytest.raises(CheckpointError, match="torn: is a file, where checkpoint-10 is set aside"):
        last_checkpoint(tmp_path)


def test_the_newest_whole_checkpoint_is_used_whatever_lies_in_it_and_beside_it(checkpoint, tmp_path, caplog):
    for step in (9, 10, 100):
        newest = checkpoint(step)
    (newest / "notes.txt").write_text("mine")
    others = [tmp_path / name for name in ("checkpoint-200.bak", "checkpoint-best", "result")]
    for other in others:
        other.mkdir()
    assert is_whole(newest)
    assert last_checkpoint(tmp_path) == newest
    assert all(other.is_dir() for other in others)
    assert caplog.text == ""


def test_without_a_whole_checkpoint_there_is_none(checkpoint, tmp_path):
    assert last_checkpoint(tmp_path) is None
    assert last_checkpoint(tmp_path / "missing") is None
    for _ in range(2):  # a checkpoint can be torn twice
        TEARS["no optimizer"](checkpoint(10))
        assert last_checkpoint(tmp_path) is None


def test_a_checkpoint_whose_best_model_was_damaged_is_not_used(checkpoint, tmp_path):
    """A run resumed from it would end with a model that is not the best one."""
    first, best = checkpoint(10), checkpoint(20, best=20)
    checkpoint(30, best=20)
    TEARS["one flipped bit"](best)
    assert last_checkpoint(tmp_path) == first
    assert checkpoints_of(tmp_path) == [first]


def test_old_checkpoints_go_but_not_the_newest_two_nor_the_best(checkpoint, tmp_path):
    for step in (5, 10, 20, 100):
        checkpoint(step)
    drop_old_checkpoints(tmp_path, 2, str(tmp_path / "checkpoint-10"))
    assert [path.name for path in checkpoints_of(tmp_path)] == ["checkpoint-10", "checkpoint-20", "checkpoint-100"]
    drop_old_checkpoints(tmp_path, 2, None)
    assert [path.name for path in checkpoints_of(tmp_path)] == ["checkpoint-20", "checkpoint-100"]


def test_a_full_disk_is_found_before_anything_is_written(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    message = rf"checkpoint-5: .*{free * 10:,} bytes"
    with pytest.raises(CheckpointError, match=message), disk_space(tmp_path / "checkpoint-5", free * 10):
        pytest.fail("nothing may be written")


def test_a_disk_that_fills_up_is_named_and_the_half_checkpoint_is_removed(tmp_path):
    target = tmp_path / "checkpoint-5"
    target.mkdir()
    (target / "model.safetensors").write_text("half")
    message = r"checkpoint-5: .*1,000 bytes"
    with pytest.raises(CheckpointError, match=message), disk_space(target, 1000):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not target.exists()
    with pytest.raises(RuntimeError, match="something else"), disk_space(tmp_path / "checkpoint-5", 1):
        raise RuntimeError("something else")


def test_a_full_disk_is_found_even_if_torch_and_safetensors_do_not_name_it(tmp_path, monkeypatch):
    free = iter((10**9, 0))
    monkeypatch.setattr(resume.shutil, "disk_usage", lambda _: type("Usage", (), {"free": next(free)}))
    message = r"1,000 bytes .* 0 are free"
    with pytest.raises(CheckpointError, match=message), disk_space(tmp_path / "checkpoint-5", 1000):
        raise RuntimeError("PytorchStreamWriter failed writing file")


def test_a_locked_folder_is_refused_with_the_process_that_holds_it(tmp_path):
    code = "import sys; from pathlib import Path; from bibert.training.resume import locked\n"
    code += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        message = rf"{tmp_path}: another run \(process {holder.pid}\)"
        with pytest.raises(CheckpointError, match=message), locked(tmp_path):
            pytest.fail("the folder is not ours")
        holder.kill()  # a killed process holds nothing
        holder.wait()
        with locked(tmp_path):
            assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_a_longer_run_goes_on_where_the_shorter_one_ended(tmp_path, start, data, teacher_recipe, monkeypatch):
    short, long = (replace(teacher_recipe, epochs=epochs) for epochs in (2, 4))
    finetune(start, data, tmp_path, short)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CheckpointError, match="epochs was 2"):
        finetune(start, data, tmp_path, long)
    monkeypatch.delenv("WORLD_SIZE")
    noted, stopped = provenance(tmp_path / "model"), Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr("bibert.training.teacher.TeacherTrainer.compute_loss", stopped)
        with pytest.raises(KeyboardInterrupt):
            finetune(start, data, tmp_path, long)
    assert provenance(tmp_path / "model") == noted  # the model of the shorter run is still there, with its notes
    metrics = finetune(start, data, tmp_path, long)
    notes = json.loads((tmp_path / "run.json").read_text())
    assert notes["continued"] == [{"recipe.epochs": 2}]
    assert "before" not in notes
    assert (notes["request"]["recipe"]["epochs"], notes["metrics"]) == (4, metrics)
    steps = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    trained = [line["step"] for line in steps if "loss" in line]
    assert trained == list(range(1, 17))  # 4 steps an epoch, none of them twice
    with pytest.raises(CheckpointError, match="epochs was 4"):
        finetune(start, data, tmp_path, short)


def test_a_preset_goes_on_with_more_epochs_and_at_the_intervals_of_the_longer_run(tmp_path, start, data):
    limits = {"min_steps": 1, "max_steps": 2, "evaluations": 2}
    recipe = Recipe(learning_rate=1e-3, epochs=1, batch_size=16, max_length=16, **limits)
    finetune(start, data, tmp_path, recipe)
    finetune(start, data, tmp_path, replace(recipe, epochs=3, min_steps=0, max_steps=0))
    steps = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if "eval_dev_accuracy" in line] == [1, 2, 2, 6, 12, 12]

"""Two processes on half a batch each: the same loss curve and the same model as one process on the whole batch.

The two are interrupted in the middle of the second of three epochs, or one is killed, and they resume from there.
"""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bibert.errors import RecipeError
from bibert.files import read_json_lines
from bibert.training.loop import TrainingData, training_arguments
from bibert.training.recipe import Recipe
from bibert.training.student import distill

SCRIPT = Path(__file__).with_name("torchrun_distill.py")
SCHEMES = ("bibert", "baseline")
RECIPE = Recipe(learning_rate=1e-3, epochs=3, batch_size=16, max_length=16, eval_every=4, log_every=1)
ROUNDS, SEED = (int(os.environ.get(f"BIBERT_{name}", number)) for name, number in (("ROUNDS", 1), ("SEED", 0)))


def torchrun(folder, **job):
    """Start the distillations of a job as two processes; its last process gets the signal `number` at a step."""
    (folder / "job.pickle").write_bytes(pickle.dumps({"recipe": RECIPE, **job}))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", SCRIPT, folder]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with (folder / "stderr.txt").open("w") as errors:
        return subprocess.Popen(command, env=environment, stderr=errors)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory, teacher, data):
    """The run folders of both schemes, trained under torchrun, with an interruption."""
    folder = tmp_path_factory.mktemp("two")
    process = torchrun(folder, schemes=SCHEMES, teacher=teacher, data=data, step=5, number=signal.SIGTERM)
    assert process.wait(200) == 0, (folder / "stderr.txt").read_text()[-3000:]
    return folder


@pytest.fixture(scope="module")
def one_process(tmp_path_factory, teacher, data):
    """The same in this process."""
    folder = tmp_path_factory.mktemp("one")
    for scheme in SCHEMES:
        distill(teacher, scheme, data, folder / scheme, RECIPE)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_loss_curve_is_that_of_one_process_and_written_once(one_process, two_processes, scheme):
    logs = [read_json_lines(folder / scheme / "log.jsonl") for folder in (one_process, two_processes)]
    curves = [[line for line in log if "loss" in line] for log in logs]
    assert [line["step"] for line in curves[0]] == [line["step"] for line in curves[1]] == list(range(1, 13))
    names = [name for name in curves[0][0] if name.startswith("loss")]
    assert len(names) > 3
    for name in names:
        one, two = ([line[name] for line in curve] for curve in curves)
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_model_is_that_of_one_process(one_process, two_processes, scheme):
    metrics = json.loads((two_processes / scheme / "run.json").read_text())["metrics"]
    assert set(metrics) == {"dev_accuracy", "dev_f1"}
    one, two = (load_file(folder / scheme / "model" / "model.safetensors") for folder in (one_process, two_processes))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_if_one_process_is_killed_the_other_ends_too_and_the_run_resumes(seed, teacher, data, one_process, tmp_path):
    job, step = {"schemes": ["bibert"], "teacher": teacher, "data": data}, random.Random(seed).randrange(1, 12)
    process = torchrun(tmp_path, **job, step=step, number=signal.SIGKILL)
    deadline = time.monotonic() + 200
    while not (tmp_path / "signalled").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert process.wait(60) == 1, "torchrun waits for both"
    assert not (tmp_path / "bibert" / "model").exists()
    assert torchrun(tmp_path, **job, number=None).wait(200) == 0, (tmp_path / "stderr.txt").read_text()[-3000:]
    one, two = (load_file(folder / "bibert" / "model" / "model.safetensors") for folder in (one_process, tmp_path))
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=0, atol=1e-4, err_msg=name)


DATA = TrainingData(train=range(10), dev={"dev": range(4)}, metrics=("accuracy",))


def test_a_batch_that_cannot_be_shared_is_refused_with_both_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.TrainingArguments.world_size", 3)
    with pytest.raises(RecipeError, match="batch_size is 16, not a multiple of the 3 processes"):
        training_arguments(RECIPE, DATA, tmp_path)
    assert training_arguments(replace(RECIPE, batch_size=18), DATA, tmp_path).per_device_train_batch_size == 6


def test_bfloat16_in_one_process_with_several_gpus_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.TrainingArguments.n_gpu", 2)
    with pytest.raises(RecipeError, match=r"precision is bfloat16.* 2 GPUs"):
        training_arguments(replace(RECIPE, precision="bfloat16"), DATA, tmp_path)
    assert training_arguments(RECIPE, DATA, tmp_path).per_device_train_batch_size == RECIPE.batch_size // 2

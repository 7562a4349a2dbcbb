"""Kill -9 at any moment: the run resumes and ends with the same weights.

Runs are processes of a fork server that has torch and the package loaded already, so that a restart costs little.
"""

import multiprocessing
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bibert.training.recipe import Recipe
from bibert.training.resume import MANIFEST, checkpoints_of, is_whole
from bibert.training.student import distill

RECIPE = Recipe(
    learning_rate=1e-3, epochs=14, batch_size=16, max_length=16, eval_every=3, log_every=1, dropout=0.1, patience=1000
)
SECONDS_PER_RUN = 60
ROUNDS, SEED = (int(os.environ.get(f"BIBERT_{name}", number)) for name, number in (("ROUNDS", 1), ("SEED", 0)))
by_seed = pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))


def distill_noting(errors, *arguments):
    """Distill, with standard error in a file: a fork server has that of the test that started it."""
    with Path(errors).open("w") as file:
        os.dup2(file.fileno(), 2)
    distill(*arguments)


@pytest.fixture(scope="module")
def start_run(teacher, data):
    """A function that starts a distillation in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bibert.training.student"])

    def start(scheme, run, recipe=RECIPE, errors=os.devnull):
        process = context.Process(target=distill_noting, args=(errors, teacher, scheme, data, run, recipe), daemon=True)
        process.start()
        return process

    return start


def finish(process):
    process.join(SECONDS_PER_RUN)
    assert process.exitcode == 0


def wait_for(moment, process):
    deadline = time.monotonic() + SECONDS_PER_RUN
    while not moment():
        assert process.is_alive(), "the run ended before its moment came"
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def lines_in(run):
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def torn_in(run):
    stages = (run / "stages").glob("*")
    return [path for stage in stages for path in checkpoints_of(stage) if not (path / MANIFEST).exists()]


def after(event, seconds):
    """Whether an event has happened, and so many seconds since."""
    ends = []

    def reached():
        if not ends and event():
            ends.append(time.monotonic() + seconds)
        return bool(ends) and time.monotonic() >= ends[0]

    return reached


# Moments to kill a run at: functions of its folder and of random numbers, which give whether the moment has come.


def while_starting(_run, rng):
    """Before the first step, most of the time."""
    return after(lambda: True, rng.uniform(0, 0.4))


def in_a_step(run, rng):
    """Some steps and a moment later."""
    lines = lines_in(run) + rng.randint(1, 4)  # the log is cut back first, to the checkpoint
    return after(lambda: lines_in(run) >= lines, rng.uniform(0, 0.03))


def in_a_save(run, rng):
    """While the files of a checkpoint are written, or just after the last of them."""
    before = set(torn_in(run))
    return after(lambda: bool(set(torn_in(run)) - before), rng.choice((0.0, 0.002, 0.01)))


def in_the_last_save(run, _rng):
    """While the trained model is written."""
    return (run / ".model.writing").exists


def between_stages(run, _rng):
    """While the result of another stage is written."""
    before = set(run.glob("stages/*/.result.writing"))
    return lambda: bool(set(run.glob("stages/*/.result.writing")) - before)


def kill_again_and_again(start, run, moments, rng):
    """Kill the run at each of the moments; gives the number of checkpoints that were torn."""
    torn = 0
    for moment in moments:
        reached = moment(run, rng)
        process = start()
        wait_for(reached, process)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        torn += sum(not is_whole(path) for stage in (run / "stages").glob("*") for path in checkpoints_of(stage))
    return torn


@pytest.mark.slow
@by_seed
def test_a_run_killed_ten_times_ends_with_the_same_weights(seed, start_run, tmp_path, weights_of):
    rng = random.Random(seed)
    moments = [in_a_save] * 5 + [in_a_step] * 3 + [while_starting] * 2
    rng.shuffle(moments)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start_run("bibert", whole))
    torn = kill_again_and_again(lambda: start_run("bibert", killed), killed, [*moments, in_the_last_save], rng)
    finish(start_run("bibert", killed))
    assert torn >= 1, "no kill came while a checkpoint was written"
    assert weights_of(killed / "model") == weights_of(whole / "model")
    assert (killed / "log.jsonl").read_text().count('"loss"') == (whole / "log.jsonl").read_text().count('"loss"')


@pytest.mark.slow
def test_a_run_of_several_stages_killed_between_them_ends_with_the_same_weights(start_run, tmp_path, weights_of):
    recipe = Recipe(learning_rate=1e-3, epochs=1, batch_size=16, max_length=16, eval_every=2, dropout=0.1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start_run("binarybert_1-1-2", whole, recipe))
    moments = (between_stages, in_a_save, between_stages, in_the_last_save)
    kill_again_and_again(lambda: start_run("binarybert_1-1-2", killed, recipe), killed, moments, random.Random(1))
    finish(start_run("binarybert_1-1-2", killed, recipe))
    assert weights_of(killed / "model") == weights_of(whole / "model")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@by_seed
def test_a_process_that_gets_a_signal_exits_with_its_code(seed, start_run, tmp_path, number, code):
    process = start_run("bibert", tmp_path)
    wait_for(in_a_step(tmp_path, random.Random(seed + 2)), process)
    os.kill(process.pid, number)
    process.join(SECONDS_PER_RUN)
    assert process.exitcode == code
    assert is_whole(checkpoints_of(tmp_path / "stages" / "dmd")[-1])


@by_seed
def test_a_run_on_a_disk_that_fills_up_names_it_and_resumes_to_the_same_weights(seed, start_run, tmp_path, weights_of):
    disk, errors = tmp_path / "disk", tmp_path / "stderr.txt"
    disk.mkdir()
    size = random.Random(seed).randrange(100_000, 2_000_000)  # a checkpoint has 250 kB
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root, to make a small disk")
    try:
        finish(start_run("bibert", tmp_path / "whole"))
        process = start_run("bibert", disk / "run", errors=errors)
        process.join(SECONDS_PER_RUN)
        assert process.exitcode == 1
        assert str(disk) in errors.read_text().splitlines()[-1]
        subprocess.run(["mount", "-o", "remount,size=100M", disk], check=True)
        finish(start_run("bibert", disk / "run"))
        assert weights_of(disk / "run" / "model") == weights_of(tmp_path / "whole" / "model")
    finally:
        subprocess.run(["umount", disk], check=True)

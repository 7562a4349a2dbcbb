"""Kill -9 at any moment: the run resumes and ends with the same weights.

Runs are processes of a fork server that has torch and the package loaded already, so that a restart costs little.
"""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from bibert.data.examples import TextData
from bibert.training.recipe import Recipe
from bibert.training.resume import MANIFEST, checkpoints_of, is_whole
from bibert.training.student import distill

RECIPE = Recipe(
    learning_rate=1e-3, epochs=14, batch_size=16, max_length=16, eval_every=3, log_every=1, dropout=0.1, patience=1000
)
SECONDS_PER_RUN = 60

Start = Callable[..., BaseProcess]
Moment = Callable[[Path], Callable[[], bool]]


@pytest.fixture(scope="module")
def start_run(teacher: Path, data: TextData) -> Start:
    """A function that starts a distillation in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bibert.training.student"])

    def start(scheme: str, run: Path, recipe: Recipe = RECIPE) -> BaseProcess:
        process = context.Process(target=distill, args=(teacher, scheme, data, run, recipe), daemon=True)
        process.start()
        return process

    return start


def finish(process: BaseProcess) -> None:
    process.join(SECONDS_PER_RUN)
    assert process.exitcode == 0


def wait_for(moment: Callable[[], bool], process: BaseProcess) -> None:
    deadline = time.monotonic() + SECONDS_PER_RUN
    while not moment():
        assert process.is_alive(), "the run ended before its moment came"
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def lines_in(run: Path) -> int:
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def torn_in(run: Path) -> list[Path]:
    stages = (run / "stages").glob("*")
    return [path for stage in stages for path in checkpoints_of(stage) if not (path / MANIFEST).exists()]


def after(event: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Whether an event has happened, and so many seconds since."""
    ends: list[float] = []

    def reached() -> bool:
        if not ends and event():
            ends.append(time.monotonic() + seconds)
        return bool(ends) and time.monotonic() >= ends[0]

    return reached


def while_starting(rng: random.Random) -> Moment:
    """Before the first step, most of the time."""

    return lambda run: after(lambda: True, rng.uniform(0, 0.4))  # noqa: ARG005


def in_a_step(rng: random.Random) -> Moment:
    """Some steps and a moment later."""

    def moment(run: Path) -> Callable[[], bool]:
        lines = lines_in(run) + rng.randint(1, 4)  # the log is cut back first, to the checkpoint
        return after(lambda: lines_in(run) >= lines, rng.uniform(0, 0.03))

    return moment


def in_a_save(rng: random.Random) -> Moment:
    """While the files of a checkpoint are written, or just after the last of them."""

    def moment(run: Path) -> Callable[[], bool]:
        before = set(torn_in(run))
        return after(lambda: bool(set(torn_in(run)) - before), rng.choice((0.0, 0.002, 0.01)))

    return moment


def in_the_last_save(rng: random.Random) -> Moment:  # noqa: ARG001
    """While the trained model is written."""
    return lambda run: lambda: (run / ".model.writing").exists()


def between_stages(rng: random.Random) -> Moment:  # noqa: ARG001
    """While the result of another stage is written."""

    def moment(run: Path) -> Callable[[], bool]:
        before = set(run.glob("stages/*/.result.writing"))
        return lambda: bool(set(run.glob("stages/*/.result.writing")) - before)

    return moment


def kill_again_and_again(start: Callable[[], BaseProcess], run: Path, moments: list[Moment]) -> int:
    """Kill the run at each of the moments; gives the number of checkpoints that were torn."""
    torn = 0
    for moment in moments:
        reached = moment(run)
        process = start()
        wait_for(reached, process)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        torn += sum(not is_whole(path) for stage in (run / "stages").glob("*") for path in checkpoints_of(stage))
    return torn


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_same_weights(
    start_run: Start, tmp_path: Path, weights_of: Callable[[Path], bytes]
):
    rng = random.Random(0)
    kinds = [in_a_save] * 5 + [in_a_step] * 3 + [while_starting] * 2
    rng.shuffle(kinds)
    moments = [kind(rng) for kind in (*kinds, in_the_last_save)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start_run("bibert", whole))
    torn = kill_again_and_again(lambda: start_run("bibert", killed), killed, moments)
    finish(start_run("bibert", killed))
    assert torn >= 1, "no kill came while a checkpoint was written"
    assert weights_of(killed / "model") == weights_of(whole / "model")
    assert (killed / "log.jsonl").read_text().count('"loss"') == (whole / "log.jsonl").read_text().count('"loss"')


@pytest.mark.slow
def test_a_run_of_several_stages_killed_between_them_ends_with_the_same_weights(
    start_run: Start, tmp_path: Path, weights_of: Callable[[Path], bytes]
):
    recipe = Recipe(learning_rate=1e-3, epochs=1, batch_size=16, max_length=16, eval_every=2, dropout=0.1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start_run("binarybert_1-1-2", whole, recipe))
    moments = [kind(random.Random(1)) for kind in (between_stages, in_a_save, between_stages, in_the_last_save)]
    kill_again_and_again(lambda: start_run("binarybert_1-1-2", killed, recipe), killed, moments)
    finish(start_run("binarybert_1-1-2", killed, recipe))
    assert weights_of(killed / "model") == weights_of(whole / "model")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_process_that_gets_a_signal_exits_with_its_code(start_run: Start, tmp_path: Path, number: int, code: int):
    process = start_run("bibert", tmp_path)
    wait_for(in_a_step(random.Random(2))(tmp_path), process)
    os.kill(process.pid, number)
    process.join(SECONDS_PER_RUN)
    assert process.exitcode == code
    assert is_whole(checkpoints_of(tmp_path / "stages" / "dmd")[-1])

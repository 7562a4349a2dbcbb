"""SIGTERM and Ctrl-C: a checkpoint, the code of the signal, and the same model in the end."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainerCallback

from bibert.data.examples import TextData
from bibert.errors import BibertError
from bibert.training.callbacks import Interrupted, Interruption
from bibert.training.recipe import Recipe
from bibert.training.resume import checkpoints_of, is_whole
from bibert.training.student import distill

RECIPE = Recipe(learning_rate=1e-3, epochs=3, batch_size=16, max_length=16, eval_every=4, log_every=1, dropout=0.1)


class SendsASignal(TrainerCallback):
    """Sends a signal to this process while a step is running."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.step = number, step

    def on_step_begin(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == self.step:
            os.kill(os.getpid(), self.number)


class SendsItInTheLastEvaluation(TrainerCallback):
    def on_evaluate(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == state.max_steps:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, teacher: Path, data: TextData, weights_of) -> bytes:
    """The weights of a run that nobody interrupts."""
    run = tmp_path_factory.mktemp("uninterrupted")
    distill(teacher, "bibert", data, run, RECIPE)
    return weights_of(run / "model")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("step", [0, 5, 7, 11])
def test_a_signal_ends_the_run_with_a_checkpoint_and_it_resumes_to_the_same_weights(
    teacher: Path, data: TextData, tmp_path: Path, weights_of, expected: bytes, number: int, code: int, step: int
):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=rf"stopped by {signal.Signals(number).name} after step {step + 1}") as end:
        distill(teacher, "bibert", data, tmp_path, RECIPE, callbacks=[SendsASignal(number, step)])
    assert end.value.exit_code == end.value.code == code
    newest = checkpoints_of(tmp_path / "stages" / "dmd")[-1]
    assert newest.name == f"checkpoint-{step + 1}"
    assert is_whole(newest)
    assert signal.getsignal(number) is before
    distill(teacher, "bibert", data, tmp_path, RECIPE)
    assert weights_of(tmp_path / "model") == expected


def test_a_signal_after_the_last_step_is_not_lost(
    teacher: Path, data: TextData, tmp_path: Path, weights_of: Callable, expected: bytes
):
    with pytest.raises(Interrupted):
        distill(teacher, "bibert", data, tmp_path, RECIPE, callbacks=[SendsItInTheLastEvaluation()])
    distill(teacher, "bibert", data, tmp_path, RECIPE)
    assert weights_of(tmp_path / "model") == expected


def test_an_interruption_is_an_error_of_ours_and_leaves_a_script_with_its_code():
    error = Interrupted(signal.SIGTERM, "run", 3)
    assert isinstance(error, BibertError)
    assert isinstance(error, SystemExit)
    assert str(error).startswith("run: stopped by SIGTERM after step 3")


def test_the_second_signal_does_what_it_always_does():
    interruption = Interruption()
    with interruption.installed():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert interruption.noted == signal.SIGINT


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    interruption = Interruption()
    try:
        with interruption.installed():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert interruption.noted == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_signals_are_left_alone():
    found = []

    def listen() -> None:
        with Interruption().installed():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [before]


def test_without_a_signal_nothing_is_saved_and_nobody_leaves():
    interruption, control = Interruption(), SimpleNamespace(should_save=False)
    args, state = SimpleNamespace(world_size=1, output_dir="run"), SimpleNamespace(global_step=1)
    interruption.on_step_end(args, state, control)
    interruption.on_save(args, state, control)
    assert control.should_save is False

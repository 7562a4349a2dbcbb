"""Between the steps of a training: log lines that survive a kill, the running mean of the weights, signals."""

import json
import os
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from bibert.data.metrics import score
from bibert.errors import BibertError, NumericError
from bibert.files import read_json_lines
from bibert.nn.checkpoint import load_classifier
from bibert.training.callbacks import Interrupted, Interruption, JsonLog
from bibert.training.evaluate import predict_logits
from bibert.training.recipe import Recipe
from bibert.training.resume import checkpoints_of, is_whole
from bibert.training.student import distill

AVERAGED = Recipe(learning_rate=1e-3, batch_size=16, max_length=16, max_steps=6, eval_every=2, average=0.4)
INTERRUPTED = Recipe(learning_rate=1e-3, epochs=3, batch_size=16, max_length=16, eval_every=4, log_every=1, dropout=0.1)


@pytest.fixture
def log(tmp_path):
    """Ten lines of one stage, after one line of the stage before."""
    for stage, steps in (("first", [99]), ("second", range(1, 11))):
        log = JsonLog(tmp_path / "log.jsonl", stage)
        for step in steps:
            state = SimpleNamespace(is_world_process_zero=True, global_step=step)
            log.on_log(None, state, None, logs={"loss": float(step)})
    return log


def begin(log, step):
    """Begin a training at a step; gives the lines that are left."""
    log.on_train_begin(None, SimpleNamespace(is_world_process_zero=True, global_step=step), None)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    return [(line["stage"], line["step"]) for line in lines]


TORN = [
    b"",
    b'{"stage": "second", "st',
    b'{"stage": "second", "step": 3}',
    b"\0\0\0\0\n",
    b"\xff\xfe\n",
    b"{}\n",
    b"3\n",
]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("last", [4, 10])
def test_lines_after_the_checkpoint_and_a_torn_last_line_are_dropped(log, torn, last):
    with log.path.open("ab") as file:
        file.write(torn)
    assert begin(log, last) == [("first", 99), *(("second", step) for step in range(1, last + 1))]


class Steps(TrainerCallback):
    """Keeps the weights before the first step and after every step."""

    def __init__(self):
        self.weights = []

    def keep(self, args, state, control, model=None, **kwargs):  # noqa: ARG002
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})

    on_train_begin = on_step_end = keep


@pytest.mark.parametrize("scheme", ["bibert_plus", "q2bert"])
def test_every_checkpoint_has_the_mean_and_the_weights(teacher, data, tmp_path, scheme):
    steps = Steps()
    distill(teacher, scheme, data, tmp_path, AVERAGED, callbacks=[steps])
    mean, *others = steps.weights
    for decay, weights in zip((2 / 11, 3 / 12, 4 / 13, 5 / 14, 0.4, 0.4), others, strict=True):
        mean = {name: torch.lerp(mean[name], weights[name], 1 - decay) for name in mean}
    (checkpoint,) = tmp_path.glob("stages/*/checkpoint-6")
    saved, latent = load_file(checkpoint / "model.safetensors"), load_file(checkpoint / "latent.safetensors")
    for name in mean:
        torch.testing.assert_close(saved[name], mean[name])
        assert torch.equal(latent[name], steps.weights[-1][name])


def test_training_continues_with_the_weights_and_not_with_their_mean(teacher, data, tmp_path):
    averaged, plain = Steps(), Steps()
    distill(teacher, "bibert", data, tmp_path / "averaged", AVERAGED, callbacks=[averaged])
    distill(teacher, "bibert", data, tmp_path / "plain", replace(AVERAGED, average=0.0), callbacks=[plain])
    for mine, theirs in zip(averaged.weights, plain.weights, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_mean_is_evaluated_and_the_best_one_saved(teacher, data, tmp_path):
    metrics = distill(teacher, "bibert", data, tmp_path, AVERAGED)
    student, dev = load_classifier(tmp_path), data.dev["dev"]
    scored = score(predict_logits(student, dev, AVERAGED.max_length), dev.labels, data.metrics)
    assert {f"dev_{name}": value for name, value in scored.items()} == metrics
    means = [load_file(path) for path in tmp_path.glob("stages/*/checkpoint-*/model.safetensors")]
    model = load_file(tmp_path / "model" / "model.safetensors")
    assert any(all(torch.equal(mean[name], model[name]) for name in model) for mean in means)
    (last,), losses = tmp_path.glob("stages/*/checkpoint-6"), {}
    for name in ("model", "latent"):
        student.model.load_state_dict(load_file(last / f"{name}.safetensors"))
        logits = torch.from_numpy(predict_logits(student, dev, AVERAGED.max_length))
        losses[name] = torch.nn.functional.cross_entropy(logits, torch.tensor(dev.labels, dtype=torch.long)).item()
    events = [event for event in read_json_lines(tmp_path / "log.jsonl") if "eval_dev_loss" in event]
    found = next(event["eval_dev_loss"] for event in events if event["step"] == 6)
    assert found == pytest.approx(losses["model"], rel=1e-5)
    assert found != pytest.approx(losses["latent"], rel=1e-3)


def test_a_mean_survives_a_kill(teacher, data, tmp_path, change_at):
    with pytest.raises(NumericError):
        distill(teacher, "bibert_plus", data, tmp_path / "killed", AVERAGED, callbacks=[change_at(5)])
    distill(teacher, "bibert_plus", data, tmp_path / "killed", AVERAGED)
    distill(teacher, "bibert_plus", data, tmp_path / "whole", AVERAGED)
    for place in ("model/model.safetensors", "stages/dmd/checkpoint-6/latent.safetensors"):
        assert (tmp_path / "killed" / place).read_bytes() == (tmp_path / "whole" / place).read_bytes()


class SendsASignal(TrainerCallback):
    """Sends a signal to this process during a step, or in the evaluation after it."""

    def __init__(self, number, step, in_evaluation=False):
        self.number, self.step, self.in_evaluation = number, step, in_evaluation

    def on_step_begin(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == self.step and not self.in_evaluation:
            os.kill(os.getpid(), self.number)

    def on_evaluate(self, args, state, control, **kwargs):  # noqa: ARG002
        if state.global_step == self.step and self.in_evaluation:
            os.kill(os.getpid(), self.number)


@pytest.fixture(scope="module")
def expected(tmp_path_factory, teacher, data, weights_of):
    """The weights of a run that nobody interrupts."""
    run = tmp_path_factory.mktemp("uninterrupted")
    distill(teacher, "bibert", data, run, INTERRUPTED)
    return weights_of(run / "model")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("step", [0, 5, 7, 11])
def test_a_signal_ends_the_run_with_a_checkpoint_and_it_resumes_to_the_same_weights(
    teacher, data, tmp_path, weights_of, expected, number, code, step
):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=rf"{signal.Signals(number).name} after step {step + 1}") as end:
        distill(teacher, "bibert", data, tmp_path, INTERRUPTED, callbacks=[SendsASignal(number, step)])
    assert isinstance(end.value, BibertError)
    assert end.value.exit_code == end.value.code == code
    newest = checkpoints_of(tmp_path / "stages" / "dmd")[-1]
    assert newest.name == f"checkpoint-{step + 1}"
    assert is_whole(newest)
    assert signal.getsignal(number) is before
    distill(teacher, "bibert", data, tmp_path, INTERRUPTED)
    assert weights_of(tmp_path / "model") == expected


def test_a_signal_after_the_last_step_is_not_lost(teacher, data, tmp_path, weights_of, expected):
    with pytest.raises(Interrupted):
        distill(teacher, "bibert", data, tmp_path, INTERRUPTED, callbacks=[SendsASignal(signal.SIGTERM, 12, True)])
    distill(teacher, "bibert", data, tmp_path, INTERRUPTED)
    assert weights_of(tmp_path / "model") == expected


def test_the_second_signal_is_not_caught():
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

    def listen():
        with Interruption().installed():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [before]

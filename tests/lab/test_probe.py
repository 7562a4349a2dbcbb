"""Looks into a student while it trains: they are there at the right steps, and leave no trace in the training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bibert.data.encoding import EncodedSplit
from bibert.data.examples import TextData
from bibert.errors import BibertError
from bibert.files import read_json_lines
from bibert.lab.probe import probe_batch, probe_every
from bibert.training import student
from bibert.training.callbacks import JsonLog
from bibert.training.recipe import Recipe
from bibert.training.student import distill

RECIPE = Recipe(learning_rate=5e-3, epochs=1, batch_size=8, max_length=16, eval_every=4, log_every=2, max_steps=8)


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory, teacher: Path, data: TextData) -> Callable[..., Path]:
    """A function that distills a scheme for eight steps."""

    def run(scheme: str, every: int = 0) -> Path:
        folder = tmp_path_factory.mktemp("run")
        distill(teacher, scheme, data, folder, RECIPE, probe=probe_every(every) if every else None)
        return folder

    return run


def test_a_probe_does_not_change_the_training(run_of, weights_of):
    plain, probed = run_of("bibert"), run_of("bibert", 1)
    assert weights_of(plain / "model") == weights_of(probed / "model")
    assert not (plain / "probe.jsonl").exists()


def test_there_is_a_line_for_the_start_and_for_every_look(run_of):
    events = read_json_lines(run_of("bibert", 2) / "probe.jsonl")
    assert [event["step"] for event in events] == [0, 2, 4, 6, 8]
    assert {event["stage"] for event in events} == {"dmd"}
    assert "direction" not in events[0]
    assert all(0.5 < np.mean(event["entropy"]["attention"]) <= 1 for event in events)
    for event in events[1:]:
        assert set(event["direction"]) == {"scores", "query", "key", "value"}
        table = event["direction"]["query"]["matching"]
        assert len(table) == len(table[0]) == 2
    moved = [sum(map(sum, event["direction"]["query"]["matching_margin"])) for event in events[1:]]
    assert all(margin > 0 for margin in moved)


@pytest.mark.parametrize("scheme", ["ternarybert_2-2-8", "bibert(kept=mha)"])
def test_a_student_with_several_bits_is_looked_at_for_directions_only(run_of, scheme):
    events = read_json_lines(run_of(scheme, 4) / "probe.jsonl")
    assert all("entropy" not in event for event in events)
    assert "direction" in events[-1]


def test_a_run_that_goes_on_has_every_look_once(tmp_path, teacher, data, monkeypatch, weights_of, run_of):
    def fail(_log: JsonLog, step: int, _facts: dict) -> None:
        if step == 6:
            raise BibertError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(JsonLog, "append", fail)
        with pytest.raises(BibertError, match="stopped"):
            distill(teacher, "bibert", data, tmp_path, RECIPE, probe=probe_every(3))
    assert [event["step"] for event in read_json_lines(tmp_path / "probe.jsonl")] == [0, 3, 6]
    distill(teacher, "bibert", data, tmp_path, RECIPE, probe=probe_every(3))
    events = read_json_lines(tmp_path / "probe.jsonl")
    assert [event["step"] for event in events] == [0, 3, 6]  # it goes on from the checkpoint at 4
    assert ["direction" in event for event in events] == [False, True, False]  # from 4 to 6 is not a whole interval
    assert weights_of(tmp_path / "model") == weights_of(run_of("bibert") / "model")


def test_a_run_killed_at_its_end_gets_no_look_at_another_model(tmp_path, teacher, data, monkeypatch):
    def fail(*_: object) -> None:
        raise BibertError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(student, "finish", fail)
        with pytest.raises(BibertError, match="stopped"):
            distill(teacher, "bibert", data, tmp_path, RECIPE, probe=probe_every(5))
    before = (tmp_path / "probe.jsonl").read_text()
    distill(teacher, "bibert", data, tmp_path, RECIPE, probe=probe_every(5))
    assert (tmp_path / "probe.jsonl").read_text() == before


def test_the_probe_batch_has_texts_from_all_over_and_a_moderate_length():
    lengths = np.full(100, 80)
    ids = np.repeat(np.arange(100, dtype=np.int32), 80)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    split = EncodedSplit(ids, np.zeros_like(ids, dtype=np.int8), offsets, np.zeros(100, np.int64))
    batch = probe_batch(split, 0)
    assert batch["input_ids"].shape == (32, 64)
    assert batch["input_ids"][0, 0] == 0
    assert batch["input_ids"][-1, 0] == 99
    assert "labels" not in batch

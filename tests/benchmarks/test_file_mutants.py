"""Mutants of packed files: none crashes, hangs or exhausts the process, and the survey would notice one that does."""

import os
import signal
import sys
import time

import file_mutants
import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork and limits of resources"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
MUTANTS = 400


def test_every_mutant_is_refused_or_answers_every_text(tmp_path):
    mutants, path = file_mutants.Mutants(), tmp_path / "mutant.bibert"

    def run(seed):
        path.write_bytes(mutants.make(seed))
        return file_mutants.judge(path, seed)

    found = file_mutants.survey(run, range(MUTANTS), megabytes=8192)  # pytest and torch take more than a child needs
    assert (found["raised"], found["aborted"], found["hung"]) == ({}, [], [])
    assert found["refused"] + found["accepted"] == MUTANTS
    assert found["accepted"] > 5


def test_a_child_that_dies_names_its_seed_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(file_mutants, "HANG", 0.05)

    def run(seed):
        if seed == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 15:
            start = time.process_time()
            while time.process_time() < start + 0.1:
                pass
        return "EngineError: no" if seed == 14 else "refused"

    found = file_mutants.survey(run, range(10, 20), megabytes=8192)
    assert found == {
        "mutants": 10,
        "refused": 8,
        "accepted": 0,
        "raised": {14: "EngineError: no"},
        "aborted": [13],
        "hung": [15],
    }


def test_a_seed_always_makes_the_same_mutant():
    assert file_mutants.Mutants().make(7) == file_mutants.Mutants().make(7) != file_mutants.Mutants().make(8)

"""Turns and statistics, on given times and a clock that only engines move."""

from statistics import median

import pytest

from bibert.lab.rivals import benchmark
from bibert.lab.rivals.benchmark import QUIET, Ratio, summarize, take_turns


class Clock:
    """Time that passes only when an engine is called, and `share` of it on a CPU."""

    def __init__(self):
        self.now = 0.0
        self.share = 1.0

    def engine(self, *seconds):
        """An engine that takes the next of `seconds` at every call."""
        left = iter(seconds)

        def call(_item):
            self.now += next(left)

        return call


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(benchmark.time, "process_time", lambda: clock.share * clock.now)
    return clock


def test_engines_take_turns_on_the_input_of_a_round_and_the_first_one_warms_up():
    turns = []
    calls = {name: lambda item, name=name: turns.append((name, item)) for name in ("ours", "theirs")}
    found = take_turns(calls, iter(["a", "b"]))
    order = [("ours", "a"), ("ours", "a"), ("theirs", "a"), ("theirs", "a")]
    assert turns == [*order, *order, *((name, "b") for name, _ in order)]
    assert [len(seconds) for seconds in found.seconds.values()] == [2, 2]


def test_neither_the_warm_up_nor_the_first_call_of_a_turn_counts(clock):
    calls = {"ours": clock.engine(9, 9, 8, 1, 8, 2), "theirs": clock.engine(9, 9, 8, 3, 8, 4)}
    assert take_turns(calls, range(2)).seconds == {"ours": [1.0, 2.0], "theirs": [3.0, 4.0]}


def test_a_busy_machine_shows_in_the_share_of_a_cpu(clock):
    clock.share = 0.25
    found = take_turns({"ours": clock.engine(*[1.0] * 6), "theirs": clock.engine(*[2.0] * 6)}, range(2))
    assert found.cpu_share == pytest.approx(0.25)
    assert found.cpu_share < QUIET


@pytest.mark.parametrize(
    ("ours", "theirs", "ratios"),
    [
        ([1.0, 2.0, 3.0], [6.0, 4.0, 3.0], (1.5, 2.0, 4.0)),  # the median of pairs, not the ratio of medians
        ([0.001, 0.001, 0.005], [0.006, 0.006, 0.030], (6, 6, 6)),  # a slow moment hits a whole round and cancels
        ([1.0], [2.0], (2.0, 2.0, 2.0)),  # one round is enough
    ],
)
def test_the_ratio_is_the_median_of_the_rounds(ours, theirs, ratios):
    found = summarize({"ours": ours, "theirs": theirs}, "ours")
    ratio = found["theirs"].ratio
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx(ratios)
    assert found["theirs"].best_ms == pytest.approx(1000 * min(theirs))
    assert found["theirs"].median_ms == pytest.approx(1000 * median(theirs))
    assert found["ours"].ratio == Ratio(1.0, 1.0, 1.0)

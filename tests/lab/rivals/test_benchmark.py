"""The comparison with fake rivals: who is run, how it is timed, who is listed with a reason, what the report holds."""

import json
import shutil
from statistics import median

import numpy as np
import pytest

from bibert.errors import BibertError, ModelFileError
from bibert.lab.rivals import benchmark
from bibert.lab.rivals.alone import ChildError
from bibert.lab.rivals.benchmark import QUIET, Plan, Ratio, compare, summarize, take_turns
from bibert.lab.rivals.engines import OURS, Rival, Shape

SHAPES = (Shape(1, 4), Shape(2, 8))


class FakeChildren:
    """Stands for the child processes: writes files of a known size and says what memory they took."""

    def __init__(self):
        self.broken, self.measured = set(), []

    def build(self, name, _config, folder):
        if name in self.broken:
            raise ChildError("RuntimeError: out of luck")
        (folder / f"{name}.xml").write_bytes(b"x" * 10)
        (folder / f"{name}.bin").write_bytes(b"x" * 990)
        return folder / f"{name}.xml"

    def measure(self, name, path, threads, shape, vocabulary):
        assert path.is_file()
        self.measured.append((name, threads, shape, vocabulary))
        return 50_000_000


@pytest.fixture
def children(monkeypatch):
    children = FakeChildren()
    monkeypatch.setattr(benchmark, "build_alone", children.build)
    monkeypatch.setattr(benchmark, "peak_memory_alone", children.measure)
    return children


def fake_rival(name, packages=(), seen=None):
    def load(path, threads):
        assert path.is_file()

        def run(ids, mask):
            if seen is not None:
                seen.append((threads, ids.shape, int(mask.sum())))
            return np.zeros((len(ids), 3), dtype=np.float32)

        return run

    return Rival(name, packages, ".file", write=None, load=load)


@pytest.mark.usefixtures("children")
def test_every_engine_has_its_size_memory_and_times_at_every_shape(tiny, tiny_file):
    report = compare(tiny_file, Plan((fake_rival("a"), fake_rival("b")), SHAPES, rounds=3))
    assert [entry.name for entry in report.entries] == [OURS, "a", "b"]
    for entry in report.entries:
        assert set(entry.timings) == set(SHAPES)
        assert entry.note == ""
        assert entry.peak_bytes == 50_000_000
    assert [entry.file_bytes for entry in report.entries] == [tiny_file.stat().st_size, 1000, 1000]
    assert report.config == tiny
    assert report.entries[0].timings[SHAPES[0]].ratio.median == 1.0


@pytest.mark.usefixtures("children")
def test_other_packed_files_take_their_turns_beside_ours(tiny_file, tmp_path):
    file = shutil.copy(tiny_file, tmp_path / "more.bibert")
    report = compare(tiny_file, Plan((fake_rival("a"),), SHAPES, rounds=3), {"another": file})
    assert [entry.name for entry in report.entries] == [OURS, "another", "a"]
    assert report.entries[1].file_bytes == file.stat().st_size
    assert set(report.entries[1].timings) == set(SHAPES)


def test_a_rival_that_is_missing_or_fails_is_listed_with_the_reason_and_the_others_continue(children, tiny_file):
    children.broken = {"b"}
    missing = fake_rival("c", packages=("numpy", "no_such_engine", "no_such_tool"))
    report = compare(tiny_file, Plan((missing, fake_rival("b"), fake_rival("a")), SHAPES, rounds=1))
    _, absent, broken, fine = report.entries
    assert absent.note == "not installed: pip install no_such_engine no_such_tool"
    assert broken.note == "failed: RuntimeError: out of luck"
    assert (absent.timings, broken.timings, broken.file_bytes) == ({}, {}, None)
    assert set(fine.timings) == set(SHAPES)


def test_rivals_get_the_threads_the_shapes_and_no_padding_and_memory_that_of_the_largest(children, tiny_file):
    seen = []
    compare(tiny_file, Plan((fake_rival("a", seen=seen),), (Shape(2, 8), Shape(1, 9)), rounds=2, threads=3))
    assert set(seen) == {(3, (2, 8), 16), (3, (1, 9), 9)}
    assert len(seen) == 2 * 2 * (1 + 2)  # two shapes, two calls a turn, a round to warm up and two that count
    assert children.measured == [(OURS, 3, Shape(2, 8), 50), ("a", 3, Shape(2, 8), 50)]


def test_a_shape_longer_than_the_model_is_refused_before_anything_is_built(children, tiny_file):
    with pytest.raises(BibertError, match=r"1x25: 25 tokens, .* 24"):
        compare(tiny_file, Plan((fake_rival("a"),), (Shape(1, 4), Shape(1, 25)), rounds=1))
    assert children.measured == []


@pytest.mark.usefixtures("children")
def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "empty.bibert").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"empty\.bibert"):
        compare(tmp_path / "empty.bibert", Plan((), SHAPES, rounds=1))


@pytest.mark.usefixtures("children")
def test_the_report_is_plain_values_with_machine_versions_and_threads(tiny_file):
    missing = fake_rival("c", packages=("no_such_engine",))
    report = compare(tiny_file, Plan((fake_rival("a", packages=("rich",)), missing), SHAPES, rounds=2, threads=2))
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["architecture"]["hidden"] == 32
    assert found["machine"]["threads"] == 2
    assert found["machine"]["isa"] == report.isa
    assert {"numpy", "rich", "bibert"} == set(found["machine"]["versions"])
    assert found["shapes"] == list(found["cpu_share"]) == ["1x4", "2x8"]
    names = [engine["name"] for engine in found["engines"]]
    assert names == [OURS, "a", "c"]
    assert set(found["engines"][1]["timings"]["2x8"]) == {"median_ms", "best_ms", "ratio"}
    assert found["engines"][2]["note"].startswith("not installed")


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

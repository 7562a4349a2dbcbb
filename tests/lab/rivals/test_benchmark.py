"""The comparison with fake rivals: who is run, who is listed with a reason, what the report holds."""

import json

import numpy as np
import pytest

from bibert.errors import BibertError, ModelFileError
from bibert.lab.rivals import benchmark
from bibert.lab.rivals.alone import ChildError
from bibert.lab.rivals.benchmark import Plan, compare
from bibert.lab.rivals.engines import OURS, Rival
from bibert.lab.rivals.models import Shape, random_packed, with_bits
from bibert.packed.file import save

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

    return Rival(name, packages, build=None, load=load)


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
def test_packed_files_with_more_bits_take_their_turns_beside_ours(tiny, tiny_file, tmp_path):
    file = tmp_path / "more.bibert"
    save(random_packed(with_bits(tiny, 4)), file)
    report = compare(tiny_file, Plan((fake_rival("a"),), SHAPES, rounds=3), {"4 bits": file})
    assert [entry.name for entry in report.entries] == [OURS, "4 bits", "a"]
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

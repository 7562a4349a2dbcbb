"""`bibert bench`: what is asked for, the table, the JSON, and once for real."""

import json

import pytest
from random_models import random_packed

from bibert.lab.rivals.benchmark import Entry, Plan, Ratio, Report, Timing
from bibert.lab.rivals.engines import OURS, RIVALS, Shape
from bibert.packed.file import save
from bibert.packed.schema import PackedConfig

CONFIG = PackedConfig(1, 32, 2, 16, 48, vocabulary=50, positions=40, token_types=2, labels=2)


@pytest.fixture(params=[0.99])
def plans(monkeypatch, request):
    """The plans that `compare` was given; it answers with a report of three engines, one of them missing."""
    plans, share = [], request.param

    def compare(_path, plan):
        plans.append(plan)
        ours = {shape: Timing(2.0, 1.9, Ratio(1.0, 1.0, 1.0)) for shape in plan.shapes}
        theirs = {shape: Timing(12.5, 12.0, Ratio(6.25, 6.0, 6.5)) for shape in plan.shapes}
        entries = (
            Entry(OURS, "", 4_300_000, 46_800_000, ours),
            Entry("onnx-int8", "", 23_200_000, 147_800_000, theirs),
            Entry("openvino-int8", "not installed: pip install openvino nncf"),
        )
        return Report(CONFIG, "avx2", plan, entries, dict.fromkeys(plan.shapes, share))

    monkeypatch.setattr("bibert.lab.cli.bench.compare", compare)
    return plans


def test_options_choose_rivals_shapes_rounds_and_threads_and_all_rivals_are_compared_without_any(plans, bibert):
    words = "m.bibert --rival onnx-int8 --rival torch-fp32 --shape 8x16 --shape 1x4 --shape 8x16 --rounds 3 --threads 2"
    assert bibert("bench", *words.split()) == bibert("bench", "m.bibert") == 0
    chosen, every = (RIVALS["onnx-int8"], RIVALS["torch-fp32"]), tuple(RIVALS.values())
    assert plans == [Plan(chosen, (Shape(8, 16), Shape(1, 4)), 3, 2), Plan(every, (Shape(1, 32), Shape(1, 128)), 20, 1)]


@pytest.mark.usefixtures("plans")
def test_the_table_has_times_ratios_sizes_and_what_was_not_run(bibert, capsys):
    assert bibert("bench", "m.bibert", "--shape", "1x4") == 0
    shown = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert rows[2:5] == [
        f"{OURS} 4.3 46.8 2.00",
        "onnx-int8 23.2 147.8 12.50 x6.2 (6.0-6.5)",
        "openvino-int8 not installed: pip install openvino nncf",
    ]
    assert "m.bibert: 1 x 32, avx2, 1 thread" in shown


@pytest.mark.usefixtures("plans")
def test_json_has_everything_and_nothing_else_is_on_stdout(as_json):
    found = as_json("bench", "folder/m.bibert", "--shape", "1x4")
    assert found["file"] == "m.bibert"
    assert found["machine"]["isa"] == "avx2"
    assert found["engines"][1]["timings"]["1x4"]["ratio"] == {"median": 6.25, "low": 6.0, "high": 6.5}
    assert found["engines"][2]["note"] == "not installed: pip install openvino nncf"


@pytest.mark.parametrize(("plans", "warned"), [(0.99, False), (0.43, True)], indirect=["plans"])
@pytest.mark.usefixtures("plans")
def test_a_busy_machine_is_said_on_stderr(warned, bibert, capsys):
    assert bibert("bench", "m.bibert", "--json") == 0
    shown = capsys.readouterr()
    assert ("had a CPU for 43% of the time" in shown.err) is warned
    assert json.loads(shown.out)["file"] == "m.bibert"


def test_bad_words_are_refused_before_anything_runs(plans, bibert, refused):
    assert "tensorflow" in refused("bench", "m.bibert", "--rival", "tensorflow")
    assert "128" in refused("bench", "m.bibert", "--shape", "128")
    assert bibert("bench", "m.bibert", "--rounds", "0") == bibert("bench", "m.bibert", "--threads", "0") == 2
    assert plans == []


@pytest.mark.slow
def test_a_packed_file_is_compared_with_torch_for_real(tmp_path, as_json):
    path = tmp_path / "tiny.bibert"
    save(random_packed(CONFIG), path)
    ours, theirs = as_json("bench", path, "--rival", "torch-int8", "--shape", "2x16", "--rounds", "3")["engines"]
    assert (ours["name"], theirs["name"]) == (OURS, "torch-int8")
    assert ours["file_bytes"] == path.stat().st_size
    assert theirs["peak_bytes"] > ours["peak_bytes"]
    assert theirs["timings"]["2x16"]["median_ms"] > 0

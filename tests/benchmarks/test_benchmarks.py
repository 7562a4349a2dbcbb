"""The scripts of benchmarks/: what they make of their measurements, and what they refuse."""

from pathlib import Path
from types import SimpleNamespace

import front
import pytest
import tables
import training_rival
import training_step

import integrations
from bibert.data.examples import Split, TextData
from bibert.errors import BibertError
from bibert.lab.rivals.benchmark import Turns

MACHINE = {"versions": {}, "commit": "abc", "cpu": "a CPU", "isa": "avx2", "threads": 1, "python": "3", "date": "today"}


def test_a_slow_moment_of_the_machine_hits_all_variants_of_a_round_and_cancels():
    alone = {"finetune": [1.0, 1.0, 5.0], "bibert": [1.5, 1.5, 7.5]}
    alone |= {name: [1.0, 1.0, 5.0] for name in training_step.VARIANTS if name not in alone}
    ratio = training_step.summarize(alone)["ratios"]["bibert distillation / fine-tuning"]
    assert ratio["median"] == 1.5
    assert ratio["quartiles"] == [1.5, 1.5]


def test_a_speed_is_the_ratio_of_the_times_within_a_turn():
    turns = [1.0, 2.0, 8.0]
    ours, rival = ([{"seconds": k * t, "CPU seconds": t, "peak": k * 1e6} for t in turns] for k in (1, 2))
    found = training_rival.summarize(ours, rival)
    assert found["speed"]["seconds"] == {"median": 2.0, "quartiles": [2.0, 2.0], "of_totals": 2.0}
    assert found["speed"]["CPU seconds"]["median"] == 1.0
    assert found["peak_memory_mb"] == [1.0, 2.0]


def test_an_engine_that_was_not_run_is_in_the_table_with_the_reason():
    missing = {"name": "openvino-int8", "note": "not installed: pip install openvino nncf", "timings": {}}
    ratio = {"median": 6.25, "low": 6.0, "high": 6.5}
    timings = {"1x128": {"median_ms": 12.5, "best_ms": 12.0, "ratio": ratio}}
    run = {"name": "onnx-int8", "note": "", "file_bytes": 23_200_000, "peak_bytes": 147_800_000, "timings": timings}
    results = {"machine": MACHINE, "least_cpu_share": 1.0, "command": "run"}
    results |= {"shapes": ["1x128"], "architectures": {"A": [missing, run]}}
    assert tables.engine(results).splitlines()[:4] == [
        "| A | file MB | memory MB | 1x128 ms |",
        "| --- | --- | --- | --- |",
        "| openvino-int8 | not installed: pip install openvino nncf |  |  |",
        "| onnx-int8 | 23.2 | 147.8 | 12.50, x6.2 (6.0-6.5) |",
    ]


def a_front(*points):
    facts = {"seed": 0, "rounds": 1, "batch": 32, "dev_rows": 872, "max_length": 64}
    return {"command": "run", "machine": MACHINE, **facts, "cpu_share": {"one": 1.0, "batch": 0.9}, "points": [*points]}


def a_point(name, correct, ratio):
    timing = {"median_ms": 0.5 * ratio, "best_ms": 0.5, "ratio": {"median": ratio, "low": ratio, "high": 2 * ratio}}
    facts = {"name": name, "kind": "1-bit weights", "correct": correct, "shipped_bytes": 4_414_000}
    return facts | {"one": timing, "batch": timing}


def test_the_front_shows_accuracy_size_and_ratios_to_ours():
    shown = tables.front(a_front(a_point("bibert", 662, 1.0), a_point("onnx-int8", 785, 7.25))).splitlines()
    assert shown[2] == "| bibert | 75.9 | 4.41 | 0.5 | 0.5 |"
    assert shown[3] == "| onnx-int8 | 90.0 | 4.41 | 3.62, x7.2 (7.2-14) | 3.62, x7.2 (7.2-14) |"
    assert "90% of a CPU" in shown[-1]
    assert not any("provisional" in line for line in shown)


def test_a_model_added_to_the_front_gets_the_time_of_its_ratio(monkeypatch):
    class Model:
        def __init__(self, bits):
            self.config, self.labels, self.isa = SimpleNamespace(activation_bits=bits), ("negative", "positive"), "avx2"

    dev = Split(tuple(f"text {number}" for number in range(32)), None, (0.0,) * 32, "dev.tsv")
    data = TextData("SST-2", dev, {"dev": dev}, ("negative", "positive"), ("accuracy",), "here")
    monkeypatch.setattr(front, "load_glue", lambda *_: data)
    monkeypatch.setattr(front, "load", lambda path, **_: Model(2 if path.stem == "second" else 1))
    monkeypatch.setattr(front, "packed_classify", lambda _: lambda texts: [0] * len(texts))
    seconds = {"bibert": [1.0, 3.0], "bibert, 2 bits": [4.0, 12.0]}
    monkeypatch.setattr(front, "time_contenders", lambda *_: Turns(seconds, 0.9))
    monkeypatch.setattr(Path, "stat", lambda _: SimpleNamespace(st_size=7))
    before = a_front(a_point("bibert", 16, 1.0), a_point("bibert, 2 bits", 1, 9.0), a_point("onnx-int8", 30, 8.0))
    found = front.add(before, Path("first"), [Path("second")], Path("glue"), 2)
    assert [point["name"] for point in found["points"]] == ["bibert", "bibert, 2 bits", "onnx-int8"]
    added = found["points"][1]
    assert (added["correct"], added["one"]["median_ms"], added["shipped_bytes"]) == (32, 4 * 0.5, 7)
    assert tables.front(found).splitlines()[-1].startswith("bibert, 2 bits was added later by its ratio to bibert")
    with pytest.raises(BibertError, match="is bibert, 2 bits; the results are relative to bibert"):
        front.add(before, Path("second"), [], Path("glue"), 2)


def test_times_of_a_busy_machine_are_called_provisional():
    busy = a_front(a_point("bibert", 662, 1.0)) | {"cpu_share": {"one": 1.0, "batch": 0.89}}
    assert "provisional" in tables.front(busy)


def test_the_front_times_whole_batches_of_dev_texts_that_differ_from_round_to_round():
    dev = Split(tuple(f"text {number}" for number in range(70)), None, (0.0,) * 70, "dev.tsv")
    singles, batches = front.timing_inputs(dev, 3)
    assert [len(single) for single in singles] == [1, 1, 1]
    assert len({text for single in singles for text in single}) == 3
    assert [len(batch) for batch in batches] == [32, 32, 32]
    assert not set(batches[0]) & set(batches[1])
    assert batches[2] == batches[0]  # 70 texts are two batches, so the third round has the first again


def test_the_front_refuses_a_model_with_other_labels_and_names_missing_packages():
    data = TextData("SST-2", None, {}, ("negative", "positive"), ("accuracy",), "here")
    with pytest.raises(BibertError, match=r"m\.bibert.* a, b.* negative, positive"):
        front.check_labels(Path("m.bibert"), ("a", "b"), data)
    with pytest.raises(BibertError, match=r"pip install no_such_engine$"):
        front.require_packages(["numpy", "no_such_engine"])


def test_integrations_are_compared_with_the_command_within_a_turn():
    same = [("positive", 0.5), ("negative", 0.75)]
    seconds = {integrations.COMMAND: [1.0, 4.0, 2.0], "duckdb": [0.5, 2.0, 1.0], "polars": [2.0, 8.0, 4.0]}
    answers = {integrations.COMMAND: same, "duckdb": same, "polars": [same[0], ("negative", 0.7500001)]}
    assert integrations.summarize(seconds, answers) == {
        integrations.COMMAND: {"rows_per_second": 1, "ratio": 1.0, "differ": 0},
        "duckdb": {"rows_per_second": 2, "ratio": 2.0, "differ": 0},
        "polars": {"rows_per_second": 0, "ratio": 0.5, "differ": 1},
    }

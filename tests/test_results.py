"""Tables in the documents are those of the results files, and every results file says where it comes from."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
FILES = sorted(RESULTS.glob("**/*.json"))


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def script():
    """docs/regenerate.py as a module."""
    spec = importlib.util.spec_from_file_location("regenerate", ROOT / "docs" / "regenerate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_make_docs_changes_nothing(script):
    documents = [path for path in script.documents() if "<!-- end -->" in path.read_text(encoding="utf-8")]
    assert len(documents) >= 6
    stale = [path.name for path in documents if script.regenerate(path) != path.read_text(encoding="utf-8")]
    assert stale == [], "run make docs"


def test_every_results_file_is_shown_in_a_table(script):
    shown = set()
    for document in script.documents():
        for found in script.TABLE.finditer(document.read_text(encoding="utf-8")):
            shown |= {(document.parent / name).resolve() for name in found["files"].split()}
    assert {*FILES, *ROOT.glob("benchmarks/results/*.json")} <= shown


def test_a_table_is_replaced_between_its_own_markers_only(script, tmp_path):
    (tmp_path / "r.json").write_text('{"mean_bits": {"a": {"query": 0.5}}}')
    empty = "<!-- r.json: entropy-by-site -->\n<!-- end -->\n"
    (tmp_path / "d.md").write_text(f"before\n\n{empty}\nbetween\n\n{empty}after\n")
    once = script.regenerate(tmp_path / "d.md")
    assert once.count("| a | 0.500 |") == 2
    assert [word in once for word in ("before", "between", "after")] == [True] * 3
    (tmp_path / "d.md").write_text(once)
    assert script.regenerate(tmp_path / "d.md") == once


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_a_results_file_names_command_commit_machine_and_date(path):
    for run in load(path).get("trials", [load(path)]):
        assert {"command", "commit", "machine", "date"} <= run.keys()
        assert run["command"].startswith(("bibert ", "python benchmarks/soak.py "))


@pytest.mark.parametrize("run", ["teacher", "baseline", "bibert"])
def test_the_log_of_a_run_holds_its_evaluations(run):
    lines = [json.loads(line) for line in (RESULTS / f"sst2-{run}" / "log.jsonl").read_text().splitlines()]
    logged = {(line["step"], line["eval_dev_accuracy"]) for line in lines if "eval_dev_accuracy" in line}
    result = load(RESULTS / f"sst2-{run}" / "result.json")
    assert {(point["step"], point["accuracy"]) for point in result["evaluations"]} <= logged
    assert result["metrics"]["dev_accuracy"] == max(point["accuracy"] for point in result["evaluations"])

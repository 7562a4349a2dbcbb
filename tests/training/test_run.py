"""The run folder: one request each, and what a finished, failed or foreign run leaves."""

import errno
import json
from types import SimpleNamespace

import pytest

from bibert.errors import CheckpointError
from bibert.nn.checkpoint import load_classifier
from bibert.nn.schemes import get_scheme
from bibert.training.provenance import _commits
from bibert.training.recipe import Recipe
from bibert.training.run import finish, finished_metrics, opened, save_classifier, save_stage

REQUEST = {"command": "distill", "recipe": {"seed": 42, "weights": {}}}
SCHEME, BASELINE = (json.loads(json.dumps(get_scheme(name).to_dict())) for name in ("bibert", "baseline"))
DATA = {"name": "reviews", "source": "/old/reviews.csv", "sha256": "abc"}


def hold(folder, request):
    """Leave a run with a checkpoint."""
    with opened(folder, request):
        checkpoint = folder / "stages" / "dmd" / "checkpoint-5"
        checkpoint.mkdir(parents=True)
        (checkpoint / "COMPLETE.json").write_text("{}")


def refused(folder, request, message):
    with pytest.raises(CheckpointError, match=message), opened(folder, request):
        pytest.fail("the folder must be refused")


def test_the_request_and_the_versions_are_noted_and_a_second_run_is_refused(tmp_path):
    with opened(tmp_path / "run", REQUEST) as run:
        notes = json.loads(run.notes.read_text())
        refused(tmp_path / "run", REQUEST, "another run")
    assert notes["request"] == REQUEST
    assert {"bibert", "torch", "transformers"} <= set(notes["versions"])
    assert {"commit", "cpu", "date"} <= set(notes)


def test_a_run_names_every_commit_that_resumed_it(tmp_path, monkeypatch):
    for commit in ("one", "one", "two", "one"):
        monkeypatch.setattr("bibert.machine.commit", lambda commit=commit: commit)
        if not (tmp_path / "stages").exists():
            hold(tmp_path, REQUEST)
        with opened(tmp_path, REQUEST) as run:
            notes = json.loads(run.notes.read_text())
    assert (notes["commit"], [one["commit"] for one in notes["resumed"]]) == ("one", ["two"])
    assert _commits(notes) == "one, two"


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    refused(tmp_path / place, REQUEST, rf"{tmp_path / 'file'}: is a file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({}, {"recipe": {"seed": 7, "weights": {}}}, r"recipe\.seed was 42, now 7"),
        ({}, {"recipe": {"seed": 42, "weights": {"gold": 0.5}}}, r"recipe\.weights was {}, now {'gold': 0\.5}"),
        ({}, {"recipe": {"seed": 42, "average": 0.5}}, r"recipe\.average was 0\.0, now 0\.5"),
        ({}, {"command": "finetune"}, "command was 'distill', now 'finetune'"),
        ({"scheme": SCHEME}, {"scheme": BASELINE}, r"scheme\.name was 'bibert', now 'baseline'"),
        ({"data": DATA}, {"data": DATA | {"source": "/new", "sha256": "def"}}, r"data\.sha256 was 'abc', now 'def'"),
        ({"data": DATA}, {"data": DATA | {"source": "/new"}, "recipe": {"seed": 7}}, r"recipe\.seed was 42"),
        ({"teacher": {"name": "bert", "sha256": None}}, {"teacher": {"name": "other", "sha256": None}}, "'bert'"),
        ({"teacher": {"name": "a", "sha256": "abc"}}, {"teacher": {"name": "b", "sha256": "def"}}, r"teacher\.name"),
    ],
)
def test_another_request_in_the_same_folder_is_refused(tmp_path, before, now, message):
    hold(tmp_path, REQUEST | before)
    refused(tmp_path, REQUEST | before | now, rf"{tmp_path}: .*{message}")
    assert json.loads((tmp_path / "run.json").read_text())["request"] == REQUEST | before


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {}),
        ({"data": DATA}, {"data": DATA | {"source": "/new/reviews.csv"}}),  # a moved file with the same digest
        # fields that a later version added have their defaults
        ({"scheme": {key: SCHEME[key] for key in SCHEME if key != "kept"}}, {"scheme": SCHEME}),
        ({}, {"recipe": Recipe(seed=42).to_dict()}),
    ],
)
def test_the_same_request_resumes(tmp_path, before, now):
    hold(tmp_path, REQUEST | before)
    with opened(tmp_path, REQUEST | before | now) as run:
        assert run.holds_something()


def test_a_run_that_never_reached_a_checkpoint_is_replaced(tmp_path):
    with opened(tmp_path, REQUEST) as run:
        run.log.write_text("old\n")
    with opened(tmp_path, {"command": "other"}) as run:
        assert json.loads(run.notes.read_text())["request"] == {"command": "other"}
        assert not run.log.exists()


@pytest.mark.parametrize("name", ["run.json", "log.jsonl", "probe.jsonl", "model/config.json"])
def test_files_of_somebody_else_are_not_replaced(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    refused(tmp_path, REQUEST, f"{path.name if '/' not in name else 'model'}: .*not written by a run")
    assert path.read_text() == "{}"


@pytest.mark.parametrize("content", ["[]", "{}", "null"])
def test_notes_of_somebody_else_are_refused(tmp_path, content):
    hold(tmp_path, REQUEST)
    (tmp_path / "run.json").write_text(content)
    refused(tmp_path, REQUEST, r"run\.json: has no request")


def test_a_process_that_is_not_the_first_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with opened(tmp_path / "run", REQUEST) as run:
        finish(run, None, {"dev_accuracy": 1.0})
        save_stage(run, "dmd", None)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_answers_with_its_metrics_while_it_has_its_model(tmp_path, start):
    with opened(tmp_path, REQUEST) as run:
        assert finished_metrics(run) is None
        finish(run, load_classifier(start), {"dev_accuracy": 0.75})
        assert finished_metrics(run) == {"dev_accuracy": 0.75}
        run.model.rename(tmp_path / "moved")
        assert finished_metrics(run) is None
    assert load_classifier(tmp_path / "moved").model.config.num_labels == 2


def test_saving_replaces_a_folder_and_leaves_no_half_one(tmp_path, start):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    (tmp_path / ".model.writing").mkdir()  # left by a kill
    save_classifier(load_classifier(start), folder)
    assert not (folder / "old.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_is_named_when_the_model_is_saved(tmp_path, start, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=17))
    with pytest.raises(CheckpointError, match=r"disk is full, about [\d,]+ bytes .* 17"):
        save_classifier(load_classifier(start), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_when_the_log_does_not_fit(tmp_path):
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: the disk is full"), opened(tmp_path, REQUEST):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), opened(tmp_path, REQUEST):
        raise PermissionError(errno.EACCES, "Permission denied")

"""The run folder: one request each, what a finished run answers, and a log that a kill does not spoil."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bibert.data.examples import Split, TextData
from bibert.errors import CheckpointError
from bibert.nn.checkpoint import load_classifier
from bibert.nn.schemes import get_scheme
from bibert.training.callbacks import JsonLog
from bibert.training.provenance import _commits, fingerprint, weights_digest
from bibert.training.recipe import Recipe
from bibert.training.run import RunFolder, finish, finished_metrics, opened, save_classifier, save_stage

REQUEST = {"command": "distill", "recipe": {"seed": 42, "weights": {}}}


def text_data(train: tuple[str, ...], dev: tuple[str, ...], pairs: bool = False) -> TextData:
    train_split, dev_split = (Split(x, x if pairs else None, (0.0,) * len(x), "test") for x in (train, dev))
    return TextData("test", train_split, {"dev": dev_split}, ("a",), ("accuracy",), "test")


def hold_something(folder: Path) -> None:
    checkpoint = folder / "stages" / "dmd" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "COMPLETE.json").write_text("{}")


def test_the_request_and_the_versions_are_noted(tmp_path: Path):
    with opened(tmp_path / "run", REQUEST) as run:
        notes = json.loads(run.notes.read_text())
    assert notes["request"] == REQUEST
    assert {"bibert", "torch", "transformers"} <= set(notes["versions"])
    assert {"commit", "cpu", "date"} <= set(notes)


def test_a_run_names_every_commit_that_went_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for commit in ("one", "one", "two", "one"):
        monkeypatch.setattr("bibert.machine.commit", lambda commit=commit: commit)
        with opened(tmp_path, REQUEST) as run:
            if not run.holds_something():
                hold_something(tmp_path)
    notes = json.loads(run.notes.read_text())
    assert (notes["commit"], [one["commit"] for one in notes["resumed"]]) == ("one", ["two"])
    assert _commits(notes) == "one, two"


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, place: str):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=rf"{tmp_path / 'file'}: is a file"), opened(tmp_path / place, REQUEST):
        pytest.fail("there is no such folder")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"recipe": {"seed": 7, "weights": {}}}, "recipe.seed was 42, now 7"),
        ({"recipe": {"seed": 42, "weights": {"gold": 0.5}}}, "recipe.weights was {}, now {'gold': 0.5}"),
        ({"command": "finetune"}, "command was 'distill', now 'finetune'"),
        ({"scheme": get_scheme("baseline").to_dict()}, "scheme.name was None, now 'baseline'"),
    ],
)
def test_another_request_in_the_same_folder_is_refused(tmp_path: Path, changed: dict, message: str):
    with opened(tmp_path, REQUEST):
        hold_something(tmp_path)
    refusal = rf"{tmp_path}: holds another run \({message}\)"
    with pytest.raises(CheckpointError, match=refusal), opened(tmp_path, REQUEST | changed):
        pytest.fail("the folder holds another run")
    assert json.loads((tmp_path / "run.json").read_text())["request"] == REQUEST


def test_the_same_request_may_come_back(tmp_path: Path):
    for _ in range(2):
        with opened(tmp_path, REQUEST):
            if not (tmp_path / "stages").exists():
                hold_something(tmp_path)


def test_a_run_that_never_reached_a_checkpoint_gives_way(tmp_path: Path):
    with opened(tmp_path, REQUEST) as run:
        run.log.write_text("old\n")
    with opened(tmp_path, {"command": "other"}) as run:
        assert json.loads(run.notes.read_text())["request"] == {"command": "other"}
        assert not run.log.exists()


@pytest.mark.parametrize("name", ["run.json", "log.jsonl", "probe.jsonl", "model/config.json"])
def test_files_of_somebody_else_are_not_replaced(tmp_path: Path, name: str):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="was not written by a run"), opened(tmp_path, REQUEST):
        pytest.fail("this is not ours")
    assert path.read_text() == "{}"


def test_content_that_is_known_may_have_another_name(tmp_path: Path):
    def asked(teacher: str, sha256: str | None) -> dict:
        return REQUEST | {"teacher": {"name": teacher, "sha256": sha256}}

    with opened(tmp_path, asked("runs/teacher", "abc")):
        hold_something(tmp_path)
    with opened(tmp_path, asked("/moved/runs/teacher", "abc")):
        pass
    refusal = "teacher.sha256 was 'abc', now 'def'"
    with pytest.raises(CheckpointError, match=refusal), opened(tmp_path, asked("runs/teacher", "def")):
        pytest.fail("this is another teacher")


def test_the_difference_that_counts_is_named_and_not_a_new_name(tmp_path: Path):
    data = {"name": "reviews", "source": "/old/reviews.csv", "sha256": "abc"}
    with opened(tmp_path, REQUEST | {"data": data}):
        hold_something(tmp_path)
    moved = {"data": data | {"source": "/new/reviews.csv"}, "recipe": {"seed": 7, "weights": {}}}
    with pytest.raises(CheckpointError, match=r"recipe\.seed was 42, now 7"), opened(tmp_path, REQUEST | moved):
        pytest.fail("this is another run")
    other = {"data": {"name": "reviews", "source": "/new/reviews.csv", "sha256": "def"}}
    with pytest.raises(CheckpointError, match=r"data\.sha256 was 'abc'"), opened(tmp_path, REQUEST | other):
        pytest.fail("these are other data")


def test_a_field_that_a_version_added_has_its_default_in_older_runs(tmp_path: Path):
    scheme = get_scheme("bibert").to_dict()
    older = {key: value for key, value in scheme.items() if key != "kept"}
    with opened(tmp_path, REQUEST | {"scheme": older}):
        hold_something(tmp_path)
    recipe = Recipe(seed=42).to_dict()
    with opened(tmp_path, REQUEST | {"scheme": scheme, "recipe": recipe}):
        pass
    changed = REQUEST | {"scheme": scheme, "recipe": recipe | {"average": 0.5}}
    with pytest.raises(CheckpointError, match=r"recipe\.average was 0\.0, now 0\.5"), opened(tmp_path, changed):
        pytest.fail("this is another run")


def test_what_has_no_digest_is_known_by_its_name(tmp_path: Path):
    asked = REQUEST | {"teacher": {"name": "on-the-hub/bert", "sha256": None}}
    other = REQUEST | {"teacher": {"name": "on-the-hub/other", "sha256": None}}
    with opened(tmp_path, asked):
        hold_something(tmp_path)
    with pytest.raises(CheckpointError, match=r"teacher\.name was 'on-the-hub/bert'"), opened(tmp_path, other):
        pytest.fail("this is another teacher")


@pytest.mark.parametrize("content", ["[]", "{}", "null"])
def test_notes_of_somebody_else_are_refused(tmp_path: Path, content: str):
    hold_something(tmp_path)
    (tmp_path / "run.json").write_text(content)
    refusal = r"run\.json: has no request"
    with pytest.raises(CheckpointError, match=refusal), opened(tmp_path, REQUEST):
        pytest.fail("this is not our run")


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path):
    with opened(tmp_path, REQUEST), pytest.raises(CheckpointError, match="another run"), opened(tmp_path, REQUEST):
        pytest.fail("the folder is taken")


def test_a_process_that_is_not_the_first_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "1")
    with opened(tmp_path / "run", REQUEST) as run:
        finish(run, None, {"dev_accuracy": 1.0})
        save_stage(run, "dmd", None)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_answers_with_its_metrics(tmp_path: Path, start: Path):
    classifier = load_classifier(start)
    with opened(tmp_path, REQUEST) as run:
        assert finished_metrics(run) is None
        finish(run, classifier, {"dev_accuracy": 0.75})
        assert finished_metrics(run) == {"dev_accuracy": 0.75}
    assert load_classifier(run.model).model.config.num_labels == 2


def test_a_finished_run_that_lost_its_model_is_not_finished(tmp_path: Path):
    with opened(tmp_path, REQUEST) as run:
        run.notes.write_text(json.dumps({"request": REQUEST, "metrics": {"dev_accuracy": 1.0}}))
        assert finished_metrics(run) is None


def test_saving_replaces_a_folder_and_leaves_no_half_one(tmp_path: Path, start: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    (tmp_path / ".model.writing").mkdir()  # what a kill left behind
    save_classifier(load_classifier(start), folder)
    assert not (folder / "old.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_is_named_when_the_model_is_saved(tmp_path: Path, start: Path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=17))
    with pytest.raises(CheckpointError, match=r"the disk is full, about [\d,]+ bytes are needed and 17 are free"):
        save_classifier(load_classifier(start), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_when_the_log_does_not_fit(tmp_path: Path):
    refusal = rf"{tmp_path}: the disk is full"
    with pytest.raises(CheckpointError, match=refusal), opened(tmp_path, REQUEST):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), opened(tmp_path, REQUEST):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_the_fingerprint_sees_every_change_of_the_data():
    variants = [
        text_data(("a", "b"), ("c",)),
        text_data(("a", "b"), ("d",)),
        text_data(("b", "a"), ("c",)),
        text_data(("a",), ("b", "c")),
        text_data(("a", "b"), ("c",), pairs=True),
    ]
    assert len({fingerprint(data) for data in variants}) == len(variants)
    assert fingerprint(variants[0]) == fingerprint(text_data(("a", "b"), ("c",)))


def test_the_digest_of_weights_is_that_of_the_content(tmp_path: Path, start: Path):
    digest = weights_digest(start)
    save_classifier(load_classifier(start), tmp_path / "copy")
    assert weights_digest(tmp_path / "copy") == digest
    weights = tmp_path / "copy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    assert weights_digest(tmp_path / "copy") != digest
    assert weights_digest("bert-base-uncased") is None


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def begin(log: JsonLog, step: int) -> None:
    log.on_train_begin(None, SimpleNamespace(is_world_process_zero=True, global_step=step), None)


@pytest.fixture
def log(tmp_path: Path) -> JsonLog:
    """Ten lines of one stage, after one line of the stage before."""
    for stage, steps in (("first", [99]), ("second", range(1, 11))):
        log = JsonLog(tmp_path / "log.jsonl", stage)
        for step in steps:
            state = SimpleNamespace(is_world_process_zero=True, global_step=step)
            log.on_log(None, state, None, logs={"loss": float(step)})
    return log


def test_lines_after_the_point_of_resumption_are_dropped(log: JsonLog):
    begin(log, 4)
    assert [(line["stage"], line["step"]) for line in lines_of(log.path)] == [
        ("first", 99), ("second", 1), ("second", 2), ("second", 3), ("second", 4),
    ]  # fmt: skip


@pytest.mark.parametrize("torn", ['{"stage": "second", "st', '{"stage": "second", "step": 3}', "\0\0\0\0\n"])
def test_a_torn_last_line_is_dropped(log: JsonLog, torn: str):
    before = lines_of(log.path)
    with log.path.open("a") as file:
        file.write(torn)
    begin(log, 10)
    assert lines_of(log.path) == before


def test_only_the_first_process_writes_the_log(tmp_path: Path):
    log = JsonLog(tmp_path / "log.jsonl", "dmd")
    other = SimpleNamespace(is_world_process_zero=False, global_step=1)
    log.on_train_begin(None, other, None)
    log.on_log(None, other, None, logs={"loss": 1.0})
    assert not log.path.exists()


def test_the_folder_has_a_place_for_everything(tmp_path: Path):
    run = RunFolder(tmp_path)
    assert run.stage_result("dmd") == tmp_path / "stages" / "dmd" / "result"
    assert {run.model.parent, run.notes.parent, run.log.parent} == {tmp_path}

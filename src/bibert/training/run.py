"""A run folder: the request, the log, checkpoints to resume from, and the result.

    run.json      data, checkpoint, scheme, recipe, versions, commit, machine; metrics and temperature at the end
    log.jsonl     one line per log event: every loss term, the learning rate, dev metrics
    probe.jsonl   one line per look into the student, if a probe was given
    stages/NAME   checkpoints of each training stage, and its result once it is finished
    model/        the trained model with its tokenizer, a Hugging Face folder

Nothing is half-written: JSON and folders appear by a rename. Training itself is in `teacher` and `student`. Importing
this needs no torch.
"""

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibert import machine
from bibert.errors import BibertError, CheckpointError
from bibert.files import fsync_folder, load_json, save_json
from bibert.nn import RUN_MODEL
from bibert.nn.schemes import Scheme
from bibert.training.provenance import NOTES
from bibert.training.recipe import with_defaults
from bibert.training.resume import LOCK, MANIFEST, disk_space, full_disk_named, locked, write_manifest

if TYPE_CHECKING:
    from torch import nn

    from bibert.nn.checkpoint import Classifier

LOG = "log.jsonl"
PROBE = "probe.jsonl"
PACKAGES = ("torch", "transformers", "accelerate", "numpy")  # their versions decide the numbers
LENGTHS = ("recipe.epochs", "recipe.min_steps", "recipe.max_steps")  # a run may get longer
FINISHED = ("metrics", "temperature")  # the notes of a finished run
BESIDE_THE_WEIGHTS = 1 << 20  # bytes for tokenizer, configuration and the like


class RunFolder:
    """The files of one run, as listed above; `notes` is run.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = path / RUN_MODEL
        self.notes = path / NOTES
        self.log = path / LOG
        self.probe = path / PROBE

    def stage(self, name: str) -> Path:
        """The checkpoints of a stage."""
        return self.path / "stages" / name

    def stage_result(self, name: str) -> Path:
        """The best model of a finished stage."""
        return self.stage(name) / "result"

    def holds_something(self) -> bool:
        """Whether a new run would spoil anything: a whole checkpoint, or a model."""
        places = (f"{self.model.name}/{MANIFEST}", f"stages/*/*/{MANIFEST}")
        return any(next(self.path.glob(place), None) for place in places)


@contextmanager
def opened(folder: Path, request: Mapping[str, Any]) -> Iterator[RunFolder]:
    """Lock a run folder and note the request; raise `CheckpointError` if the folder holds another run.

    The folder of a run that ended before its first checkpoint may be reused by another run. In a distributed run only
    the first process locks and writes.
    """
    run = RunFolder(folder)
    if not is_main_process():
        yield run
        return
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    with locked(folder), full_disk_named(folder):
        if run.holds_something():
            if longer := _check_same_request(run, request):
                _note_longer(run, request, longer)
            _note_resumption(run)
        else:
            _check_owned(run)
            for path in (run.log, run.probe):
                path.unlink(missing_ok=True)
            save_json(run.notes, {"request": request, **machine.about(PACKAGES)})
        try:
            yield run
        except BibertError:
            if not run.holds_something():
                _remove(run, new_folders)
            raise


def is_main_process() -> bool:
    """Whether this process writes files, by the variables that torchrun and accelerate set."""
    return int(os.environ.get("RANK", "0")) == 0


def _check_same_request(run: RunFolder, request: Mapping[str, Any]) -> list[str]:
    """Raise `CheckpointError` unless the folder holds this run; return what makes it longer than it was, if any."""
    notes = load_json(run.notes)
    if not isinstance(notes, dict) or "request" not in notes:
        raise CheckpointError(f"{run.notes}: has no request, so the run cannot resume; choose another output folder")
    before, now = _facts(notes["request"]), _facts(json.loads(json.dumps(request)))
    changed = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
    # A digest identifies data and models, so their names and places may change.
    identified = [key.removesuffix("sha256") for key, value in before.items() if key.endswith(".sha256") and value]
    may_change = {part + name for part in identified for name in ("name", "source", "train", "texts", "columns")}
    longer = [key for key in changed if key in LENGTHS and _length(now, key) > _length(before, key) > 0]
    if longer:  # of epochs: then the floor of a preset no longer holds
        longer += {"recipe.min_steps"}.intersection(changed) - set(longer)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # the other processes would not learn of it in time
        longer = []
    if decisive := [key for key in changed if key not in may_change and key not in longer]:
        name = f"{decisive[0].partition('.')[0]}.name"  # says more than a digest or a field of a scheme
        key = name if name in changed else decisive[0]
        change = f"{key} was {before.get(key)!r}, now {now.get(key)!r}"
        raise CheckpointError(f"{run.path}: holds another run ({change}); choose another output folder or delete it")
    return longer


def _length(facts: Mapping[str, Any], key: str) -> float:
    """A number of epochs or steps; `max_steps` of 0 is no limit."""
    length: float = facts.get(key, 0)
    return math.inf if key == "recipe.max_steps" and length == 0 else length


def _note_longer(run: RunFolder, request: Mapping[str, Any], longer: Sequence[str]) -> None:
    """Reopen a run that is to train longer: its best model so far stays, with its notes, until the new one is saved."""
    notes = load_json(run.notes)
    earlier = {key: notes["request"]["recipe"][key.partition(".")[2]] for key in longer}
    kept = {name: value for name, value in notes.items() if name not in FINISHED}
    if "metrics" in notes:
        kept["before"] = {name: notes[name] for name in ("request", *FINISHED) if name in notes}
    save_json(run.notes, {**kept, "request": request, "continued": [*notes.get("continued", []), earlier]})


def _facts(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as `{"recipe.seed": 42, …}`; fields that the version which wrote it did not have get their defaults."""
    request = {**request, "recipe": with_defaults(request.get("recipe", {}))}
    if "scheme" in request:
        request["scheme"] = Scheme.from_dict(request["scheme"]).to_dict()
    facts: dict[str, Any] = {}
    for part, value in request.items():
        facts |= {f"{part}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {part: value}
    return facts


def _note_resumption(run: RunFolder) -> None:
    """Note the commit, machine and versions that resume an unfinished run, if they are new."""
    notes, here = load_json(run.notes), machine.about(PACKAGES)
    known = [notes, *notes.get("resumed", [])]
    same = any(all(one.get(name) == here[name] for name in ("commit", "versions", "cpu")) for one in known)
    if "metrics" not in notes and not same:
        save_json(run.notes, {**notes, "resumed": [*known[1:], here]})


def _check_owned(run: RunFolder) -> None:
    """A run replaces the files of a failed run, but no other files of these names."""
    notes = load_json(run.notes)
    ours = isinstance(notes, dict) and "request" in notes
    for path in (run.model, *(() if ours else (run.notes, run.log, run.probe))):  # a model of ours has a manifest
        if path.exists():
            raise CheckpointError(f"{path}: was not written by a run and would be replaced; choose another folder")


def _remove(run: RunFolder, new_folders: Sequence[Path]) -> None:
    """Remove the files of a run that failed before its first checkpoint."""
    for path in (run.notes, run.log, run.probe, run.path / LOCK):
        path.unlink(missing_ok=True)
    for folder in (*run.path.glob("stages/*"), run.path / "stages", *new_folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def save_stage(run: RunFolder, name: str, classifier: "Classifier") -> None:
    """Save the best model of a stage for the next one."""
    if is_main_process():
        save_classifier(classifier, run.stage_result(name))
    _wait_for_everyone()  # the other processes read it next


def finish(run: RunFolder, classifier: "Classifier", metrics: Mapping[str, float], temperature: float = 1.0) -> None:
    """Save the trained model, its temperature and its metrics, which mark a run as finished."""
    if is_main_process():
        save_classifier(classifier, run.model)
        notes = {name: value for name, value in load_json(run.notes).items() if name != "before"}
        save_json(run.notes, notes | {"metrics": dict(metrics), "temperature": temperature})
    _wait_for_everyone()  # the next run of the other processes may start from this model


def finished_metrics(run: RunFolder) -> dict[str, float] | None:
    """The metrics of a finished run, else None."""
    notes = load_json(run.notes)
    return notes.get("metrics") if notes and run.model.is_dir() else None


def save_classifier(classifier: "Classifier", folder: Path) -> None:
    """Write model and tokenizer as a Hugging Face folder, whole or not at all."""
    temporary = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    with disk_space(temporary, size_in_bytes(classifier.model)):
        classifier.model.save_pretrained(temporary)
        classifier.tokenizer.save_pretrained(temporary)
        write_manifest(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    fsync_folder(folder.parent)


def size_in_bytes(model: "nn.Module") -> int:
    """The bytes of the weights on the disk, and a little for the files beside them."""
    weights: int = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    return weights + BESIDE_THE_WEIGHTS


def _wait_for_everyone() -> None:
    from accelerate import PartialState  # which imports torch

    PartialState().wait_for_everyone()

"""A run folder: what was asked for, what came out, the log, and where a killed run goes on.

    run.json      data, checkpoint, scheme, recipe, versions, commit, machine; metrics at the end
    log.jsonl     one line per log event: every loss term, the learning rate, dev metrics
    probe.jsonl   one line per look into the student, where it was asked for (see `probe`)
    stages/NAME   checkpoints of each training stage, and its result once it is finished
    model/        the trained model with its tokenizer, a Hugging Face folder

Nothing is half-written: JSON and folders appear by a rename. The training itself is in `teacher` and `distiller`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibert import machine
from bibert.errors import BibertError, CheckpointError
from bibert.files import fsync_folder
from bibert.nn.folders import RUN_MODEL
from bibert.nn.schemes import Scheme
from bibert.training.checkpoints import (
    LOCK,
    MANIFEST,
    digest,
    disk_space,
    full_disk_named,
    locked,
    read_json,
    write_json,
    write_manifest,
)
from bibert.training.recipe import Recipe, with_defaults

if TYPE_CHECKING:
    from torch import nn

    from bibert.data.examples import TextData
    from bibert.nn.loading import Classifier

NOTES = "run.json"
LOG = "log.jsonl"
PROBE = "probe.jsonl"
PACKAGES = ("torch", "transformers", "accelerate", "numpy")  # whose versions decide the numbers, with our own
BESIDE_THE_WEIGHTS = 1 << 20  # bytes for tokenizer, configuration and the like


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / RUN_MODEL

    @property
    def notes(self) -> Path:
        """What was asked for and what came out."""
        return self.path / NOTES

    @property
    def log(self) -> Path:
        """The log of every loss term."""
        return self.path / LOG

    @property
    def probe(self) -> Path:
        """What looks into the student found, where it was looked into."""
        return self.path / PROBE

    def holds_something(self) -> bool:
        """Whether there is anything that a new run would spoil: a whole checkpoint, or a model."""
        places = (f"{self.model.name}/{MANIFEST}", f"stages/*/*/{MANIFEST}")
        return any(next(self.path.glob(place), None) for place in places)

    def stage(self, name: str) -> Path:
        """The checkpoints of a stage."""
        return self.path / "stages" / name

    def stage_result(self, name: str) -> Path:
        """The best model of a finished stage."""
        return self.stage(name) / "result"


@contextmanager
def opened(folder: Path, request: Mapping[str, Any]) -> Iterator[RunFolder]:
    """Lock a run folder and note the request; a folder that holds another run is refused.

    A run that failed or was killed before its first checkpoint holds nothing, and any other may take its place. In
    a distributed run only the first process locks and writes.
    """
    run = RunFolder(folder)
    if not is_main_process():
        yield run
        return
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    with locked(folder), full_disk_named(folder):
        if run.holds_something():
            _check_same_request(run, request)
            _note_resumption(run)
        else:
            _refuse_foreign_files(run)
            for path in (run.log, run.probe):
                path.unlink(missing_ok=True)
            write_json(run.notes, {"request": request, **machine.about(PACKAGES)})
        try:
            yield run
        except BibertError:
            if not run.holds_something():
                _clear_away(run, new_folders)
            raise


def _refuse_foreign_files(run: RunFolder) -> None:
    """A run replaces what a failed run left, and nothing else of the same name."""
    notes = read_json(run.notes)
    ours = isinstance(notes, dict) and "request" in notes
    left = () if ours else (run.notes, run.log, run.probe)
    for path in (run.model, *left):  # a model of ours has a manifest, so it is not here
        if path.exists():
            raise CheckpointError(f"{path}: is not of a run, and a run would replace it; choose another output folder")


def _clear_away(run: RunFolder, new_folders: Sequence[Path]) -> None:
    """Leave nothing of a run that failed before it had something to keep."""
    for path in (run.notes, run.log, run.probe, run.path / LOCK):
        path.unlink(missing_ok=True)
    for folder in (*run.path.glob("stages/*"), run.path / "stages", *new_folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def is_main_process() -> bool:
    """Whether this is the process that writes, by the variables that torchrun and accelerate set."""
    return int(os.environ.get("RANK", "0")) == 0


def _check_same_request(run: RunFolder, request: Mapping[str, Any]) -> None:
    before, now = _flat(_whole(_request_of(run))), _flat(_whole(json.loads(json.dumps(request))))
    changed = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
    names = _names_of_known_content(before) & _names_of_known_content(now)
    decisive = next((key for key in changed if key not in names), None)
    if decisive is not None:
        key = _telling(decisive, changed)
        raise CheckpointError(
            f"{run.path}: holds another run ({key} was {before.get(key)!r}, now {now.get(key)!r}); "
            "choose another output folder, or delete this one"
        )


def _telling(decisive: str, changed: Sequence[str]) -> str:
    """The changed key that says most: the name of a scheme, or of that whose digest changed."""
    if decisive.startswith("scheme.") and "scheme.name" in changed:
        return "scheme.name"
    place = decisive.removesuffix("sha256")
    return next(key for key in changed if key == decisive or (place != decisive and key.startswith(place)))


def _note_resumption(run: RunFolder) -> None:
    """Note who goes on with an unfinished run, if that is another commit, machine or version than those before."""
    notes, here = read_json(run.notes), machine.about(PACKAGES)
    known = [notes, *notes.get("resumed", [])]
    same = any(all(one.get(name) == here[name] for name in ("commit", "versions", "cpu")) for one in known)
    if "metrics" not in notes and not same:
        write_json(run.notes, {**notes, "resumed": [*known[1:], here]})


def _whole(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request with every field of its recipe and scheme, whichever version wrote it."""
    whole = {**request, "recipe": with_defaults(request.get("recipe", {}))}
    return whole | {"scheme": Scheme.from_dict(request["scheme"]).to_dict()} if "scheme" in request else whole


def _names_of_known_content(request: Mapping[str, Any]) -> set[str]:
    """What may differ between equal requests: names of data and models whose digests stand beside them."""
    places = [key.removesuffix("sha256") for key, value in request.items() if key.endswith(".sha256") and value]
    return {f"{place}{name}" for place in places for name in ("name", "source", "train")}


def _request_of(run: RunFolder) -> Any:
    notes = read_json(run.notes)
    if not isinstance(notes, dict) or "request" not in notes:
        raise CheckpointError(
            f"{run.notes}: does not say what was asked for, so the run cannot go on; choose another output folder"
        )
    return notes["request"]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    parts = [_flat(inner, f"{prefix}.{key}" if prefix else key) for key, inner in value.items()]
    return {key: inner for part in parts for key, inner in part.items()}


def fingerprint(data: "TextData") -> str:
    """A digest of every text and label, so that a run is resumed on the data it started with."""
    sha256 = hashlib.sha256()
    for name, split in {"train": data.train, **data.dev}.items():
        sha256.update(repr((name, len(split), split.pairs is None)).encode())
        for row in zip(split.texts, split.pairs or split.texts, split.labels, strict=True):
            sha256.update(repr(row).encode())
    return sha256.hexdigest()


def weights_digest(checkpoint: str | Path) -> str | None:
    """A digest of the weights in a folder, so that a run goes on from the model it started with; None on the Hub."""
    files = sorted(Path(checkpoint).glob("*.safetensors"))
    return hashlib.sha256("".join(map(digest, files)).encode()).hexdigest() if files else None


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
    """What the weights take on the disk, and a little for the files beside them."""
    weights: int = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    return weights + BESIDE_THE_WEIGHTS


def request_of(command: str, data: "TextData", recipe: Recipe, **models: str | Path) -> dict[str, Any]:
    """What a run was asked for, as plain values; a run goes on only if it is asked for the same again."""
    return {
        "command": command,
        "data": {
            "name": data.name,
            "source": str(data.source),
            "train": Path(data.train.origin).name,
            "labels": list(data.label_names),
            "sha256": fingerprint(data),
        },
        "recipe": recipe.to_dict(),
        **{role: {"name": str(name), "sha256": weights_digest(name)} for role, name in models.items()},
    }


def save_stage(run: RunFolder, name: str, classifier: "Classifier") -> None:
    """Keep the best model of a stage for the next one."""
    if is_main_process():
        save_classifier(classifier, run.stage_result(name))
    _wait_for_everyone()  # the other processes read it next


def finish(run: RunFolder, classifier: "Classifier", metrics: Mapping[str, float]) -> None:
    """Save the trained model and note its metrics; a run folder with metrics is a finished run."""
    if is_main_process():
        save_classifier(classifier, run.model)
        write_json(run.notes, read_json(run.notes) | {"metrics": dict(metrics)})
    _wait_for_everyone()  # the next run of the other processes may start from this model


def _wait_for_everyone() -> None:
    from accelerate import PartialState  # which imports torch

    PartialState().wait_for_everyone()


def finished_metrics(run: RunFolder) -> dict[str, float] | None:
    """The metrics of a finished run; None for one that has still to go on."""
    notes = read_json(run.notes)
    return notes.get("metrics") if notes and run.model.is_dir() else None


def provenance(model: Path) -> dict[str, Any]:
    """Where a model comes from, by the run folder that it is or lies in: scheme, data, recipe, metrics; empty without.

    Where the run started from another trained model, `start` is the provenance of that one; it is None where a student
    was made from its teacher. Names of folders are left out: they mean nothing on another machine.
    """
    folder = model.absolute()  # which has a name and a parent where `model` is "."
    run = RunFolder(folder.parent if folder.name == RUN_MODEL else folder)
    notes = read_json(run.notes) if run.model.is_dir() else None
    if not isinstance(notes, dict) or "metrics" not in notes:
        return {}
    request = notes["request"]
    return {
        "scheme": _scheme_name(request),
        "data": {name: request["data"][name] for name in ("name", "train", "sha256")},
        "recipe": request["recipe"],
        "teacher_sha256": request.get("teacher", {}).get("sha256"),
        "start": _start_of(request),
        "metrics": notes["metrics"],
        **{name: notes.get(name) for name in ("versions", "cpu", "date")},
        "commit": _commits(notes),
    }


def _scheme_name(request: Mapping[str, Any]) -> str:
    return Scheme.from_dict(request["scheme"]).name if "scheme" in request else "full_precision"


def _commits(notes: Mapping[str, Any]) -> str | None:
    """The commit of a run, or all that went on with it, in order."""
    found = dict.fromkeys(one.get("commit") for one in (notes, *notes.get("resumed", [])))
    return ", ".join(str(commit) for commit in found) if any(found) else None


def _start_of(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The provenance of the model that a student started from; its digest alone if no run that is there made it."""
    if "start" not in request:
        return None
    folder, sha256 = Path(request["start"]["name"]), request["start"]["sha256"]
    known = provenance(folder) if weights_digest(folder) == sha256 else {}
    return {"sha256": sha256, **known}

"""Where a model comes from: the request noted in `run.json`, digests of data and weights, and `provenance` to read it.

Importing this needs no torch.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibert.files import load_json, sha256_of
from bibert.nn import RUN_MODEL, is_packed
from bibert.nn.schemes import Scheme

if TYPE_CHECKING:
    from bibert.data.examples import TextData
    from bibert.training.recipe import Recipe

NOTES = "run.json"


def request_of(command: str, data: "TextData", recipe: "Recipe", **models: str | Path) -> dict[str, Any]:
    """What a run is asked to do, as plain values; a run resumes only if the request is the same."""
    return {
        "command": command,
        "data": {
            "name": data.name,
            "source": str(data.source),
            "train": Path(data.train.origin).name,
            "labels": list(data.label_names),
            "sha256": fingerprint(data),
            **({} if data.unlabelled is None else {"texts": data.unlabelled.origin}),
            **({"columns": data.columns.noted()} if data.columns.names else {}),
        },
        "recipe": recipe.to_dict(),
        **{role: {"name": str(name), "sha256": weights_digest(name)} for role, name in models.items()},
    }


def fingerprint(data: "TextData") -> str:
    """A digest of every text and label."""
    sha256 = hashlib.sha256()
    texts = {} if data.unlabelled is None else {"texts": data.unlabelled}
    for name, split in {"train": data.train, **data.dev, **texts}.items():
        sha256.update(repr((name, len(split), split.pairs is None)).encode())
        for row in zip(split.texts, split.pairs or split.texts, split.labels, strict=True):
            sha256.update(repr(row).encode())
    return sha256.hexdigest()


def weights_digest(checkpoint: str | Path) -> str | None:
    """A digest of the weights in a folder or of a packed file; None for a name on the Hub."""
    path = Path(checkpoint)
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest() if files else None


def provenance(model: Path) -> dict[str, Any]:
    """Scheme, data, recipe, metrics and versions of the finished run that `model` is or lies in; empty without one.

    `start` is the provenance of the trained model that a student started from; None if it was made from its teacher.
    `temperature` is missing in runs of earlier versions. Folder names mean nothing on another machine and are left out.
    """
    folder = model.absolute()  # so that "." has a name and a parent
    run = folder.parent if folder.name == RUN_MODEL else folder
    notes = load_json(run / NOTES) if (run / RUN_MODEL).is_dir() else None
    if isinstance(notes, dict):
        notes = {**notes, **notes.get("before", {})}  # of the model that is there while its run goes on longer
    if not isinstance(notes, dict) or "metrics" not in notes:
        return {}
    request = notes["request"]
    return {
        "scheme": Scheme.from_dict(request["scheme"]).name if "scheme" in request else "full_precision",
        "data": {name: value for name, value in request["data"].items() if name not in ("source", "labels")},
        "recipe": request["recipe"],
        "teacher_sha256": request.get("teacher", {}).get("sha256"),
        "start": _start(request["start"]) if "start" in request else None,
        "metrics": notes["metrics"],
        **{name: notes[name] for name in ("temperature",) if name in notes},
        **{name: notes.get(name) for name in ("versions", "cpu", "date")},
        "commit": _commits(notes),
    }


def _start(start: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a student's start: the name of a packed file; only a digest if the model is gone or changed."""
    folder = Path(start["name"])
    if is_packed(folder):
        return {"sha256": start["sha256"], "file": folder.name}
    known = provenance(folder) if weights_digest(folder) == start["sha256"] else {}
    return {"sha256": start["sha256"], **known}


def _commits(notes: Mapping[str, Any]) -> str | None:
    """The commit of a run, followed by those that resumed it."""
    found = dict.fromkeys(one.get("commit") for one in (notes, *notes.get("resumed", [])))
    return ", ".join(str(commit) for commit in found) if any(found) else None

"""What is written down about a trained model: the notes and the log of its run folder, or the header of its file.

Nothing is computed here and no torch is needed; a report is made of it in `pages.report`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bibert.errors import DataError, SchemeError
from bibert.files import read_json_lines
from bibert.lab.architecture import read_architecture
from bibert.lab.history import History, load_history
from bibert.lab.parts import scheme_of_file
from bibert.models import find_file
from bibert.nn import CONFIG_NAME, RUN_MODEL
from bibert.nn.schemes import Scheme, get_scheme
from bibert.packed import file
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig
from bibert.training.provenance import NOTES
from bibert.training.run import LOG, PROBE

FACTS = ("commit", "date", "cpu", "python", "versions")


@dataclass(frozen=True)
class Record:
    """What is known of a model.

    Attributes:
        name: the file or the run folder.
        model: where the model itself is; None for a run that has none yet.
        scheme: how it is quantized.
        architecture: its shape; None where there is no model yet, and for a split one, which no rule counts.
        labels: names of its classes; one name for a score.
        data: name, digest and the like of what it was trained on.
        recipe: every hyper-parameter.
        metrics: of the dev set, as noted at the end of the training.
        origin: commit, date, machine, versions.
        log: every event of the training, in order; empty for a file.
        history: what looks into it found while it trained.
        packed: the file, if it is one.
    """

    name: str
    model: Path | None
    scheme: Scheme
    architecture: PackedConfig | None
    labels: Sequence[str]
    data: Mapping[str, Any]
    recipe: Mapping[str, Any]
    metrics: Mapping[str, float]
    origin: Mapping[str, Any]
    log: Sequence[Mapping[str, Any]] = ()
    history: History | None = None
    packed: PackedModel | None = None

    @property
    def has_bits(self) -> bool:
        """Whether `inside` can look into it: single bits everywhere, or none at all."""
        return not self.scheme.is_quantized or self.scheme.is_binarized


def load_record(path: str | Path) -> Record:
    """Read a run folder, finished or not, or a packed file.

    Raises:
        DataError: the folder is not that of a run.
        ModelFileError: the file is not a whole packed model.
    """
    folder = Path(path)
    if (folder / NOTES).is_file():
        return _of_run(folder)
    if (folder / CONFIG_NAME).is_file():
        raise DataError(f"{path}: is a model folder; give the run folder around it, which has {NOTES} and {LOG}")
    return _of_file(find_file(path))


def _of_run(folder: Path) -> Record:
    try:
        notes = json.loads((folder / NOTES).read_text(encoding="utf-8"))
        request = notes["request"]
        scheme = Scheme.from_dict(request["scheme"]) if "scheme" in request else get_scheme("full_precision")
        model = folder / RUN_MODEL
        has_model = (model / CONFIG_NAME).is_file()
        return Record(
            name=folder.name,
            model=model if has_model else None,
            scheme=scheme,
            architecture=read_architecture(model) if has_model and not scheme.split else None,
            labels=_labels(model) if has_model else (),
            data=request["data"],
            recipe=request["recipe"],
            metrics=notes.get("metrics", {}),
            origin={name: notes[name] for name in FACTS if name in notes},
            log=read_json_lines(folder / LOG) if (folder / LOG).is_file() else (),
            history=load_history(folder) if (folder / PROBE).is_file() else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: {NOTES} or {LOG} is not what a training writes ({error!r}); train again") from error


def _labels(model: Path) -> tuple[str, ...]:
    names = json.loads((model / CONFIG_NAME).read_text(encoding="utf-8"))["id2label"]
    return tuple(names[label] for label in sorted(names, key=int))


def _scheme_of(packed: PackedModel) -> Scheme:
    """The scheme that a file names; where it is a user's own, one that computes the same."""
    name = str(packed.about.get("scheme", "bibert"))
    try:
        return get_scheme(name)
    except SchemeError:
        return scheme_of_file(packed.config, name)


def _of_file(path: Path) -> Record:
    packed = file.load(path)
    about = packed.about
    return Record(
        name=path.name,
        model=path,
        scheme=_scheme_of(packed),
        architecture=packed.config,
        labels=packed.labels,
        data=about.get("data", {}),
        recipe=about.get("recipe", {}),
        metrics=about.get("metrics", {}),
        origin={name: about[name] for name in FACTS if name in about},
        packed=packed,
    )

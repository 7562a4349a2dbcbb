"""What was recorded about a trained model: the notes, log and probe file of its run folder, or the header of its file.

Nothing is computed here and torch is not needed; `pages.report` makes a report of it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bibert.errors import DataError, SchemeError
from bibert.files import read_json_lines
from bibert.lab.architecture import read_architecture
from bibert.lab.direction import Floats, Movement, distilled_by
from bibert.lab.look import require_head
from bibert.lab.parts import scheme_of_file
from bibert.models import find_file
from bibert.nn import CONFIG_NAME, RUN_MODEL, network_folder
from bibert.nn.schemes import Scheme, as_scheme, get_scheme
from bibert.packed import file
from bibert.packed.file import PackedModel
from bibert.packed.schema import PackedConfig
from bibert.training.provenance import NOTES, provenance, weights_digest
from bibert.training.run import LOG, PROBE

FACTS = ("commit", "date", "cpu", "python", "versions")


@dataclass(frozen=True)
class History:
    """The looks into one student in the last stage of its training; tables are (looks, layers, heads)."""

    name: str
    scheme: str
    asked: Sequence[str]  # the members of `direction.THINGS` that training matches with the teacher's
    steps: Sequence[int]  # the optimizer step of each look with entropies
    entropy: Mapping[str, Floats]  # for each activation; without heads for a layer's
    moves: Sequence[int]  # the step of each look with movements since the one before
    direction: Mapping[str, Movement]  # for each of `direction.THINGS`

    def of_head(self, layer: int, head: int) -> "History":
        """One head alone, in tables of one layer with one head."""
        tables = next(iter(self.direction.values()), self.entropy)
        require_head(self.name, next(iter(tables.values())).shape[1:], layer, head)
        one = np.s_[:, layer : layer + 1, head : head + 1]
        entropy = {name: table[one[: table.ndim]] for name, table in self.entropy.items()}
        things = self.direction.items()
        moved = {thing: {field: table[one] for field, table in fields.items()} for thing, fields in things}
        return replace(self, entropy=entropy, direction=moved)


def load_history(run: Path) -> History:
    """Read the probe file of a run folder."""
    path = run / PROBE
    if not path.is_file():
        watch = "train with --probe-every 50 to see what happens during training"
        look = "give texts (--text, --texts) to look into a trained model"
        raise DataError(f"{run}: has no {PROBE}; {watch}, or {look}")
    try:
        events = read_json_lines(path)
        last = [event for event in events if event["stage"] == events[-1]["stage"]]
        looks, moves = ([event for event in last if kind in event] for kind in ("entropy", "direction"))
        notes = json.loads((run / NOTES).read_text(encoding="utf-8"))
        scheme = Scheme.from_dict(notes["request"]["scheme"])
        sites = looks[0]["entropy"] if looks else ()
        return History(
            name=run.name,
            scheme=scheme.name,
            asked=distilled_by(scheme),
            steps=[event["step"] for event in looks],
            entropy={site: np.array([event["entropy"][site] for event in looks]) for site in sites},
            moves=[event["step"] for event in moves],
            direction=stacked([event["direction"] for event in moves]),
        )
    except (ValueError, KeyError, TypeError, IndexError, FileNotFoundError) as error:
        raise DataError(f"{run}: {PROBE} or {NOTES} is damaged ({error!r}); train again") from error


def stacked(moves: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Movement]:
    """Successive movements as tables, (looks, layers, heads) each."""
    return {
        thing: {field: np.array([move[thing][field] for move in moves]) for field in fields}
        for thing, fields in (moves[0] if moves else {}).items()
    }


def curve(log: Sequence[Mapping[str, Any]], stage: str, name: str) -> dict[int, float]:
    """A value of a training log by its step in a stage.

    The first one at a step counts: at the end of a stage the best model is scored again, under the last step's number.
    """
    points: dict[int, float] = {}
    for event in log:
        if event["stage"] == stage and name in event:
            points.setdefault(event["step"], event[name])
    return points


@dataclass(frozen=True)
class Record:
    """Everything recorded about a model."""

    name: str  # the file or the run folder
    model: Path | None  # None for a run that has none yet
    scheme: Scheme
    architecture: PackedConfig | None  # None without a model, and for a split one, which no rule counts
    labels: Sequence[str]  # one name for a score
    data: Mapping[str, Any]  # name, digest and the like of the training data
    recipe: Mapping[str, Any]
    metrics: Mapping[str, float]  # of the dev set, at the end of training
    temperature: float  # of its scores
    origin: Mapping[str, Any]  # the `FACTS`
    log: Sequence[Mapping[str, Any]] = ()  # every event of the training, in order; empty for a file
    history: History | None = None
    teacher: Mapping[str, float] = field(default_factory=dict)  # its metrics, if its run is still where it was
    packed: PackedModel | None = None  # the file, if it is one

    @property
    def has_bits(self) -> bool:
        """Whether `look` can show it: bits or levels everywhere, or full precision."""
        return not self.scheme.is_quantized or self.scheme.is_discrete


def load_record(path: str | Path) -> Record:
    """Read a run folder, finished or not, or a packed file."""
    folder = Path(path)
    if (folder / NOTES).is_file():
        return _of_run(folder)
    if network_folder(folder):
        raise DataError(f"{path}: is a model folder; give the run folder around it, which has {NOTES} and {LOG}")
    return _of_file(find_file(path))


def _of_run(folder: Path) -> Record:
    try:
        notes = json.loads((folder / NOTES).read_text(encoding="utf-8"))
        request = notes["request"]
        scheme = as_scheme(request.get("scheme", "full_precision"))
        model = folder / RUN_MODEL
        has_model = (model / CONFIG_NAME).is_file()
        names = json.loads((model / CONFIG_NAME).read_text(encoding="utf-8"))["id2label"] if has_model else {}
        return Record(
            name=folder.name,
            model=model if has_model else None,
            scheme=scheme,
            architecture=read_architecture(model) if has_model and not scheme.split else None,
            labels=tuple(names[label] for label in sorted(names, key=int)),
            data=request["data"],
            recipe=request["recipe"],
            metrics=notes.get("metrics", {}),
            temperature=notes.get("temperature", 1.0),
            origin={name: notes[name] for name in FACTS if name in notes},
            log=read_json_lines(folder / LOG) if (folder / LOG).is_file() else (),
            history=load_history(folder) if (folder / PROBE).is_file() else None,
            teacher=_teacher_metrics(**request.get("teacher", {})),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: {NOTES} or {LOG} is damaged ({error!r}); train again") from error


def _teacher_metrics(name: str = "", sha256: str = "") -> Mapping[str, float]:
    """What the notes of a teacher's run say, if the model there is still the teacher."""
    folder = Path(name)
    if not name or not (folder.parent / NOTES).is_file() or weights_digest(folder) != sha256:
        return {}
    metrics: Mapping[str, float] = provenance(folder).get("metrics", {})
    return metrics


def _of_file(path: Path) -> Record:
    packed = file.load(path)
    about = packed.about
    name = str(about.get("scheme", "bibert"))
    try:
        scheme = get_scheme(name)
    except SchemeError:  # a scheme of the user's own: take one that computes the same
        scheme = scheme_of_file(packed.config, name)
    return Record(
        name=path.name,
        model=path,
        scheme=scheme,
        architecture=packed.config,
        labels=packed.labels,
        data=about.get("data", {}),
        recipe=about.get("recipe", {}),
        metrics=about.get("metrics", {}),
        temperature=packed.temperature,
        origin={name: about[name] for name in FACTS if name in about},
        packed=packed,
    )

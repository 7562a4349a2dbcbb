"""What was noted while a student trained: the probe file of a run as arrays, and curves of its log.

The probe file is written by `training.probe`, its numbers are those of `entropy` and `direction`; the log by
`training.log`. No torch is needed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError
from bibert.files import read_json_lines
from bibert.lab.movement import distilled_by
from bibert.nn.schemes import Scheme
from bibert.training.provenance import NOTES
from bibert.training.run import PROBE

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """The looks into one student in the last stage of its training.

    Attributes:
        name: the run folder.
        scheme: the name of its scheme.
        asked: which of `movement.THINGS` its training matches with the teacher's.
        steps: the optimizer step of each look with entropies.
        entropy: (looks, layers, heads) or (looks, layers) for each name of `entropy.Entropies`.
        moves: the step of each look that knows how the student moved since the one before.
        direction: for each thing of `direction.THINGS` the tables of a `Movement`, (looks, layers, heads) each.
    """

    name: str
    scheme: str
    asked: Sequence[str]
    steps: Sequence[int]
    entropy: Mapping[str, Floats]
    moves: Sequence[int]
    direction: Mapping[str, Mapping[str, Floats]]

    def of_head(self, layer: int, head: int) -> "History":
        """The same of one head alone, in tables of one layer with one head.

        Raises:
            DataError: there is no such head.
        """
        shape = next(iter([*self.entropy.values(), *(t for f in self.direction.values() for t in f.values())])).shape
        if not (layer < shape[1] and head < shape[2]):
            raise DataError(
                f"{self.name}: has no layer {layer} with a head {head}; layers are 0 to {shape[1] - 1}, "
                f"heads 0 to {shape[2] - 1}"
            )
        one = (slice(None), slice(layer, layer + 1), slice(head, head + 1))
        return replace(
            self,
            entropy={name: table[one[: table.ndim]] for name, table in self.entropy.items()},
            direction={
                thing: {field: table[one] for field, table in fields.items()}
                for thing, fields in self.direction.items()
            },
        )


def curve(log: Sequence[Mapping[str, Any]], stage: str, name: str) -> dict[int, float]:
    """A number of a training log by the step it was logged at in a stage.

    The first at a step counts: at the end of a stage the best model is scored once more, under the last step's number.
    """
    points: dict[int, float] = {}
    for event in log:
        if event["stage"] == stage and name in event:
            points.setdefault(event["step"], event[name])
    return points


def load_history(run: Path) -> History:
    """Read the probe file of a run folder.

    Raises:
        DataError: the folder has none, or not one of ours.
    """
    path = run / PROBE
    if not path.is_file():
        raise DataError(
            f"{run}: has no {PROBE}; train with --probe-every 50 to see what happens through training, or give texts "
            "(--text, --texts) to look into a trained model"
        )
    try:
        events = read_json_lines(path)
        last = [event for event in events if event["stage"] == events[-1]["stage"]]
        notes = json.loads((run / NOTES).read_text(encoding="utf-8"))
        scheme = Scheme.from_dict(notes["request"]["scheme"])
        return History(run.name, scheme.name, distilled_by(scheme), *_entropies(last), *_movements(last))
    except (ValueError, KeyError, TypeError, IndexError, FileNotFoundError) as error:
        raise DataError(f"{run}: {PROBE} or {NOTES} is not what a training writes ({error!r}); train again") from error


def _entropies(events: Sequence[dict[str, Any]]) -> tuple[list[int], dict[str, Floats]]:
    found = [event for event in events if "entropy" in event]
    names = found[0]["entropy"] if found else ()
    tables = {name: np.array([event["entropy"][name] for event in found]) for name in names}
    return [event["step"] for event in found], tables


def _movements(events: Sequence[dict[str, Any]]) -> tuple[list[int], dict[str, dict[str, Floats]]]:
    found = [event for event in events if "direction" in event]
    return [event["step"] for event in found], stacked([event["direction"] for event in found])


def stacked(moves: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Floats]]:
    """Movements one after the other as tables, (looks, layers, heads) each."""
    return {
        thing: {field: np.array([move[thing][field] for move in moves]) for field in fields}
        for thing, fields in (moves[0] if moves else {}).items()
    }

"""What looks into a student found while it trained, as arrays: the probe file of a run, read.

The file is written by `training.probe`; its numbers are those of `entropy` and `direction`. No torch is needed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibert.errors import DataError
from bibert.files import read_json_lines

# The files of a run folder that are read here and in a report; `training.run` has the whole list.
NOTES = "run.json"
LOG = "log.jsonl"
PROBE = "probe.jsonl"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """The looks into one student in the last stage of its training.

    Attributes:
        name: the run folder.
        scheme: the name of its scheme.
        steps: the optimizer step of each look with entropies.
        entropy: (looks, layers, heads) or (looks, layers) for each name of `entropy.Entropies`.
        moves: the step of each look that knows how the student moved since the one before.
        direction: for each thing of `direction.THINGS` the tables of a `Movement`, (looks, layers, heads) each.
    """

    name: str
    scheme: str
    steps: Sequence[int]
    entropy: Mapping[str, Floats]
    moves: Sequence[int]
    direction: Mapping[str, Mapping[str, Floats]]


def load_history(run: Path) -> History:
    """Read the probe file of a run folder.

    Raises:
        DataError: the folder has none, or not one of ours.
    """
    path = run / PROBE
    if not path.is_file():
        raise DataError(f"{run}: has no {PROBE}; train with --probe-every 50, or give texts to look at the model alone")
    try:
        events = read_json_lines(path)
        last = [event for event in events if event["stage"] == events[-1]["stage"]]
        notes = json.loads((run / NOTES).read_text(encoding="utf-8"))
        return History(run.name, notes["request"]["scheme"]["name"], *_entropies(last), *_movements(last))
    except (ValueError, KeyError, TypeError, IndexError, FileNotFoundError) as error:
        raise DataError(f"{run}: {PROBE} or {NOTES} is not what a training writes ({error!r}); train again") from error


def _entropies(events: Sequence[dict[str, Any]]) -> tuple[list[int], dict[str, Floats]]:
    found = [event for event in events if "entropy" in event]
    names = found[0]["entropy"] if found else ()
    tables = {name: np.array([event["entropy"][name] for event in found]) for name in names}
    return [event["step"] for event in found], tables


def _movements(events: Sequence[dict[str, Any]]) -> tuple[list[int], dict[str, dict[str, Floats]]]:
    found = [event for event in events if "direction" in event]
    tables = {
        thing: {field: np.array([event["direction"][thing][field] for event in found]) for field in fields}
        for thing, fields in (found[0]["direction"] if found else {}).items()
    }
    return [event["step"] for event in found], tables

"""A packed file beside its rivals: time, size and memory of each, on the same shape and the same inputs.

All engines are loaded into this process and take turns (`timing`); child processes build and measure memory (`alone`).
A rival that is not installed or fails keeps its line in the report, with the reason.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from bibert import machine
from bibert.cli.console import tracked
from bibert.errors import BibertError
from bibert.lab.rivals.alone import ChildError, build_alone, peak_memory_alone
from bibert.lab.rivals.engines import OURS, RIVALS, Rival
from bibert.lab.rivals.models import Blueprint, Ids, Logits, Run, Shape, random_batch
from bibert.lab.rivals.timing import Timing, summarize, take_turns
from bibert.packed.schema import PackedConfig
from bibert.runtime.engine import Engine

DEFAULT_SHAPES = (Shape(1, 32), Shape(1, 128))  # a query and a paragraph; quick even for BERT base


@dataclass(frozen=True)
class Plan:
    """What to compare, and how."""

    rivals: tuple[Rival, ...] = tuple(RIVALS.values())
    shapes: tuple[Shape, ...] = DEFAULT_SHAPES
    rounds: int = 20  # turns of every engine at each shape
    threads: int = 1  # of every engine


@dataclass(frozen=True)
class Entry:
    """The result of one engine."""

    name: str
    note: str = ""  # why it was not run
    file_bytes: int | None = None
    peak_bytes: int | None = None  # memory of a process that runs it alone at the largest shape, Python included
    timings: Mapping[Shape, Timing] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """A finished comparison: ours, other packed files, then the rivals in the order of the plan."""

    config: PackedConfig
    isa: str  # of our engine
    plan: Plan
    entries: tuple[Entry, ...]
    cpu_share: Mapping[Shape, float]  # see `timing.QUIET`

    def to_dict(self) -> dict[str, Any]:
        """Plain values with the machine and the versions, for JSON."""
        packages = ["numpy", *(name for rival in self.plan.rivals for name in rival.packages)]
        return {
            "architecture": self.config.to_dict(),
            "machine": {**machine.about(packages), "isa": self.isa, "threads": self.plan.threads},
            "rounds": self.plan.rounds,
            "shapes": [str(shape) for shape in self.plan.shapes],
            "cpu_share": {str(shape): share for shape, share in self.cpu_share.items()},
            "engines": [
                asdict(entry) | {"timings": {str(shape): asdict(timing) for shape, timing in entry.timings.items()}}
                for entry in self.entries
            ],
        }


def compare(path: Path, plan: Plan, others: Mapping[str, Path] | None = None) -> Report:
    """Time a packed file, `others` of the same shape by name, and the rivals in turns; progress goes to stderr."""
    engine = Engine.load(path, threads=plan.threads)
    config, shapes = engine.config, plan.shapes
    for shape in shapes:
        if shape.length > (most := config.positions):
            raise BibertError(f"shape {shape}: {shape.length} tokens, the model takes {most}; choose a shorter one")
    files = {OURS: path, **(others or {})}
    entries = [Entry(name, "", file.stat().st_size, _peak(OURS, file, config, plan)) for name, file in files.items()]
    runs: dict[str, Run] = {OURS: engine.logits}
    runs |= {name: Engine.load(file, threads=plan.threads).logits for name, file in files.items() if name != OURS}
    with tempfile.TemporaryDirectory(prefix="bibert-bench-") as folder:
        for rival in tracked(plan.rivals, len(plan.rivals), "preparing rivals"):
            entry, run = _prepare(rival, config, plan, Path(folder))
            entries.append(entry)
            runs |= {} if run is None else {rival.name: run}
        calls: dict[str, Callable[[tuple[Ids, Ids]], Logits]]
        calls = {name: partial(lambda run, batch: run(*batch), run) for name, run in runs.items()}
        turns = {}
        for shape in shapes:
            batches = repeat(random_batch(shape, config.vocabulary), plan.rounds)
            turns[shape] = take_turns(calls, tracked(batches, plan.rounds, f"timing {shape}"))
    timings = {shape: summarize(turns[shape].seconds, OURS) for shape in shapes}
    timed = [
        replace(entry, timings={shape: timings[shape][entry.name] for shape in shapes if entry.name in runs})
        for entry in entries
    ]
    return Report(config, engine.isa, plan, tuple(timed), {shape: turns[shape].cpu_share for shape in shapes})


def _prepare(rival: Rival, config: PackedConfig, plan: Plan, folder: Path) -> tuple[Entry, Run | None]:
    """Build and load a rival; the entry of one that cannot run has a note."""
    if rival.missing:
        return Entry(rival.name, note=f"not installed: pip install {' '.join(rival.missing)}"), None
    try:
        path = build_alone(rival.name, Blueprint(config), folder)
        peak = _peak(rival.name, path, config, plan)
    except ChildError as error:
        return Entry(rival.name, note=f"failed: {error}"), None
    return Entry(rival.name, "", rival.bytes_in(folder), peak), rival.load(path, plan.threads)


def _peak(name: str, path: Path, config: PackedConfig, plan: Plan) -> int:
    largest = max(plan.shapes, key=lambda shape: shape.batch * shape.length)
    return peak_memory_alone(name, path, plan.threads, largest, config.vocabulary)

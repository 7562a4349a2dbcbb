"""A packed file beside its rivals: time, size and memory of each, on the same shape and the same inputs.

All engines are loaded into this process and take turns; child processes build and measure memory (`alone`). A rival
that is not installed or fails keeps its line in the report, with the reason.

Slow moments of a machine hit all engines of a round alike. So engines are compared within a round; the result is the
median of the rounds' ratios with the quartiles. That does not help if other programs compete for the CPU all the time:
a short call fits between their time slices and a long one does not, which flatters the faster engine. So the share of
the time that this process had a CPU is recorded too.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bibert import machine
from bibert.cli.console import tracked
from bibert.errors import BibertError
from bibert.lab.rivals.alone import ChildError, build_alone, peak_memory_alone
from bibert.lab.rivals.engines import OURS, RIVALS, Blueprint, Ids, Logits, Rival, Run, Shape, random_batch
from bibert.packed.schema import PackedConfig
from bibert.runtime.engine import Engine

Item = TypeVar("Item")  # the input of a round

QUIET = 0.9  # below this share of a CPU, ratios are not fair
DEFAULT_SHAPES = (Shape(1, 32), Shape(1, 128))  # a query and a paragraph; quick even for BERT base


@dataclass(frozen=True)
class Ratio:
    """Time of an engine over that of the reference: median and quartiles over rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing:
    """Time of an engine for one call, over rounds, and its ratio to the reference."""

    median_ms: float
    best_ms: float
    ratio: Ratio


@dataclass(frozen=True)
class Turns:
    """What `take_turns` recorded."""

    seconds: Mapping[str, Sequence[float]]  # by engine, one for each round
    cpu_share: float  # CPU seconds of this process over elapsed seconds


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
    cpu_share: Mapping[Shape, float]  # see `QUIET`

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


def take_turns(calls: Mapping[str, Callable[[Item], object]], inputs: Iterable[Item]) -> Turns:
    """Call every engine once per round, after a round to warm up.

    `inputs` has one item for each round, at least one, for all engines. The warm-up uses the first: an engine allocates
    memory at its first call, and some compile for the shape then.
    """
    remaining = iter(inputs)
    first = next(remaining)
    for call in calls.values():
        _one_turn(call, first)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    start, cpu_start = time.perf_counter(), time.process_time()
    for item in chain([first], remaining):
        for name, call in calls.items():
            seconds[name].append(_one_turn(call, item))
    return Turns(seconds, (time.process_time() - cpu_start) / (time.perf_counter() - start))


def _one_turn(call: Callable[[Item], object], item: Item) -> float:
    """Seconds of the second of two calls.

    The other engines have just evicted the caches. In a service an engine follows itself, so the first call, which is
    not counted, brings its weights back.
    """
    call(item)
    start = time.perf_counter()
    call(item)
    return time.perf_counter() - start


def summarize(seconds: Mapping[str, Sequence[float]], reference: str) -> dict[str, Timing]:
    """The figures of every engine; a ratio above 1 means that `reference` is faster."""
    timings = {}
    for name, values in seconds.items():
        taken = np.asarray(values)
        low, median, high = np.quantile(taken / np.asarray(seconds[reference]), (0.25, 0.5, 0.75)).tolist()
        timings[name] = Timing(float(np.median(taken)) * 1e3, float(taken.min()) * 1e3, Ratio(median, low, high))
    return timings

"""A packed file beside its rivals: time, size and memory of each, on the same shape and the same inputs.

All engines are loaded into this process and take turns (`timing`); building and memory are the business of children
(`alone`). A rival that is not installed or fails keeps its line in the report and says why.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from bibert import machine
from bibert.errors import BibertError
from bibert.lab.rivals.alone import ChildError, build_alone, peak_memory_alone
from bibert.lab.rivals.blueprint import Blueprint
from bibert.lab.rivals.inputs import Ids, Logits, Run, Shape, random_batch
from bibert.lab.rivals.table import OURS, RIVALS, Rival
from bibert.lab.rivals.timing import Timing, Turns, summarize, take_turns
from bibert.packed.schema import PackedConfig
from bibert.runtime.engine import Engine

Item = TypeVar("Item")

DEFAULT_SHAPES = (Shape(1, 32), Shape(1, 128))  # a query and a paragraph, one at a time: quick even for BERT base


class Watch(Protocol):
    """Passes everything on and may show how far it is, as `cli.console.tracked` does."""

    def __call__(self, items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
        """Pass on `items`, of which there are `total`."""
        ...


def unwatched(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:  # noqa: ARG001
    """Pass everything on and show nothing."""
    yield from items


@dataclass(frozen=True)
class Plan:
    """What to compare, and how.

    Attributes:
        rivals: rows of `table.RIVALS`.
        shapes: batches to time.
        rounds: turns that every engine has at each shape.
        threads: of every engine.
    """

    rivals: tuple[Rival, ...] = tuple(RIVALS.values())
    shapes: tuple[Shape, ...] = DEFAULT_SHAPES
    rounds: int = 20
    threads: int = 1


@dataclass(frozen=True)
class Entry:
    """What is known about one engine.

    Attributes:
        name: `OURS` or the name of a rival.
        note: why it was not run; empty if it was.
        file_bytes: what its files take on disk.
        peak_bytes: peak resident memory of a process that runs it alone, Python included, at the largest shape.
        timings: by shape.
    """

    name: str
    note: str = ""
    file_bytes: int | None = None
    peak_bytes: int | None = None
    timings: Mapping[Shape, Timing] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"timings": {str(shape): asdict(timing) for shape, timing in self.timings.items()}}


@dataclass(frozen=True)
class Report:
    """A finished comparison.

    Attributes:
        config: the shape of the model.
        isa: the instructions that our engine used.
        plan: what was asked for.
        entries: ours, then the rivals in the order of the plan.
        cpu_share: by shape, how much of the time this process had a CPU; see `timing.QUIET`.
    """

    config: PackedConfig
    isa: str
    plan: Plan
    entries: tuple[Entry, ...]
    cpu_share: Mapping[Shape, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values with the machine and the versions, for JSON."""
        packages = ["numpy", *(name for rival in self.plan.rivals for name in rival.packages)]
        return {
            "architecture": self.config.to_dict(),
            "machine": {**machine.about(packages), "isa": self.isa, "threads": self.plan.threads},
            "rounds": self.plan.rounds,
            "shapes": [str(shape) for shape in self.plan.shapes],
            "cpu_share": {str(shape): share for shape, share in self.cpu_share.items()},
            "engines": [entry.to_dict() for entry in self.entries],
        }


def compare(path: Path, plan: Plan, watch: Watch = unwatched) -> Report:
    """Run a packed file and its rivals in turn.

    Args:
        path: the packed file.
        plan: rivals, shapes, rounds and threads.
        watch: follows the preparation and the rounds.

    Raises:
        ModelFileError: the file is not a packed model.
        BibertError: a shape is longer than the model's longest input.
    """
    engine = Engine.load(path, threads=plan.threads)
    _check_shapes(plan, engine.config)
    with tempfile.TemporaryDirectory(prefix="bibert-bench-") as folder:
        prepare = partial(_prepare, config=engine.config, plan=plan, folder=Path(folder))
        ours = _Ready(Entry(OURS, "", path.stat().st_size, _peak(OURS, path, engine.config, plan)), engine.logits)
        ready = [ours, *map(prepare, watch(plan.rivals, len(plan.rivals), "preparing rivals"))]
        runs = {one.entry.name: one.run for one in ready if one.run is not None}
        turns = {shape: _take_turns(runs, shape, engine.config, plan, watch) for shape in plan.shapes}
    timings = {shape: summarize(of_shape.seconds, OURS) for shape, of_shape in turns.items()}
    entries = tuple(_timed(one.entry, timings) for one in ready)
    cpu_share = {shape: of_shape.cpu_share for shape, of_shape in turns.items()}
    return Report(engine.config, engine.isa, plan, entries, cpu_share)


def _check_shapes(plan: Plan, config: PackedConfig) -> None:
    for shape in plan.shapes:
        if shape.length > config.positions:
            raise BibertError(
                f"shape {shape}: {shape.length} tokens, the model takes {config.positions}; choose a shorter one"
            )


class _Ready(NamedTuple):
    """An engine before its turns; `run` is None where there is nothing to run."""

    entry: Entry
    run: Run | None = None


def _prepare(rival: Rival, config: PackedConfig, plan: Plan, folder: Path) -> _Ready:
    if rival.missing:
        return _Ready(Entry(rival.name, note=f"not installed: pip install {' '.join(rival.missing)}"))
    try:
        path = build_alone(rival.name, Blueprint(config), folder)
        peak = _peak(rival.name, path, config, plan)
    except ChildError as error:
        return _Ready(Entry(rival.name, note=f"failed: {error}"))
    return _Ready(Entry(rival.name, "", rival.bytes_in(folder), peak), rival.load(path, plan.threads))


def _peak(name: str, path: Path, config: PackedConfig, plan: Plan) -> int:
    largest = max(plan.shapes, key=lambda shape: shape.batch * shape.length)
    return peak_memory_alone(name, path, plan.threads, largest, config.vocabulary)


def _take_turns(runs: Mapping[str, Run], shape: Shape, config: PackedConfig, plan: Plan, watch: Watch) -> Turns:
    batch = random_batch(shape, config.vocabulary)
    calls = {name: _on_both(run) for name, run in runs.items()}
    return take_turns(calls, watch(repeat(batch, plan.rounds), plan.rounds, f"timing {shape}"))


def _on_both(run: Run) -> Callable[[tuple[Ids, Ids]], Logits]:
    """An engine that takes ids and mask as one thing."""
    return lambda batch: run(*batch)


def _timed(entry: Entry, timings: Mapping[Shape, Mapping[str, Timing]]) -> Entry:
    own = {shape: of_shape[entry.name] for shape, of_shape in timings.items() if entry.name in of_shape}
    return replace(entry, timings=own)

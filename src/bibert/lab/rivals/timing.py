"""Times of engines that take turns, and what is said about them.

A machine has slow moments, and they hit all engines of a round alike. So engines are compared within a round, and the
figure is the median of the rounds' ratios, with the quartiles to show how sure it is. That does not help where other
programs compete for the CPU all the time: a short call slips between their turns and a long one does not, which
flatters the faster engine. So the share of the time that this process had a CPU is noted too.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")  # what engines are given in a round
Seconds = NDArray[np.float64]

QUIET = 0.9  # the share of the time that a process must have had a CPU for its ratios to be fair
WARM_UP_ROUNDS = 1  # the first call of an engine takes memory, and some compile for the shape then
MS = 1e3


@dataclass(frozen=True)
class Ratio:
    """How many times as long an engine takes as the one it is compared with: median and quartiles over rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing:
    """An engine's time for one call, over rounds, and its ratio to the engine of reference."""

    median_ms: float
    best_ms: float
    ratio: Ratio


@dataclass(frozen=True)
class Turns:
    """What was noted while engines took turns.

    Attributes:
        seconds: by engine, round by round.
        cpu_share: CPU seconds of this process over seconds that passed; below `QUIET` the machine was busy.
    """

    seconds: Mapping[str, Sequence[float]]
    cpu_share: float


def take_turns(calls: Mapping[str, Callable[[Item], object]], inputs: Iterable[Item]) -> Turns:
    """Give every engine a turn each round, in order, and note its seconds; a round to warm up comes before.

    Args:
        calls: by the name of an engine.
        inputs: one for each round that counts, at least one; all engines of a round get the same.
    """
    remaining = iter(inputs)
    first = next(remaining)
    for _ in range(WARM_UP_ROUNDS):
        _one_round(calls, first)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    start, cpu_start = time.perf_counter(), time.process_time()
    for item in chain([first], remaining):
        for name, value in _one_round(calls, item).items():
            seconds[name].append(value)
    return Turns(seconds, (time.process_time() - cpu_start) / (time.perf_counter() - start))


def _one_round(calls: Mapping[str, Callable[[Item], object]], item: Item) -> dict[str, float]:
    return {name: _one_turn(call, item) for name, call in calls.items()}


def _one_turn(call: Callable[[Item], object], item: Item) -> float:
    """The seconds of the second of two calls.

    The neighbours have just emptied the caches. In a service an engine follows itself, so the first call, which does
    not count, brings its weights back.
    """
    call(item)
    start = time.perf_counter()
    call(item)
    return time.perf_counter() - start


def summarize(seconds: Mapping[str, Sequence[float]], reference: str) -> dict[str, Timing]:
    """The figures of every engine; a ratio above 1 says that `reference` is faster."""
    paired = np.asarray(seconds[reference])
    return {name: _timing(np.asarray(values), paired) for name, values in seconds.items()}


def _timing(seconds: Seconds, paired: Seconds) -> Timing:
    low, median, high = np.quantile(seconds / paired, (0.25, 0.5, 0.75)).tolist()
    return Timing(float(np.median(seconds)) * MS, float(seconds.min()) * MS, Ratio(median, low, high))

"""Times of engines that take turns.

Slow moments of a machine hit all engines of a round alike. So engines are compared within a round; the result is the
median of the rounds' ratios with the quartiles. That does not help if other programs compete for the CPU all the time:
a short call fits between their time slices and a long one does not, which flatters the faster engine. So the share of
the time that this process had a CPU is recorded too.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")  # the input of a round

QUIET = 0.9  # below this share of a CPU, ratios are not fair
MS = 1e3


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
        timings[name] = Timing(float(np.median(taken)) * MS, float(taken.min()) * MS, Ratio(median, low, high))
    return timings

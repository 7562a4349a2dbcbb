"""Micro-batching without a timer: a request waits only while every thread is busy; a free thread takes what is there.

Alone, a request is computed at once. Under load batches grow by themselves. A request is admitted whole or not at all,
is computed in one batch, and leaves the queue when its client leaves. All methods run in the event loop but `_compute`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Generic, TypeVar

from bibert.runtime.text import Text

Result = TypeVar("Result")
Work = Callable[[list[Sequence[Text]]], list[Result]]  # the rows of several requests to the result of each


class QueueFullError(Exception):
    """As many texts wait as may wait."""


@dataclass(eq=False)
class Entry(Generic[Result]):
    """A request in the queue, and later its result; times are those of `perf_counter`."""

    rows: Sequence[Text]
    future: asyncio.Future[Result]
    arrived: float = field(default_factory=perf_counter)
    started: float = 0.0  # 0 while it waits
    done: float = 0.0


class Batcher(Generic[Result]):
    """A queue of at most `most_waiting` rows in front of `threads`, each of which takes up to `most_together` rows."""

    def __init__(self, work: Work[Result], *, threads: int, most_waiting: int, most_together: int) -> None:
        self._work = work
        self._most_waiting, self._most_together = most_waiting, most_together
        self._pool = ThreadPoolExecutor(threads)
        self._idle = threads
        self._queue: deque[Entry[Result]] = deque()
        self.rows_waiting = 0
        self.on_batch: Callable[[int], None] = lambda _: None  # is told the rows of every batch

    def admit(self, rows: Sequence[Text]) -> Entry[Result]:
        """Put a request into the queue, or raise `QueueFullError`; its future has the result."""
        if self._queue and self.rows_waiting + len(rows) > self._most_waiting:
            raise QueueFullError
        entry: Entry[Result] = Entry(rows, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        self.rows_waiting += len(rows)
        self._start()
        return entry

    def withdraw(self, entry: Entry[Result]) -> None:
        """Take a request out of the queue, if it still waits there."""
        if not entry.started:
            self._queue.remove(entry)
            self.rows_waiting -= len(entry.rows)
        entry.future.cancel()

    def _start(self) -> None:
        while self._idle and self._queue:
            batch, rows = [self._queue.popleft()], 0
            rows = len(batch[0].rows)
            while self._queue and rows + len(self._queue[0].rows) <= self._most_together:
                rows += len(self._queue[0].rows)
                batch.append(self._queue.popleft())
            self.rows_waiting -= rows
            self._idle -= 1
            self.on_batch(rows)
            now = perf_counter()
            for entry in batch:
                entry.started = now
            try:
                running = asyncio.get_running_loop().run_in_executor(self._pool, self._compute, batch)
            except (RuntimeError, MemoryError) as error:  # no thread can be started
                self._idle += 1
                for entry in batch:
                    entry.future.set_exception(error)
                batch.clear()  # the pool keeps it for a later thread
                continue
            running.add_done_callback(partial(self._finish, batch))

    def _compute(self, batch: list[Entry[Result]]) -> list[Result | Exception]:
        """The result of each request, or why it has none; one that fails does not take the others along."""
        try:
            return [*self._work([entry.rows for entry in batch])]
        except Exception as error:  # noqa: BLE001, it goes to the client of this request
            return [error] if len(batch) == 1 else [self._compute([entry])[0] for entry in batch]

    def _finish(self, batch: list[Entry[Result]], running: "asyncio.Future[list[Result | Exception]]") -> None:
        self._idle += 1
        now = perf_counter()
        for entry, result in zip(batch, running.result(), strict=True):
            entry.done = now
            if entry.future.done():  # its client left
                continue
            if isinstance(result, Exception):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(result)
        self._start()

"""The queue: batches form while threads are busy, requests are admitted whole, and leave when nobody waits."""

import asyncio
import threading

import pytest

from bibert.serving.batching import Batcher, QueueFullError


class Work:
    """Work that waits for permission, and keeps what it was asked."""

    def __init__(self):
        self.batches = []
        self.may_go = threading.Semaphore(0)

    def __call__(self, groups):
        self.batches.append([list(rows) for rows in groups])
        self.may_go.acquire()
        if any("bad" in rows for rows in groups):
            raise ValueError("bad")
        return [[row.upper() for row in rows] for rows in groups]


def run(scenario, **settings):
    """Run a coroutine function of a batcher and its work in a loop."""

    async def main():
        work = Work()
        usual = {"threads": 1, "most_waiting": 8, "most_together": 4}
        await scenario(Batcher(work, **usual | settings), work)

    asyncio.run(main())


def test_a_request_alone_is_computed_at_once_and_what_waits_goes_together():
    async def scenario(batcher, work):
        entries = [batcher.admit(rows) for rows in (["a"], ["b"], ["c", "d"], ["e", "f"], ["g"])]
        assert batcher.rows_waiting == 6
        for _ in range(3):
            work.may_go.release()
        assert await asyncio.gather(*(entry.future for entry in entries)) == [
            ["A"], ["B"], ["C", "D"], ["E", "F"], ["G"],
        ]  # fmt: skip
        assert work.batches == [[["a"]], [["b"], ["c", "d"]], [["e", "f"], ["g"]]]
        assert batcher.rows_waiting == 0

    run(scenario)


def test_a_request_larger_than_a_batch_is_computed_alone():
    async def scenario(batcher, work):
        first, large, last = (batcher.admit(rows) for rows in (["a"], list("bcdefg"), ["h"]))
        for _ in range(3):
            work.may_go.release()
        await asyncio.gather(first.future, large.future, last.future)
        assert work.batches == [[["a"]], [list("bcdefg")], [["h"]]]

    run(scenario)


def test_a_request_is_admitted_whole_or_not_at_all():
    async def scenario(batcher, work):
        entries = [batcher.admit(["a"]), batcher.admit(list("bcdefg"))]
        with pytest.raises(QueueFullError):
            batcher.admit(["x", "y", "z"])
        assert batcher.rows_waiting == 6
        entries.append(batcher.admit(["h", "i"]))  # what fits is still admitted
        for _ in range(3):
            work.may_go.release()
        await asyncio.gather(*(entry.future for entry in entries))
        assert "x" not in str(work.batches)

    run(scenario)


def test_a_request_that_is_withdrawn_makes_room_and_is_never_computed():
    async def scenario(batcher, work):
        first, gone = batcher.admit(["a"]), batcher.admit(list("bcdefghi"))
        with pytest.raises(QueueFullError):
            batcher.admit(["x"])
        batcher.withdraw(gone)
        assert (batcher.rows_waiting, gone.future.cancelled()) == (0, True)
        last = batcher.admit(["x"])
        work.may_go.release(2)
        await asyncio.gather(first.future, last.future)
        assert work.batches == [[["a"]], [["x"]]]

    run(scenario)


def test_a_request_withdrawn_while_it_is_computed_harms_nobody():
    async def scenario(batcher, work):
        first, second = batcher.admit(["a"]), batcher.admit(["b"])
        batcher.withdraw(first)
        work.may_go.release(2)
        assert await second.future == ["B"]

    run(scenario)


def test_one_request_that_fails_does_not_take_the_others_along():
    async def scenario(batcher, work):
        entries = [batcher.admit([row]) for row in ("a", "b", "bad", "c")]
        work.may_go.release(10)
        found = await asyncio.gather(*(entry.future for entry in entries), return_exceptions=True)
        assert found[:2] + found[3:] == [["A"], ["B"], ["C"]]
        assert isinstance(found[2], ValueError)

    run(scenario)


def test_a_thread_that_cannot_start_fails_its_requests_but_no_later_one():
    def no_thread(_):
        raise RuntimeError("can't start new thread")

    async def scenario(batcher, work):
        work.may_go.release(10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            entry = batcher.admit(["a"])
        with pytest.raises(RuntimeError, match="new thread"):
            await entry.future
        assert await batcher.admit(["b"]).future == ["B"]

    run(scenario)


def test_every_thread_takes_work():
    async def scenario(batcher, work):
        entries = [batcher.admit([row]) for row in "abc"]
        assert batcher.rows_waiting == 1
        work.may_go.release(3)
        await asyncio.gather(*(entry.future for entry in entries))
        assert sorted(work.batches) == [[["a"]], [["b"]], [["c"]]]

    run(scenario, threads=2)

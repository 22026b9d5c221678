"""Work off the event loop: together where it may be, bounded, and not for those who have gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from squire.server.batching import MAX_BATCH, Batcher
from squire.server.problems import Problem


class Doubling:
    """Doubles numbers, notes down how many at once, and waits for a sign before each."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.go, self.entered = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.entered.release()
        self.go.acquire()
        self.calls.append(list(items))
        if -1 in items:
            raise ValueError("negative")
        return [2 * item for item in items]


def run(test: Callable[[Batcher, Doubling], Awaitable[None]], capacity: int = 256, threads: int = 1) -> Doubling:
    work = Doubling()

    async def inside() -> None:
        async with Batcher(capacity, threads) as batcher:
            await test(batcher, work)

    asyncio.run(inside())
    return work


def test_what_waits_with_the_same_options_is_answered_together_and_each_gets_its_own() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        tasks = [asyncio.ensure_future(batcher.submit(work, [0], "a"))]
        await asyncio.to_thread(work.entered.acquire)  # the thread has taken it
        tasks += [
            asyncio.ensure_future(batcher.submit(work, [n, 10 * n], "b" if n == 3 else "a")) for n in (1, 2, 3, 4)
        ]
        await asyncio.sleep(0)
        work.go.release(9)
        done = await asyncio.gather(*tasks)
        assert [one.results for one in done] == [[0], [2, 20], [4, 40], [6, 60], [8, 80]]
        assert [one.batch_size for one in done] == [1, 6, 6, 2, 6]

    assert run(test).calls == [[0], [1, 10, 2, 20, 4, 40], [3, 30]]


def test_without_a_group_everyone_is_alone_and_a_group_has_a_size() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        tasks = [asyncio.ensure_future(batcher.submit(work, [0], "first"))]
        await asyncio.to_thread(work.entered.acquire)
        tasks += [asyncio.ensure_future(batcher.submit(work, [1])) for _ in range(2)]
        tasks += [asyncio.ensure_future(batcher.submit(work, [2], "many")) for _ in range(MAX_BATCH + 3)]
        await asyncio.sleep(0)
        work.go.release(99)
        await asyncio.gather(*tasks)

    assert [len(call) for call in run(test).calls] == [1, 1, 1, MAX_BATCH, 3]


def test_a_full_queue_says_so_and_the_patient_wait() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        tasks = [asyncio.ensure_future(batcher.submit(work, [n])) for n in range(2)]
        await asyncio.to_thread(work.entered.acquire)
        with pytest.raises(Problem, match="busy: 2 requests are waiting") as refused:
            await batcher.submit(work, [2])
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
        patient = asyncio.ensure_future(batcher.submit(work, [3], wait=True))
        await asyncio.sleep(0)
        work.go.release(9)
        assert (await patient).results == [6]
        await asyncio.gather(*tasks)
        assert (await batcher.submit(work, [4])).results == [8]  # there is room again

    run(test, capacity=2)


def test_people_go_before_large_jobs_which_have_a_turn_now_and_then() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        tasks = [asyncio.ensure_future(batcher.submit(work, [0]))]
        await asyncio.to_thread(work.entered.acquire)
        tasks += [asyncio.ensure_future(batcher.submit(work, [n], wait=True)) for n in (100, 101)]
        tasks += [asyncio.ensure_future(batcher.submit(work, [n])) for n in range(1, 7)]
        await asyncio.sleep(0)
        work.go.release(99)
        await asyncio.gather(*tasks)

    assert run(test).calls == [[0], [1], [2], [3], [100], [4], [5], [6], [101]]


def test_large_jobs_leave_a_thread_free() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        large = [asyncio.ensure_future(batcher.submit(work, [n], wait=True)) for n in (100, 101)]
        await asyncio.to_thread(work.entered.acquire)  # the first runs
        await asyncio.sleep(0)
        assert batcher.waiting == 1  # the second must not, although there is a thread
        quick = asyncio.ensure_future(batcher.submit(work, [1]))
        await asyncio.to_thread(work.entered.acquire)  # the question does
        assert batcher.waiting == 1
        work.go.release(3)
        await asyncio.gather(quick, *large)

    assert len(run(test, threads=2).calls) == 3


def test_those_who_have_gone_are_forgotten() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        first = asyncio.ensure_future(batcher.submit(work, [0], "a"))
        await asyncio.to_thread(work.entered.acquire)
        gone, stays = (asyncio.ensure_future(batcher.submit(work, [n], "a")) for n in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        work.go.release(9)
        assert (await stays).results == [4]
        await first

    assert run(test).calls == [[0], [2]]


def test_ones_mistake_is_not_the_others() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        first = asyncio.ensure_future(batcher.submit(work, [0], "a"))
        await asyncio.to_thread(work.entered.acquire)
        good, bad = (asyncio.ensure_future(batcher.submit(work, [n], "a")) for n in (5, -1))
        await asyncio.sleep(0)
        work.go.release(9)
        assert (await good).results == [10]
        with pytest.raises(ValueError, match="negative"):
            await bad
        await first

    assert run(test).calls == [[0], [5, -1], [5], [-1]]


def test_at_the_end_all_that_was_begun_has_been_done() -> None:
    async def test(batcher: Batcher, work: Doubling) -> None:
        tasks = [asyncio.ensure_future(batcher.submit(work, [n])) for n in range(3)]
        await asyncio.sleep(0)
        work.go.release(9)
        for task in tasks:
            task.add_done_callback(lambda done: done.result())

    assert len(run(test).calls) == 3

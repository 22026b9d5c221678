"""One decoding thread: requests that wait for it with the same options are answered together, as one batch.

There is no delay to fill a batch: requests gather while the thread is busy. Knows nothing about models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from squire.server.problems import Problem

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_BATCH = 32  # items; larger batches would keep other requests waiting


@dataclass(frozen=True)
class Done(Generic[Result]):
    """The results of a job, and how many items were in its batch."""

    results: list[Result]
    batch_size: int


@dataclass(frozen=True, eq=False)
class _Job:
    group: Hashable  # None: never batched
    items: Sequence[Any]
    work: Callable[[Sequence[Any]], list[Any]]
    future: asyncio.Future[Done[Any]]


class Batcher:
    """A thread with a bounded queue. As a context manager it finishes all submitted jobs at its end."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._slots = capacity, asyncio.Semaphore(capacity)
        self._jobs: list[_Job] = []
        self._changed, self._is_closing = asyncio.Event(), False
        self._thread = ThreadPoolExecutor(1, "decoding")

    async def __aenter__(self) -> Batcher:
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        self._changed.set()
        await self._worker
        self._thread.shutdown()

    @property
    def waiting(self) -> int:
        """Jobs that the thread has not started."""
        return len(self._jobs)

    async def submit(
        self,
        work: Callable[[Sequence[Item]], list[Result]],
        items: Sequence[Item],
        group: Hashable = None,
        *,
        wait: bool = False,
    ) -> Done[Result]:
        """Calls `work(items)` in the thread, perhaps with the items of other jobs of the same group and work.

        Cancelled jobs are skipped. If the queue is full, raises a Problem, or waits for a slot with `wait`.
        """
        if not wait and self._slots.locked():
            message = f"the service is busy: {self._capacity} requests are waiting. Try again in a moment."
            raise Problem(429, message, headers={"Retry-After": "1"})
        async with self._slots:
            future: asyncio.Future[Done[Result]] = asyncio.get_running_loop().create_future()
            self._jobs.append(_Job(group, items, work, future))
            self._changed.set()
            return await future

    async def _work(self) -> None:
        while batch := await self._next_batch():
            await self._run(batch)

    async def _next_batch(self) -> list[_Job]:
        """The first job, with later ones of its group; empty at the end."""
        while not (jobs := [job for job in self._jobs if not job.future.done()]) and not self._is_closing:
            self._changed.clear()
            await self._changed.wait()
        batch, rest = jobs[:1], list[_Job]()
        size = sum(len(job.items) for job in batch)
        for job in jobs[1:]:
            fits = job.group is not None and job.group == batch[0].group and size + len(job.items) <= MAX_BATCH
            (batch if fits else rest).append(job)
            size += len(job.items) * fits
        self._jobs = rest
        return batch

    async def _run(self, batch: Sequence[_Job]) -> None:
        items = [item for job in batch for item in job.items]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, batch[0].work, items)
        except Exception as error:
            if len(batch) > 1:  # one job's error must not fail the others
                for job in batch:
                    await self._run([job])
            elif not batch[0].future.done():
                batch[0].future.set_exception(error)
            return
        for job in batch:
            own, results = results[: len(job.items)], results[len(job.items) :]
            if not job.future.done():
                job.future.set_result(Done(own, len(items)))

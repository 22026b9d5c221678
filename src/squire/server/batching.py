"""A few decoding threads: requests that wait for one with the same options are answered together, as one batch.

There is no delay to fill a batch: requests gather while the threads are busy. What a person waits for goes before
the chunks of large jobs. These leave a thread free, and have a turn now and then. Knows nothing about models.
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
MAX_BATCH = 16  # items; larger batches would keep other requests waiting
TURNS = 4  # of so many batches one is a chunk of a large job, if one waits


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
    is_chunk: bool  # of a large job, which can wait


class Batcher:
    """Threads with a bounded queue. As a context manager it finishes all submitted jobs at its end."""

    def __init__(self, capacity: int, threads: int = 1) -> None:
        self._capacity, self._slots = capacity, asyncio.Semaphore(capacity)
        self._jobs: list[_Job] = []
        self._changed, self._is_closing = asyncio.Event(), False
        self._num_threads, self._threads = threads, ThreadPoolExecutor(threads, "decoding")
        self._chunks, self._since_chunk = 0, 0  # running, and batches since the last

    async def __aenter__(self) -> Batcher:
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._num_threads)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        self._changed.set()
        await asyncio.gather(*self._workers)
        self._threads.shutdown()

    @property
    def waiting(self) -> int:
        """Jobs that no thread has started."""
        return len(self._jobs)

    async def submit(
        self,
        work: Callable[[Sequence[Item]], list[Result]],
        items: Sequence[Item],
        group: Hashable = None,
        *,
        wait: bool = False,
    ) -> Done[Result]:
        """Calls `work(items)` in a thread, perhaps with the items of other jobs of the same group and work.

        Cancelled jobs are skipped. If the queue is full, raises a Problem. With `wait` the job waits for a slot,
        and others go first.
        """
        if not wait and self._slots.locked():
            message = f"the service is busy: {self._capacity} requests are waiting. Try again in a moment."
            raise Problem(429, message, headers={"Retry-After": "1"})
        async with self._slots:
            future: asyncio.Future[Done[Result]] = asyncio.get_running_loop().create_future()
            self._jobs.append(_Job(group, items, work, future, wait))
            self._changed.set()
            return await future

    async def _work(self) -> None:
        while batch := await self._next_batch():
            self._chunks += batch[0].is_chunk
            self._since_chunk = 0 if batch[0].is_chunk else self._since_chunk + 1
            await self._run(batch)
            self._chunks -= batch[0].is_chunk
            self._changed.set()  # another chunk may run now

    async def _next_batch(self) -> list[_Job]:
        """The next job, with later ones of its group; empty at the end."""
        while (first := self._next_job()) is None:
            if self._is_closing and not self._jobs:
                return []
            self._changed.clear()
            await self._changed.wait()
        batch, rest = [first], list[_Job]()
        size = len(first.items)
        for job in self._jobs:
            if job is first:
                continue
            alike = job.group is not None and (job.group, job.is_chunk) == (first.group, first.is_chunk)
            fits = alike and size + len(job.items) <= MAX_BATCH
            (batch if fits else rest).append(job)
            size += len(job.items) * fits
        self._jobs = rest
        return batch

    def _next_job(self) -> _Job | None:
        """The first that may run now. Large jobs take turns, since each has one chunk in the queue."""
        self._jobs = [job for job in self._jobs if not job.future.done()]
        quick, chunk = (next((job for job in self._jobs if job.is_chunk == kind), None) for kind in (False, True))
        if self._chunks and self._chunks >= self._num_threads - 1:  # leaves a thread free
            chunk = None
        return chunk if quick is None or (chunk and self._since_chunk >= TURNS) else quick

    async def _run(self, batch: Sequence[_Job]) -> None:
        items = [item for job in batch for item in job.items]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._threads, batch[0].work, items)
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

"""Work off the event loop: one thread, and what waits for it with the same options is answered together.

Nobody waits for company: while the thread is busy, requests gather by themselves. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from squire.server.problems import Problem

Item = TypeVar("Item")
Result = TypeVar("Result")
TOGETHER = 32  # items at once; more would keep others waiting


@dataclass(frozen=True)
class Done(Generic[Result]):
    """What came out, and how many items were answered at once."""

    results: list[Result]
    together: int


@dataclass(frozen=True, eq=False)
class _Job:
    group: Hashable  # None: alone
    items: Sequence[Any]
    work: Callable[[Sequence[Any]], list[Any]]
    future: asyncio.Future[Done[Any]]


class Batcher:
    """A thread with a bounded queue; a context, at whose end all that was begun has been done."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._places = capacity, asyncio.Semaphore(capacity)
        self._waiting: deque[_Job] = deque()
        self._news = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="decoding", daemon=True)

    async def __aenter__(self) -> Batcher:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._news:
            self._ending = True
            self._news.notify()
        await asyncio.to_thread(self._thread.join)

    @property
    def waiting(self) -> int:
        """Pieces of work that the thread has not taken yet."""
        return len(self._waiting)

    async def ask(
        self,
        work: Callable[[Sequence[Item]], list[Result]],
        items: Sequence[Item],
        group: Hashable = None,
        *,
        patient: bool = False,
    ) -> Done[Result]:
        """`work(items)`, maybe together with others of the same group, whose `work` must do the same.

        Whoever is cancelled while it waits is forgotten. Where the queue is full, the patient wait for a place.
        """
        if not patient and self._places.locked():
            raise Problem(
                429,
                f"the service is busy: {self._capacity} requests wait already. To do: try again in a moment.",
                headers={"Retry-After": "1"},
            )
        async with self._places:
            future: asyncio.Future[Done[Result]] = asyncio.get_running_loop().create_future()
            with self._news:
                self._waiting.append(_Job(group, items, work, future))
                self._news.notify()
            return await future

    def _run(self) -> None:
        while jobs := self._next():
            together = sum(len(job.items) for job in jobs)
            try:
                results = jobs[0].work([item for job in jobs for item in job.items])
            except Exception as error:
                if len(jobs) == 1:
                    _tell(jobs[0], error)
                else:  # one's mistake must not be the others'
                    for job in jobs:
                        self._alone(job)
                continue
            for job in jobs:
                _tell(job, Done(results[: len(job.items)], together))
                results = results[len(job.items) :]

    def _alone(self, job: _Job) -> None:
        try:
            _tell(job, Done(job.work(job.items), len(job.items)))
        except Exception as error:
            _tell(job, error)

    def _next(self) -> list[_Job]:
        """The first that waits, with those after it that may be answered together; empty at the end."""
        with self._news:
            while True:
                self._waiting = deque(job for job in self._waiting if not job.future.done())  # gone: forgotten
                if self._waiting or self._ending:
                    break
                self._news.wait()
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            jobs, size, others = [first], len(first.items), deque[_Job]()
            for job in self._waiting:
                fits = first.group is not None and job.group == first.group and size + len(job.items) <= TOGETHER
                (jobs if fits else others).append(job)
                size += len(job.items) * fits
            self._waiting = others
            return jobs


def _tell(job: _Job, outcome: Done[Any] | Exception) -> None:
    """Hand over to the event loop; if that is closed, nobody listens any more."""

    def settle() -> None:
        if job.future.done():
            return
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)

    try:
        job.future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:
        return

"""Run numbered tasks on several threads, since kernels release the interpreter lock, and in several processes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from squire.core.processes import interruptions
from squire.errors import SettingError

Result = TypeVar("Result")
EXCHANGE_SECONDS = 60.0  # between processes that share a loop
CHUNKS = 32  # per thread: few enough to cost nothing, many enough for threads to finish together


def thread_count(threads: int | None) -> int:
    """The number of threads, by default as many as this process may use."""
    if threads is None:
        has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
        return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    if threads < 1:
        raise SettingError(f"threads={threads}: expected 1 or more.")
    return threads


# ------------------------------------------------------------------------------------------- several processes


class Processes(Protocol):
    """Processes that run the same program, and so come to the same loops in the same order."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order."""


_sharing: ContextVar[Processes | None] = ContextVar("sharing", default=None)


@contextmanager
def sharing(processes: Processes | None) -> Iterator[None]:
    """Loops of the body are shared out by number. Threads have a context of their own, where nothing is shared."""
    before = _sharing.set(processes)
    try:
        yield
    finally:
        _sharing.reset(before)


def is_leader() -> bool:
    """Whether this process writes files: alone, or the first of those that share loops."""
    processes = _sharing.get()
    return processes is None or processes.rank == 0


def agreed(value: Result) -> Result:
    """The leader's value, where clocks could make processes differ."""
    processes = _sharing.get()
    return value if processes is None else cast("Result", processes.gather(value)[0])


def _share_out(
    task: Callable[[int], Result], count: int, threads: int, until: float, processes: Processes
) -> Iterator[tuple[int, Result]]:
    """Like `as_done`, with the results of all processes. Ctrl-C stops all of them, here.

    Results are exchanged every so often, so that little is lost with a process.
    """
    own, busy = list(range(processes.rank, count, processes.size)), True
    while busy:
        done: dict[int, Result] = {}
        exchange = min(until, time.monotonic() + EXCHANGE_SECONDS)
        with sharing(None), interruptions(patient=True) as interrupted:
            for i, result in as_done(_numbered(task, own), len(own), threads, until=exchange):
                done[own[i]] = result
                if interrupted:
                    break
        own = [i for i in own if i not in done] if time.monotonic() <= until else []
        parts = processes.gather((done, bool(interrupted), bool(own)))
        for part, _, _ in parts:
            yield from part.items()
        if any(stopped for _, stopped, _ in parts):
            raise KeyboardInterrupt
        busy = any(has_more for _, _, has_more in parts)


def _numbered(task: Callable[[int], Result], numbers: Sequence[int]) -> Callable[[int], Result]:
    """The task for position i of these numbers."""
    return lambda i: task(numbers[i])


# ------------------------------------------------------------------------------------------------------- loops


def as_done(
    task: Callable[[int], Result],
    count: int,
    threads: int,
    stopped: threading.Event | None = None,
    until: float = math.inf,
) -> Iterator[tuple[int, Result]]:
    """The numbers and results of `task(0)` … `task(count - 1)`, in the order in which they finish.

    Closing the iterator, as Ctrl-C does, cancels the tasks that have not started. Those that run are waited for;
    long ones should watch `stopped`, which is set then. After `until` (`time.monotonic`) no more are started.
    """
    if processes := _sharing.get():
        yield from _share_out(task, count, threads, until, processes)
    elif min(threads, count) <= 1:  # a thread takes a millisecond to start
        for i in range(count):
            yield i, task(i)
            if time.monotonic() > until:
                return
    else:
        yield from _on_threads(task, count, threads, stopped, until)


def _on_threads(
    task: Callable[[int], Result], count: int, threads: int, stopped: threading.Event | None, until: float
) -> Iterator[tuple[int, Result]]:
    with ThreadPoolExecutor(threads) as pool:
        number: dict[Future[Result], int] = {pool.submit(task, i): i for i in range(count)}
        try:
            for future in as_completed(list(number)):
                # Popped to free memory: there may be millions of results.
                i = number.pop(future)
                if not future.cancelled():
                    yield i, future.result()
                if time.monotonic() > until:
                    for waiting in number:  # those that run are waited for in any case
                        waiting.cancel()
        finally:
            if stopped:
                stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


def in_order(task: Callable[[int], Result], count: int, threads: int) -> Iterator[Result]:
    """The results of `task(0)` … `task(count - 1)`, in order.

    Only a few tasks run ahead of the consumer, so that the results do not fill the memory.
    """
    if processes := _sharing.get():
        for first in range(0, count, at_once := 2 * threads * processes.size):
            yield from _block(task, first, min(at_once, count - first), threads)
        return
    if min(threads, count) <= 1:
        yield from map(task, range(count))
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead = [pool.submit(task, i) for i in range(min(count, 2 * threads))]
        try:
            for i in range(count):
                result = ahead.pop(0).result()
                if i + 2 * threads < count:
                    ahead.append(pool.submit(task, i + 2 * threads))
                yield result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _block(task: Callable[[int], Result], first: int, size: int, threads: int) -> list[Result]:
    """The results of `task(first)` and those after it, in their order."""
    found = dict(as_done(lambda i: task(first + i), size, threads))
    return [found[i] for i in range(size)]


def one_ahead(items: Iterator[Result]) -> Iterator[Result]:
    """The same items; while one is used, a thread makes the next, unless its loops are to be shared."""
    if _sharing.get():
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, items, end)
        while (item := upcoming.result()) is not end:
            upcoming = pool.submit(next, items, end)
            yield cast("Result", item)


def run_chunks(
    work: Callable[[int, int], None],
    costs: npt.NDArray[np.int64],
    threads: int,
    progress: Callable[[int, int], None] | None = None,
    counts: npt.NDArray[np.int64] | None = None,
) -> None:
    """Calls `work(first, last)` for ranges of items that cost about the same in total.

    costs: (item). `progress` is called with the sum of the finished items and of all; an item counts as one, or as
    much as `counts` says.  (item)
    """
    if not len(costs):
        return
    total = np.cumsum(costs)
    cuts = np.searchsorted(total, np.linspace(0, total[-1], CHUNKS * threads + 1)[1:-1])
    bounds = [int(cut) for cut in np.unique(np.concatenate([[0], cuts, [len(costs)]]))]
    counts = np.ones(len(costs), np.int64) if counts is None else counts
    done, in_all = 0, int(counts.sum())
    with sharing(None):  # what one process writes, the others do not see
        for i, _ in as_done(lambda i: work(bounds[i], bounds[i + 1]), len(bounds) - 1, threads):
            done += int(counts[bounds[i] : bounds[i + 1]].sum())
            if progress is not None:
                progress(done, in_all)

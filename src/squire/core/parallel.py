"""Run compiled work on several threads; kernels release the interpreter lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from squire.errors import SettingError

Result = TypeVar("Result")
CHUNKS = 32  # per thread: few enough to cost nothing, many enough for threads to finish together


def thread_count(threads: int | None) -> int:
    """The number of threads, by default as many as this process may use."""
    if threads is None:
        has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
        return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    if threads < 1:
        raise SettingError(f"threads={threads}: expected 1 or more.")
    return threads


def as_done(
    task: Callable[[int], Result], count: int, threads: int, stopped: threading.Event | None = None
) -> Iterator[tuple[int, Result]]:
    """The numbers and results of `task(0)` … `task(count - 1)`, in the order in which they finish.

    Closing the iterator, as Ctrl-C does, cancels the tasks that have not started. Those that run are waited for;
    long ones should watch `stopped`, which is set then.
    """
    if min(threads, count) <= 1:  # a thread takes a millisecond to start
        yield from ((i, task(i)) for i in range(count))
        return
    with ThreadPoolExecutor(threads) as pool:
        number: dict[Future[Result], int] = {pool.submit(task, i): i for i in range(count)}
        try:
            for future in as_completed(list(number)):
                yield (
                    number.pop(future),
                    future.result(),
                )  # popped to free memory: there may be millions of results
        finally:
            if stopped:
                stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


def in_order(task: Callable[[int], Result], count: int, threads: int) -> Iterator[Result]:
    """The results of `task(0)` … `task(count - 1)`, in order.

    Only a few tasks run ahead of the consumer, so that the results do not fill the memory.
    """
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


def one_ahead(items: Iterator[Result]) -> Iterator[Result]:
    """The same items; while one is used, a thread makes the next."""
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
    for i, _ in as_done(lambda i: work(bounds[i], bounds[i + 1]), len(bounds) - 1, threads):
        done += int(counts[bounds[i] : bounds[i + 1]].sum())
        if progress is not None:
            progress(done, in_all)

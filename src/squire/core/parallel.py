"""Run compiled work on several threads; kernels release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from squire.errors import SettingError

Result = TypeVar("Result")


def thread_count(threads: int | None) -> int:
    """The number of threads, by default as many as this process may use."""
    if threads is None:
        has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
        return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    if threads < 1:
        raise SettingError(f"threads={threads}: expected 1 or more.")
    return threads


def as_done(task: Callable[[int], Result], count: int, threads: int) -> Iterator[tuple[int, Result]]:
    """The numbers and results of `task(0)` … `task(count - 1)`, in the order in which they finish.

    Closing the iterator, as Ctrl-C does, cancels the tasks that have not started.
    """
    with ThreadPoolExecutor(threads) as pool:
        number: dict[Future[Result], int] = {pool.submit(task, i): i for i in range(count)}
        try:
            for future in as_completed(list(number)):
                yield (
                    number.pop(future),
                    future.result(),
                )  # popped to free memory: there may be millions of results
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def in_order(task: Callable[[int], Result], count: int, threads: int) -> Iterator[Result]:
    """The results of `task(0)` … `task(count - 1)`, in order.

    Only a few tasks run ahead of the consumer, so that the results do not fill the memory.
    """
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

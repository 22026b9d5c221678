"""Compiled work on several threads: kernels release the interpreter lock. Knows nothing of what the work is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from squire.errors import SettingError

Result = TypeVar("Result")


def thread_count(threads: int | None) -> int:
    """As many as asked for, or as the machine lets us use."""
    if threads is None:
        has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
        return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    if threads < 1:
        raise SettingError(f"threads is {threads}: at least 1 is needed.")
    return threads


def as_done(task: Callable[[int], Result], count: int, threads: int) -> Iterator[tuple[int, Result]]:
    """The numbers and results of `task(0)` … `task(count - 1)`, as they end: depend on the number, not the order.

    Whoever stops listening, by Ctrl-C too, stops the tasks that have not begun.
    """
    with ThreadPoolExecutor(threads) as pool:
        number: dict[Future[Result], int] = {pool.submit(task, i): i for i in range(count)}
        try:
            for future in as_completed(list(number)):
                yield number.pop(future), future.result()  # dropped: a stage may have millions of results
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def in_order(task: Callable[[int], Result], count: int, threads: int) -> Iterator[Result]:
    """The results of `task(0)` … `task(count - 1)`, in order.

    A few tasks ahead keep the threads busy; all of them at once would fill the memory.
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

"""The tasks of mining: run on threads, within a time limit, and not again if they were done before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from squire.core.done_tasks import DoneTasks, digest
from squire.core.parallel import agreed, as_done, thread_count

Progress = Callable[[str, int, int], None]  # stage, done, total
STEPS_PER_SECOND = 3e8  # of one thread, roughly: measured were 10⁸ to 10⁹


class OutOfTime(Exception):
    """The time limit of mining is reached."""


class Work:
    """Runs tasks on threads, reports the progress of their stage, watches the time, and knows what was done."""

    def __init__(
        self,
        threads: int | None,
        progress: Progress | None = None,
        minutes: float | None = None,
        done: DoneTasks | None = None,
    ) -> None:
        self._threads, self._progress = thread_count(threads), progress or (lambda stage, done, total: None)
        self._end = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._done = done
        self.most_steps = math.inf  # of a stage, beyond what the options allow

    def steps_left(self) -> float:
        """The steps that half of the remaining time allows: bodies are found, then counted."""
        return agreed(max((self._end - time.monotonic()) / 2, 1.0) * STEPS_PER_SECOND * self._threads)

    @contextmanager
    def half_of_the_time(self) -> Iterator[None]:
        """The body has half of the time that is left."""
        end, now = self._end, time.monotonic()
        self._end = (end + now) / 2
        try:
            yield
        finally:
            self._end = end

    @contextmanager
    def affordable(self) -> Iterator[None]:
        """Stages of the body take no more steps than the time allows."""
        self.most_steps = self.steps_left()
        try:
            yield
        finally:
            self.most_steps = math.inf

    def knows(self, stage: str, *inputs: object) -> bool:
        """Whether a task with these inputs was done before."""
        return self._done is not None and digest(stage, *inputs) in self._done

    def run(
        self,
        stage: str,
        task: Callable[[int], tuple[Any, ...]],
        count: int,
        inputs: Callable[[int], tuple[object, ...]] | None = None,
        keep: Callable[[int], bool] = lambda i: True,
    ) -> Iterator[tuple[int, Any]]:
        """The numbers and results of `task(0)` … `task(count - 1)`, as they finish.

        Results that have been made before from the same inputs come first. keep: whether to keep that of a task
        """
        missing, names, kept = list(range(count)), list[bytes](), self._done
        if kept is not None and inputs is not None:
            names = [digest(stage, *inputs(i)) for i in missing]
            missing = [i for i in missing if names[i] not in kept]
            known = [(i, kept[name]) for i, name in enumerate(names) if name in kept]
            yield from known
        self._progress(stage, finished := count - len(missing), count)
        for j, result in as_done(lambda j: task(missing[j]), len(missing), self._threads, until=self._end):
            i = missing[j]
            if names and kept is not None and keep(i):
                kept.add(stage, names[i], result)
            self._progress(stage, finished := finished + 1, count)
            yield i, result
        if finished < count:
            raise OutOfTime

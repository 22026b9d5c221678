"""Work on several threads: in order, and only a few tasks ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from squire.core.parallel import as_done, in_order, one_ahead


def test_results_come_in_the_order_of_their_numbers_and_few_are_made_ahead() -> None:
    begun: list[int] = []

    def task(i: int) -> int:
        begun.append(i)
        return i * i

    results = in_order(task, 50, threads=2)
    assert next(results) == 0
    assert len(begun) <= 5  # two for each thread, and the one that was taken
    assert list(in_order(lambda i: i * i, 50, threads=3)) == [i * i for i in range(50)]
    assert list(in_order(task, 0, threads=2)) == []


def test_what_a_task_raises_is_raised_to_the_listener() -> None:
    def task(i: int) -> int:
        if i == 3:
            raise ValueError("three")
        return i

    results = in_order(task, 9, threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_closing_tells_long_tasks_to_stop_before_they_are_waited_for() -> None:
    stopped, gave_up = threading.Event(), threading.Event()

    def task(i: int) -> int:
        if i and not stopped.wait(30):
            gave_up.set()
        return i

    results = as_done(task, 2, 2, stopped)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    assert not gave_up.is_set()


def test_one_item_is_made_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for i in range(5):
            made.append(i)
            yield i

    ahead = one_ahead(items())
    assert next(ahead) == 0
    assert list(ahead) == [1, 2, 3, 4]
    assert made == [0, 1, 2, 3, 4]
    few = one_ahead(iter(range(9)))
    assert [next(few), next(few)] == [0, 1]
    few.close()  # type: ignore[attr-defined]

"""Work on several threads: in order, and only a few tasks ahead."""

from __future__ import annotations

import pytest

from squire.core.parallel import in_order


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

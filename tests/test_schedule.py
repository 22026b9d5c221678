"""The rate rises over α of the steps, falls to 0 over the others, and no step is in vain."""

from __future__ import annotations

import pytest

from squire.model.recipe import load_recipe
from squire.training.schedule import Phase, learning_rate, phases


def rates(total: int, warmup: float, peak: float = 1.0) -> list[float]:
    return [learning_rate(step, total, peak, warmup) for step in range(total)]


def test_rises_over_a_third_then_falls_to_zero() -> None:
    # 9 steps, of which 3 rise by a third; the other 6 fall by a sixth.
    expected = [1 / 3, 2 / 3, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert rates(9, 1 / 3) == pytest.approx(expected)


def test_a_tenth_of_ten_steps_is_one() -> None:
    assert rates(10, 0.1, peak=9.0) == pytest.approx([9, 9, 8, 7, 6, 5, 4, 3, 2, 1])


def test_warmup_that_ends_within_a_step_never_exceeds_the_peak() -> None:
    # 2.5 of 5 steps: 1/2.5 and 2/2.5, then the cap, then 2/2.5 and 1/2.5.
    assert rates(5, 0.5) == pytest.approx([0.4, 0.8, 1.0, 0.8, 0.4])


def test_without_warmup_begins_at_the_peak() -> None:
    assert rates(4, 0.0) == pytest.approx([1, 0.75, 0.5, 0.25])


def test_warmup_of_all_steps_ends_at_the_peak() -> None:
    assert rates(4, 1.0) == pytest.approx([0.25, 0.5, 0.75, 1])


@pytest.mark.parametrize("warmup", [0.0, 0.1, 1 / 3, 1.0])
def test_a_run_of_one_step_learns(warmup: float) -> None:
    assert learning_rate(0, 1, 0.001, warmup) == 0.001


def test_is_zero_after_the_last_step() -> None:
    assert learning_rate(9, 9, 1.0, 1 / 3) == 0
    assert learning_rate(12, 9, 1.0, 1.0) == 0


def test_scales_with_the_peak() -> None:
    assert rates(7, 0.3, peak=0.002) == pytest.approx([0.002 * rate for rate in rates(7, 0.3)])


# ------------------------------------------------------------------------------------------------- iterations


def test_iteration_k_has_an_n_over_kth_of_the_epochs_at_the_lower_rate() -> None:
    sets = ["train.iterate=true", "train.epochs=7", "train.learning_rate=0.5", "train.iterate_learning_rate=0.2"]
    recipe = load_recipe("small", [*sets, "paths.hops=4", "model.max_hops=4"])
    assert phases(recipe) == [
        Phase(1, 0, 7, 0.5),
        Phase(2, 7, 10, 0.1),
        Phase(3, 10, 12, 0.1),
        Phase(4, 12, 13, 0.1),
    ]


def test_no_iteration_is_without_an_epoch() -> None:
    found = phases(load_recipe("small", ["train.iterate=true", "train.epochs=1"]))
    assert [(phase.first_epoch, phase.last_epoch) for phase in found] == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("sets", [["train.iterate=false"], ["train.iterate=true", "paths.hops=1"]])
def test_off_and_with_one_hop_there_is_one_iteration(sets: list[str]) -> None:
    assert phases(load_recipe("small", [*sets, "train.epochs=7"])) == [Phase(1, 0, 7, 0.001)]

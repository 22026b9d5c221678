"""Calibrated rank scores: isotonic regression against brute force, and its error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squire.ranking.calibration import CELL, Calibration, Calibrations, Reliability


def drawn(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Chances that are too sure of themselves: the truth is their square."""
    rng = np.random.default_rng(seed)
    score = rng.random(size)
    return score, rng.random(size) < score**2


def test_what_is_too_sure_is_put_right_on_other_answers() -> None:
    calibration = Calibration.fit(*drawn(20_000))
    score, is_true = drawn(20_000, seed=1)
    assert Reliability.from_answers(score, is_true).error > 0.1
    assert Reliability.from_answers(calibration.confidence(score), is_true).error < 0.02


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=200))
def test_the_map_never_falls_and_stays_between_0_and_1(points: list[tuple[float, bool]]) -> None:
    score = np.array([x for x, _ in points], float)
    calibration = Calibration.fit(score, np.array([y for _, y in points], bool))
    confidence = calibration.confidence(np.linspace(0, 1, 101))
    assert np.all(np.diff(confidence) >= 0)
    assert confidence.min() >= 0
    assert confidence.max() <= 1


def test_no_step_rests_on_few_answers_and_none_is_certainty() -> None:
    calibration = Calibration.fit(*drawn(3 * CELL + 7))
    assert calibration.count.min() >= CELL
    sure = Calibration.fit(np.linspace(0.5, 1, CELL), np.ones(CELL, bool))
    assert sure.confidence(np.array([1.0]))[0] == pytest.approx((CELL + 0.5) / (CELL + 1))


def test_without_answers_a_chance_is_believed() -> None:
    nothing = Calibration.fit(np.empty(0), np.empty(0, bool))
    assert nothing.confidence(np.array([0.3]))[0] == pytest.approx(0.3)


def of_two_kinds(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The truth of the first kind is the square of its score, of the second the score itself."""
    rng = np.random.default_rng(seed)
    score, kind = rng.random(size), np.arange(size) % 2
    return score, rng.random(size) < np.where(kind == 0, score**2, score), np.zeros(size), kind


def test_each_kind_of_answer_has_a_map_of_its_own() -> None:
    calibration = Calibrations.fit(*of_two_kinds(20_000), 2)
    score, is_true, _, kind = of_two_kinds(20_000, seed=1)
    together = Calibration.fit(*of_two_kinds(20_000)[:2]).confidence(score)
    for one in range(2):
        own = kind == one
        assert Reliability.from_answers(together[own], is_true[own]).error > 0.05
        assert Reliability.from_answers(calibration.confidence(score, kind)[own], is_true[own]).error < 0.02


def test_a_kind_of_few_answers_is_taken_for_one_like_all() -> None:
    score, is_true, unseen, kind = of_two_kinds(20_000)
    kind[:] = 0
    kind[:10] = 1
    calibration = Calibrations.fit(score, is_true, unseen, kind, 2)
    everything = Calibration.fit(score, is_true)
    assert calibration.maps[1].truth.tolist() == everything.truth.tolist()


def test_error_is_the_mean_gap_over_bins_of_equally_many() -> None:
    confidence, is_true = np.array([0.1, 0.2, 0.6, 0.8]), np.array([False, False, True, False])
    reliability = Reliability.from_answers(confidence, is_true, bins=2)
    assert reliability.confidence == pytest.approx([0.15, 0.7])
    assert reliability.truth == pytest.approx([0, 0.5])
    assert reliability.error == pytest.approx((0.15 + 0.2) / 2)


def test_what_only_test_has_is_not_counted_as_false() -> None:
    """Six candidates a question, all as likely; each true one is in valid or in test, as a coin falls."""
    rng = np.random.default_rng(0)
    score = np.repeat(rng.random((40_000, 1)) * 0.7, 6, axis=1)
    is_true, in_valid = rng.random(score.shape) < score, rng.random(score.shape) < 0.5
    of_valid, of_test = is_true & in_valid, is_true & ~in_valid
    asked = of_valid.any(1)
    number = of_valid[asked].sum(1, keepdims=True)
    unseen = of_valid[asked] * (1 - 2.0 ** (1 - number))
    plain = Calibration.fit(score[asked].ravel(), of_valid[asked].ravel())
    fair = Calibration.fit(score[asked].ravel(), of_valid[asked].ravel(), unseen.ravel())
    judged = of_test.any(1, keepdims=True) & ~of_valid  # asked of test, without what valid has
    errors = [
        Reliability.from_answers(one.confidence(score[judged]), of_test[judged]).error for one in (plain, fair)
    ]
    assert errors[1] < errors[0] / 2

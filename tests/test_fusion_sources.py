"""Shapley values of the sources: they add up, they are fair, and equal those over all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest

from squire.ranking.attribution import contributions
from squire.ranking.features import CONTEXT, FREQUENCY, MODEL, RULES, Feature, Features, absent

TABLE = (
    Feature("f", FREQUENCY, "", absent=0.5),
    Feature("g", FREQUENCY, "", absent="c"),
    Feature("r", RULES, ""),
    Feature("p", MODEL, ""),
    Feature("c", CONTEXT, "", absent=None),
)
ROWS = np.random.default_rng(0).normal(size=(6, len(TABLE))).astype(np.float32)


def score(x: Features) -> npt.NDArray[np.float64]:
    f, g, r, p, c = x.T.astype(np.float64)
    return np.asarray(np.tanh(f * r + c) + g * p * r + p**2)


def test_shares_add_up_to_the_score_minus_that_of_nothing() -> None:
    shares = contributions(score, ROWS, TABLE)
    assert list(shares) == [FREQUENCY, RULES, MODEL]
    assert sum(shares.values()) == pytest.approx(score(ROWS) - score(absent(ROWS, TABLE)))


def test_shares_are_means_over_all_orders_of_coming_in() -> None:
    expected = {source: np.zeros(len(ROWS)) for source in (FREQUENCY, RULES, MODEL)}
    orders = list(permutations(expected))
    for order in orders:
        shown = absent(ROWS, TABLE)
        for source in order:
            before = score(shown)
            own = [i for i, feature in enumerate(TABLE) if feature.source == source]
            shown[:, own] = ROWS[:, own]
            expected[source] += (score(shown) - before) / len(orders)
    shares = contributions(score, ROWS, TABLE)
    for source, share in expected.items():
        assert shares[source] == pytest.approx(share)


def test_sources_that_say_the_same_share_alike_and_one_that_says_nothing_has_none() -> None:
    table = (Feature("r", RULES, ""), Feature("p", MODEL, ""), Feature("f", FREQUENCY, ""))
    shares = contributions(lambda x: (x[:, 0] * x[:, 1]).astype(np.float64), ROWS[:, :3], table)
    assert shares[RULES] == pytest.approx(shares[MODEL])
    assert np.all(shares[FREQUENCY] == 0)

"""How much each source of evidence contributed to a score: exact Shapley values.

A source that is absent has the values of a candidate of which it says nothing (`table.absent`). A source's share
is what it adds to the score, averaged over all orders in which sources may come in; so the shares add up to the
score minus the score of nothing, and a source that says nothing has none. The context, which all candidates of a
query have in common, is never absent and has no share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from squire.ranking.table import CONTEXT, SOURCES, Feature, Features, absent

Floats = npt.NDArray[np.float64]
Score = Callable[[Features], Floats]  # (candidate, feature) -> (candidate)


def contributions(score: Score, features: Features, table: Sequence[Feature]) -> dict[str, Floats]:
    """The share of each source in the score of each candidate.  source -> (candidate)"""
    sources = [source for source in SOURCES if source != CONTEXT and any(row.source == source for row in table)]
    columns = {source: [i for i, row in enumerate(table) if row.source == source] for source in sources}
    nothing = absent(features, table)
    # Who says nothing of anybody has no share, and would double the work.
    players = [source for source in sources if (features != nothing)[:, columns[source]].any()]
    worth: dict[frozenset[str], Floats] = {}
    for size in range(len(players) + 1):
        for group in combinations(players, size):
            shown = nothing.copy()
            for source in group:
                shown[:, columns[source]] = features[:, columns[source]]
            worth[frozenset(group)] = score(shown)
    shares = {source: np.zeros(len(features)) for source in sources}
    for group_set, value in worth.items():
        for source in set(players) - group_set:
            # Of all orders, so many have exactly this group before the source.
            weight = 1 / (len(players) * comb(len(players) - 1, len(group_set)))
            shares[source] += weight * (worth[group_set | {source}] - value)
    return shares

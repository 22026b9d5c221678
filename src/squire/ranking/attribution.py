"""How much each source of evidence contributed to a score: exact Shapley values.

An absent source has the features of a candidate for which it has no evidence (`features.absent`). The contribution
of a source is what it adds to the score, averaged over all orders in which sources can be added. So contributions
sum to the score minus the score without any evidence, and a source without evidence contributes 0. The context,
which all candidates of a query share, is always present and has no contribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from squire.ranking.features import CONTEXT, SOURCES, Feature, Features, absent

Floats = npt.NDArray[np.float64]
Score = Callable[[Features], Floats]  # (row, feature) -> (row); the candidates, some times over


def contributions(score: Score, features: Features, table: Sequence[Feature]) -> dict[str, Floats]:
    """The contribution of each source to the score of each candidate.  source -> (candidate)"""
    sources = [source for source in SOURCES if source != CONTEXT and any(row.source == source for row in table)]
    columns = {source: [i for i, row in enumerate(table) if row.source == source] for source in sources}
    nothing = absent(features, table)
    # Sources without evidence for any candidate contribute 0; leaving each out halves the work.
    players = [source for source in sources if (features != nothing)[:, columns[source]].any()]
    groups = [frozenset(group) for size in range(len(players) + 1) for group in combinations(players, size)]
    shown = np.tile(nothing, (len(groups), 1)).reshape(len(groups), *nothing.shape)
    for number, group in enumerate(groups):
        for source in group:
            shown[number][:, columns[source]] = features[:, columns[source]]
    # All at once: many small calls of the networks would take most of the time of an answer.
    scores = score(shown.reshape(-1, features.shape[1])).reshape(len(groups), len(features))
    values = dict(zip(groups, scores, strict=True))
    out = {source: np.zeros(len(features)) for source in sources}
    for present, value in values.items():
        for source in set(players) - present:
            # The share of orders in which exactly this group comes before the source.
            weight = 1 / (len(players) * comb(len(players) - 1, len(present)))
            out[source] += weight * (values[present | {source}] - value)
    return out

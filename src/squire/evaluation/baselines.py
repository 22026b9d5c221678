"""The baselines of every result table, tail frequency and rules; and ranks by the scores of any other method.

Scores come from train alone; the other splits only filter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.errors import SettingError, SquireError
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks, realistic_rank
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.rules.application import Candidates, RuleEngine, maximum, noisy_or

SCORES_AT_ONCE = 2**23  # of all entities, for some queries
Scores = npt.NDArray[np.float64]
Aggregate = Callable[[Candidates], Scores]
AGGREGATES: dict[str, Aggregate] = {"max": maximum, "noisy-or": noisy_or}


class TailFrequency:
    """How often each entity is the tail of a relation in train."""

    def __init__(self, graph: Graph) -> None:
        train = graph.train
        order = np.lexsort((train.tails, train.relations))
        self._tails = train.tails[order]
        self._offsets = np.searchsorted(train.relations[order], np.arange(2 * graph.num_relations + 1))
        self._num_entities = graph.num_entities

    def __call__(self, relation: int) -> Scores:
        """The share of each entity among the relation's tails.  (entity)"""
        own = self._tails[self._offsets[relation] : self._offsets[relation + 1]]
        counts = np.bincount(own, minlength=self._num_entities)
        return np.asarray(counts / max(len(own), 1))


def rank_by_frequency(graph: Graph, query_set: QuerySet) -> Ranks:
    """Ranks by tail frequency alone."""
    frequency = TailFrequency(graph)
    ranks = np.empty(len(query_set.queries))
    for i, (head, relation, answer) in enumerate(query_set.queries.tolist()):
        ranks[i] = realistic_rank(frequency(relation), answer, query_set.filter.tails_of(head, relation))
    return Ranks(query_set.signature("frequency"), query_set.queries, ranks)


def rank_by_scores(
    query_set: QuerySet, scores: Callable[[Ids], npt.NDArray[Any]], method: str, **settings: str
) -> Ranks:
    """Ranks by a score for every entity.  scores: (query, 2) -> (query, entity)"""
    ranks, at_once = [], max(1, SCORES_AT_ONCE // query_set.filter.num_entities)
    for first in range(0, len(query_set.queries), at_once):
        queries = query_set.queries[first : first + at_once]
        block = scores(queries[:, :2])
        if np.isnan(block).any():
            raise SquireError(f"{method}: some scores are not numbers, so training has diverged.")
        for row, (head, relation, answer) in zip(block, queries.tolist(), strict=True):
            ranks.append(realistic_rank(row, answer, query_set.filter.tails_of(head, relation)))
    return Ranks(query_set.signature(method, **settings), query_set.queries, np.array(ranks))


def rank_by_rules(
    graph: Graph,
    query_set: QuerySet,
    engine: RuleEngine,
    aggregate: str = "noisy-or",
    progress: Callable[[int, int], None] | None = None,
) -> Ranks:
    """Ranks by rules; ties, and answers that no rule predicts, are ranked by tail frequency."""
    if aggregate not in AGGREGATES:
        raise SettingError(f"aggregate={aggregate!r}: expected {' or '.join(AGGREGATES)}.")
    frequency = TailFrequency(graph)
    ranks: list[float] = []
    for candidates in engine.stream(query_set.queries[:, :2]):
        scores = _ordinals(AGGREGATES[aggregate](candidates))
        for query in range(len(candidates)):
            head, relation, answer = query_set.queries[len(ranks)].tolist()
            own = candidates.rows(query)
            row = frequency(relation) / 2  # less than 1, the distance between two rule scores
            row[candidates.answers[own]] += scores[own]
            ranks.append(realistic_rank(row, answer, query_set.filter.tails_of(head, relation)))
        if progress:
            progress(len(ranks), len(query_set.queries))
    signature = query_set.signature("rules+frequency", aggregation=f"{aggregate}{engine.best}")
    return Ranks(signature, query_set.queries, np.array(ranks))


def _ordinals(scores: Scores) -> Scores:
    """1, 2, 3 … in the order of the scores; equal scores get equal numbers."""
    return np.unique(scores, return_inverse=True)[1].astype(np.float64) + 1

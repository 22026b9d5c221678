"""Ranks of the right answers: filtered, with realistic ties, and every table that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from squire.evaluation.metrics import Metrics, Signature
from squire.graph.adjacency import Ids, Offsets
from squire.graph.graph import Graph
from squire.search.evidence import GRADES

CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
MANY = 1.5  # tails per head from which a relation counts as one-to-many, as is customary


def realistic_rank(scores: npt.NDArray[np.float64], answer: int, filtered: Ids) -> float:
    """The mean of the best and the worst rank that ties allow.

    `filtered` are all true answers, which do not count as rivals. An answer without a score (-inf) ties with all
    other entities without one, behind those that have one.  scores: (entity)
    """
    score = scores[answer]
    above = np.count_nonzero(scores > score) - np.count_nonzero(scores[filtered] > score)
    equal = np.count_nonzero(scores == score) - np.count_nonzero(scores[filtered] == score)
    if answer not in filtered:
        equal -= 1  # the answer itself
    return 1 + above + equal / 2


@dataclass(frozen=True)
class Ranks:
    """The rank of each right answer, by one method."""

    signature: Signature
    queries: Ids  # (query, 3): head, edge type, answer
    ranks: npt.NDArray[np.float64]  # (query)
    grades: Offsets | None = (
        None  # (grade): number of paths of each grade among the first ten answers of all queries
    )

    def metrics(self, *, intervals: bool = True) -> Metrics:
        """MRR and Hits over all queries."""
        return Metrics.from_ranks(self.ranks, self.signature, intervals=intervals)

    def by_relation(self, graph: Graph) -> dict[str, Metrics]:
        """Metrics of each relation, the most frequent first; head queries are tail queries of the inverse."""
        relations, counts = np.unique(self.queries[:, 1], return_counts=True)
        rows: dict[str, Metrics] = {}
        for relation in relations[np.argsort(-counts, kind="stable")].tolist():
            label = graph.labels.relation(relation)
            name = label if relation < graph.num_relations else f"{label} (inverse)"
            rows[name] = self._part(self.queries[:, 1] == relation)
        return rows

    def by_category(self, graph: Graph) -> dict[str, Metrics]:
        """Metrics of each kind of relation (1-1, 1-n, n-1, n-n), as seen from the query."""
        category = categories(graph)[self.queries[:, 1]]
        parts = {name: category == i for i, name in enumerate(CATEGORIES)}
        return {name: self._part(own) for name, own in parts.items() if own.any()}

    def grade_shares(self) -> dict[str, float]:
        """The share of each grade of evidence among the first ten answers."""
        if self.grades is None:
            return {}
        shares = self.grades / max(self.grades.sum(), 1)
        return dict(zip(GRADES, shares.tolist(), strict=True))

    def _part(self, own: npt.NDArray[np.bool_]) -> Metrics:
        return Metrics.from_ranks(self.ranks[own], self.signature)


def categories(graph: Graph) -> Offsets:
    """The category of each edge type, by its train facts.  (edge type)"""
    train, n = graph.train, graph.num_relations
    facts = np.bincount(train.relations, minlength=2 * n)
    heads = np.diff(train.starts[1])
    tails = np.roll(heads, -n)  # the heads of the inverse are the relation's tails
    many_tails, many_heads = (facts / np.maximum(ends, 1) >= MANY for ends in (heads, tails))
    return np.asarray(many_tails + 2 * many_heads)

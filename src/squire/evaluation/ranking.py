"""Ranks of many queries by one method, and every table that follows from them.

Knows ranks, relations and grades of evidence; who ranked is in the signature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from squire.core.relations import is_inverse
from squire.evaluation.metrics import Metrics, Signature
from squire.graph.adjacency import Ids, Offsets
from squire.graph.graph import Graph
from squire.search.evidence import GRADES

CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
MANY = 1.5  # tails a head, from which on a relation counts as one to many: the field's custom


@dataclass(frozen=True)
class Ranking:
    """The place of each right answer."""

    signature: Signature
    queries: Ids  # (query, 3): head, edge relation, answer
    ranks: npt.NDArray[np.float64]  # (query)
    grades: Offsets | None = None  # (grade): of the first ten answers of all queries, how many have this evidence

    def metrics(self, *, intervals: bool = True) -> Metrics:
        return Metrics.from_ranks(self.ranks, self.signature, intervals=intervals)

    def by_relation(self, graph: Graph) -> dict[str, Metrics]:
        """One row a relation, most asked first; heads of a relation are asked for as tails of its inverse."""
        relations, counts = np.unique(self.queries[:, 1], return_counts=True)
        rows: dict[str, Metrics] = {}
        for relation in relations[np.argsort(-counts, kind="stable")].tolist():
            label = graph.labels.relation(relation)
            name = f"{label} (inverse)" if is_inverse(relation, graph.num_relations) else label
            rows[name] = self._part(self.queries[:, 1] == relation)
        return rows

    def by_category(self, graph: Graph) -> dict[str, Metrics]:
        """One row a kind of relation: how many tails a head has and heads a tail, as the query sees it."""
        category = categories(graph)[self.queries[:, 1]]
        parts = {name: category == i for i, name in enumerate(CATEGORIES)}
        return {name: self._part(own) for name, own in parts.items() if own.any()}

    def grade_shares(self) -> dict[str, float]:
        """Of the first ten answers, the share with each grade of evidence."""
        if self.grades is None:
            return {}
        shares = self.grades / max(self.grades.sum(), 1)
        return dict(zip(GRADES, shares.tolist(), strict=True))

    def _part(self, own: npt.NDArray[np.bool_]) -> Metrics:
        return Metrics.from_ranks(self.ranks[own], self.signature)


def categories(graph: Graph) -> Offsets:
    """The category of each edge relation, by its train facts.  (edge relation)"""
    train, n = graph.train, graph.num_relations
    facts = np.bincount(train.relations, minlength=2 * n)
    heads = np.diff(train.starts[1])
    tails = np.roll(heads, -n)  # an inverse's heads are the relation's tails
    many_tails, many_heads = (facts / np.maximum(ends, 1) >= MANY for ends in (heads, tails))
    return np.asarray(many_tails + 2 * many_heads)

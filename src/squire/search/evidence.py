"""The grade of a path as evidence, by which of its edges are in the graph.

    grounded   every edge is known
    completed  some edge is inferred
    asserted   the queried edge itself, inferred, and nothing else

Works on ids and arrays of paths.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.core.relations import inverse
from squire.graph.adjacency import Adjacency, Offsets
from squire.rules.rules import NONE, Rules

GRADES = ("grounded", "completed", "asserted")
Flags = npt.NDArray[np.bool_]


def edges_of(heads: Offsets, paths: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Head, edge type and tail of every edge; −1 after the end.  (path), (path, 2 · hops) -> (path, hops) each"""
    relations, tails = paths[:, 0::2], paths[:, 1::2]
    return np.concatenate([heads[:, None], tails[:, :-1]], axis=1), relations, tails


def known_edges(graph: Adjacency, heads: Offsets, paths: Offsets) -> Flags:
    """Whether each edge is in the graph; false after the end.  (path), (path, 2 · hops) -> (path, hops)"""
    edge_heads, relations, tails = edges_of(heads, paths)
    return graph.contains_each(edge_heads, relations, tails) & (relations >= 0)


def grades(known: Flags, relations: Offsets, paths: Offsets, hops: Offsets) -> Offsets:
    """Index into GRADES; `relations` are the queried ones.

    (path, hops), (path), (path, 2 · hops), (path) -> (path)
    """
    grounded = known.sum(1) == hops
    asserted = ~grounded & (hops == 1) & (paths[:, 0] == relations)
    return np.where(grounded, 0, np.where(asserted, 2, 1))


class RuleLookup:
    """Closed rules by head and body, to find the one that a path follows."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        n = rules.num_relations
        self._by_body: dict[tuple[int, ...], int] = {}
        for rule in np.flatnonzero(rules.is_closed).tolist():
            head, body = int(rules.head[rule]), [b for b in rules.body[rule].tolist() if b != NONE]
            mirrored = [inverse(b, n) for b in reversed(body)]  # the same rule, read from its other end
            self._by_body[(head, *body)] = self._by_body[(inverse(head, n), *mirrored)] = rule

    def follows(self, relation: int, path_relations: list[int]) -> int | None:
        """The rule `relation ⇐ path`, or None; relations are edge types."""
        return self._by_body.get((relation, *path_relations))

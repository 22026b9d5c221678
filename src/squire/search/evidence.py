"""The grade of a path as evidence, by which of its edges are in the graph.

    grounded   every edge is known
    completed  some edge is inferred
    asserted   the queried edge itself, inferred, and nothing else

Works on ids and arrays of paths.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.core.ragged import offsets_from, order_of
from squire.graph.adjacency import Adjacency, Offsets
from squire.rules.rules import MAX_LENGTH, NONE, Rules, from_both_ends

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
        head, body, rule = from_both_ends(rules)
        order = order_of(head, 2 * rules.num_relations)
        self._offsets = offsets_from(np.bincount(head, minlength=2 * rules.num_relations))
        self._body, self._rule = body[order], rule[order]
        self._by_body: dict[int, dict[tuple[int, ...], int]] = {}  # of the heads that were asked for

    def follows(self, relation: int, path_relations: list[int]) -> int | None:
        """The rule `relation ⇐ path`, or None; relations are edge types."""
        if relation not in self._by_body:
            own = slice(self._offsets[relation], self._offsets[relation + 1])
            bodies = map(tuple, self._body[own].tolist())
            self._by_body[relation] = dict(zip(bodies, self._rule[own].tolist(), strict=True))
        padding = [NONE] * (MAX_LENGTH - len(path_relations))
        return self._by_body[relation].get((*path_relations, *padding))

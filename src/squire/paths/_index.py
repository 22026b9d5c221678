"""The graph as path search reads it: edges by pair of entities and by relation, without self-loops.

A self-loop is on no simple path, so it is left out here once instead of being avoided at every step.
Knows ids only: no labels, no rules, no randomness.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squire.graph.adjacency import Adjacency, Ids, Offsets


class PathIndex(NamedTuple):
    """Two sorted views of the edges. Every edge has its inverse twin, so both views work from either end."""

    num_relations: int  # of the graph, without inverses
    offsets: Offsets  # (entity + 1): the pairs of x are offsets[x]:offsets[x + 1]
    tails: Ids  # (pair): the distinct neighbours of each entity, sorted
    starts: Offsets  # (pair + 1): the edges of a pair are starts[pair]:starts[pair + 1] of `relations`
    relations: Ids  # (edge): sorted by head, tail, relation
    run_offsets: Offsets  # (entity + 1): the runs of x are run_offsets[x]:run_offsets[x + 1]
    run_relations: Ids  # (run): the distinct relations that leave each entity, sorted
    run_starts: Offsets  # (run + 1): the tails of a run are run_starts[run]:run_starts[run + 1] of `run_tails`
    run_tails: Ids  # (edge): sorted by head, relation, tail

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> PathIndex:
        keep = adjacency.heads != adjacency.tails
        heads, relations, tails = (
            column[keep] for column in (adjacency.heads, adjacency.relations, adjacency.tails)
        )
        order = np.argsort(heads.astype(np.int64) * adjacency.num_entities + tails, kind="stable")
        by_tail = _groups(heads[order], tails[order], adjacency.num_entities)
        by_relation = _groups(heads, relations, adjacency.num_entities)
        return cls(adjacency.num_relations, *by_tail, relations[order], *by_relation, tails)

    @property
    def degrees(self) -> Offsets:
        """Distinct neighbours.  (entity)"""
        return np.diff(self.offsets)

    @property
    def two_hop_degrees(self) -> Offsets:
        """What it costs to look two hops far: the neighbours' neighbours, repeated.  (entity)"""
        ends = np.concatenate([[0], np.cumsum(self.degrees[self.tails])])
        return np.diff(ends[self.offsets])


def _groups(heads: Ids, values: Ids, num_entities: int) -> tuple[Offsets, Ids, Offsets]:
    """Where each distinct (head, value) starts, of edges sorted by both, and how they divide among the heads."""
    first = np.ones(len(heads), bool)
    first[1:] = (heads[1:] != heads[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(first)
    offsets = np.searchsorted(heads[starts], np.arange(num_entities + 1))
    return offsets.astype(np.int64), values[starts], np.append(starts, len(heads)).astype(np.int64)

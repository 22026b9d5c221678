"""The edges of a graph in the form that the kernels read."""

from __future__ import annotations

import numpy as np

from squire.graph.adjacency import Adjacency
from squire.rules._walks import Edges

# A table of all heads and types makes walks on small, dense graphs almost twice as fast. So large may it be.
ENTRIES_PER_EDGE = 16
NO_TABLE = np.empty((0, 0), np.int32)


def walked_edges(adjacency: Adjacency) -> Edges:
    """The edges by head, type and tail."""
    size = adjacency.num_entities * (2 * adjacency.num_relations + 1)
    fits = size <= min(ENTRIES_PER_EDGE * adjacency.num_edges, 2**31)
    firsts = adjacency.firsts if fits else NO_TABLE
    return Edges(adjacency.offsets, adjacency.relations, adjacency.tails, firsts)


def edges_by_tail(adjacency: Adjacency) -> Edges:
    """The edges by head, tail and type."""
    return Edges(adjacency.offsets, *adjacency.by_tail, NO_TABLE)

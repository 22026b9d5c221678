"""Which relations an entity may well have: those that entities with the same relations have.

A person asks for the currency of a country, not of a river; the graph has no types, but its relations tell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.graph.store import Adjacency

OWN, PEERS = 16, 500  # rarest relations of an entity that tell its kind, and entities looked at for each
DOUBT = 5.0  # as if so many more peers had no relation in common: one peer is no kind
FITS = 0.2


def fitting(adjacency: Adjacency, entity: int) -> npt.NDArray[np.float64]:
    """For each edge relation, the share of peers that have it; 1 for those that the entity has.  (2 · relation)"""
    entities, offsets = adjacency.starts
    own = np.unique(adjacency.edges(entity)[0])
    share = np.zeros(2 * adjacency.num_relations)
    sizes = offsets[own + 1] - offsets[own]
    for relation in own[np.argsort(sizes, kind="stable")[:OWN]].tolist():
        peers = entities[offsets[relation] : offsets[relation + 1]]
        peers = peers[:: max(1, len(peers) // PEERS)]
        count = _having(adjacency, peers)
        np.maximum(share, count / (len(peers) + DOUBT), out=share)
    share[own] = 1.0
    return share


def _having(adjacency: Adjacency, entities: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """How many of the entities have an edge of each relation.  (2 · relation)"""
    first, size = adjacency.offsets[entities], np.diff(adjacency.offsets)[entities]
    edges = np.repeat(first - np.cumsum(size) + size, size) + np.arange(size.sum())
    owner = np.repeat(np.arange(len(entities)), size)
    relations = adjacency.relations[edges]
    # Edges of one entity are sorted by relation, so a relation's first edge counts and the others do not.
    is_first = np.ones(len(edges), bool)
    is_first[1:] = (np.diff(owner) != 0) | (np.diff(relations) != 0)
    return np.bincount(relations[is_first], minlength=2 * adjacency.num_relations)

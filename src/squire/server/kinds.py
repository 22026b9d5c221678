"""Which relations an entity may well have: those that entities with the same relations have.

A person asks for the currency of a country, not of a river; the graph has no types, but its relations tell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.core.ragged import ranges
from squire.graph.adjacency import Adjacency

OWN, PEERS = 16, 500  # rarest relations of an entity that tell its kind, and entities looked at for each
DOUBT = 1.0  # as if one more peer, the same in all else, had nothing more: a single one is no kind
FITS = 0.2


def fitting(adjacency: Adjacency, entity: int) -> npt.NDArray[np.float64]:
    """For each edge relation, how many of the entity's peers have it; 1 for its own.  (2 · relation)

    A peer counts by how alike it is: relations that both have by those that either has, squared.
    """
    own = np.unique(adjacency.edges(entity)[0])
    is_own = np.zeros(2 * adjacency.num_relations, bool)
    is_own[own] = True
    peers = _peers(adjacency, entity, own)
    owner, relations = _relations_of(adjacency, peers)
    both = np.bincount(owner, is_own[relations], len(peers))
    either = np.bincount(owner, minlength=len(peers)) + len(own) - both
    alike = (both / np.maximum(either, 1)) ** 2
    share = np.bincount(relations, alike[owner], len(is_own)) / (alike.sum() + DOUBT)
    return np.where(is_own, 1.0, share)


def _peers(adjacency: Adjacency, entity: int, own: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Others with some of the same relations; of many, some, evenly spread."""
    entities, offsets = adjacency.starts
    rarest = own[np.argsort(offsets[own + 1] - offsets[own], kind="stable")[:OWN]].tolist()
    having = [entities[offsets[relation] : offsets[relation + 1]] for relation in rarest]
    some = [one[:: max(1, len(one) // PEERS)] for one in having]
    found: npt.NDArray[np.int32] = np.unique(np.concatenate([np.empty(0, np.int32), *some]))
    others: npt.NDArray[np.int32] = found[found != entity]
    return others


def _relations_of(
    adjacency: Adjacency, entities: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The distinct relations of each entity: whose (a place in `entities`), and which.  (pair), (pair)"""
    first, size = adjacency.offsets[entities], np.diff(adjacency.offsets)[entities]
    edges = ranges(first, size)
    owner, relations = np.repeat(np.arange(len(entities)), size), adjacency.relations[edges]
    # Edges of one entity are sorted by relation, so a relation's first edge stays and the others go.
    is_first = np.ones(len(edges), bool)
    is_first[1:] = (np.diff(owner) != 0) | (np.diff(relations) != 0)
    return owner[is_first], relations[is_first]

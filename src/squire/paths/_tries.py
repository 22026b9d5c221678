"""Paths of one query to a prefix tree, compiled: arrays in, arrays out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.core.compile import kernel
from squire.graph.adjacency import Ids, Offsets

Depths = npt.NDArray[np.int8]


@kernel
def shared_tokens(relations: Ids, entities: Ids, one: int, other: int) -> int:
    """How many tokens two paths begin with in common."""
    hop = 0
    hops = relations.shape[1]
    while hop < hops and relations[one, hop] >= 0:
        if relations[one, hop] != relations[other, hop]:
            return 2 * hop
        if entities[one, hop] != entities[other, hop]:
            return 2 * hop + 1
        hop += 1
    return 2 * hop


@kernel
def sort_paths(
    relations: Ids,
    entities: Ids,
    length: Ids,
    members: Offsets,
    offsets: Offsets,
    first: int,
    last: int,
    sizes: Offsets,
) -> None:
    """Put the members of the queries first:last in order of their tokens, and count the nodes they make."""
    for query in range(first, last):
        own = members[offsets[query] : offsets[query + 1]]
        keys = np.empty(len(own), np.int64)
        for hop in range(relations.shape[1] - 1, -1, -1):  # stable sorts, the most significant hop last
            for i in range(len(own)):
                # (relation, entity) as one number, and NONE before all: a path comes before what extends it
                keys[i] = (np.int64(relations[own[i], hop]) << 32) + entities[own[i], hop]
            own[:] = own[np.argsort(keys, kind="mergesort")]
        nodes = 0
        for i in range(len(own)):
            shared = 0
            if i:
                shared = shared_tokens(relations, entities, own[i - 1], own[i])
            nodes += 2 * length[own[i]] - shared
        sizes[query] = nodes


@kernel
def grow(
    relations: Ids,
    entities: Ids,
    length: Ids,
    weight: Ids,
    members: Offsets,
    offsets: Offsets,
    first: int,
    last: int,
    starts: Offsets,
    token: Ids,
    parent: Ids,
    depth: Depths,
    node_weight: Ids,
    end: Ids,
) -> None:
    """Write the nodes of the queries first:last, whose members are sorted; starts: (query + 1)."""
    branch = np.empty(2 * relations.shape[1], np.int64)  # the nodes of the last path, from the root
    for query in range(first, last):
        node = starts[query]
        for i in range(offsets[query], offsets[query + 1]):
            path = members[i]
            shared = shared_tokens(relations, entities, members[i - 1], path) if i > offsets[query] else 0
            for at in range(2 * length[path]):
                if at >= shared:
                    values = entities if at & 1 else relations
                    token[node] = values[path, at >> 1]
                    parent[node] = branch[at - 1] - starts[query] if at else -1
                    depth[node] = at + 1
                    node_weight[node] = 0
                    end[node] = 0
                    branch[at] = node
                    node += 1
                node_weight[branch[at]] += weight[path]
            end[branch[2 * length[path] - 1]] += weight[path]


@kernel
def climb(
    token: Ids,
    parent: Ids,
    depth: Depths,
    starts: Offsets,
    leaves: Offsets,
    query: Offsets,
    relations: Ids,
    entities: Ids,
) -> None:
    """Write the path that ends at each leaf, from its end to the root."""
    for i in range(len(leaves)):
        node = leaves[i]
        for at in range(depth[node] - 1, -1, -1):
            values = entities if at & 1 else relations
            values[i, at >> 1] = token[node]
            node = starts[query[i]] + parent[node]

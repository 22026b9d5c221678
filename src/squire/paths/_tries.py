"""Kernels that build prefix trees from paths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.core.compile import inner_kernel, kernel
from squire.graph.adjacency import Ids, Offsets

Depths = npt.NDArray[np.int8]


@inner_kernel
def shared_tokens(relations: Ids, entities: Ids, one: int, other: int) -> int:
    """The number of tokens that two paths have in common at their beginning."""
    hop = 0
    hops = relations.shape[1]
    while hop < hops and relations[one, hop] >= 0:
        if relations[one, hop] != relations[other, hop]:
            return 2 * hop
        if entities[one, hop] != entities[other, hop]:
            return 2 * hop + 1
        hop += 1
    return 2 * hop


@inner_kernel
def comes_before(relations: Ids, entities: Ids, one: int, other: int) -> bool:
    """Orders paths by their tokens, NONE first: a path comes before those that extend it."""
    for hop in range(relations.shape[1]):
        if relations[one, hop] != relations[other, hop]:
            return bool(relations[one, hop] < relations[other, hop])
        if entities[one, hop] != entities[other, hop]:
            return bool(entities[one, hop] < entities[other, hop])
    return False


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
    """Sorts the members of the queries first:last by their tokens, and counts the nodes of their trees."""
    for query in range(first, last):
        low, high = offsets[query], offsets[query + 1]
        gap = high - low
        while gap > 1:  # Shell sort: numba's argsort took 3 s to compile
            gap = max(gap * 5 // 11, 1)
            for i in range(low + gap, high):
                path, at = members[i], i
                while at >= low + gap and comes_before(relations, entities, path, members[at - gap]):
                    members[at] = members[at - gap]
                    at -= gap
                members[at] = path
        nodes = 0
        for i in range(low, high):
            nodes += 2 * length[members[i]]
            if i > low:
                nodes -= shared_tokens(relations, entities, members[i - 1], members[i])
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
    end: Ids,
) -> None:
    """Writes the nodes of the queries first:last, whose members are sorted.  starts: (query + 1)"""
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
                    end[node] = 0
                    branch[at] = node
                    node += 1
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
    """Writes the path that ends at each leaf, from its end to the root."""
    for i in range(len(leaves)):
        node = leaves[i]
        for at in range(depth[node] - 1, -1, -1):
            values = entities if at & 1 else relations
            values[i, at >> 1] = token[node]
            node = starts[query[i]] + parent[node]

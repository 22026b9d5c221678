"""Kernels that look up edges and walk along bodies.

`offsets, relations, tails` are those of an `Adjacency`. A grounding is a simple path: no entity occurs twice. So
X ≠ Y, and no grounding of two atoms or more uses the triple it predicts; for one atom, that is the trivial body,
which is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from squire.core.compile import inner_kernel, int64

Array = Any  # numba infers the types; the shapes stand at the arguments


class Edges(NamedTuple):
    """The arrays of an `Adjacency`."""

    offsets: Array  # (entity + 1)
    relations: Array  # (edge)
    tails: Array  # (edge)
    firsts: Array  # (entity, edge type + 1): where the edges of a type begin; (0, 0) if that would be large


class Starts(NamedTuple):
    """The entities that have an edge of each type."""

    entities: Array  # (edge type, start), flat
    offsets: Array  # (edge type + 1)


@inner_kernel
def inverse(edge_type: int, num_relations: int) -> int:
    """`core.relations.inverse` for compiled code, without a division."""
    return edge_type + num_relations if edge_type < num_relations else edge_type - num_relations


@inner_kernel
def stride(count: int, most: int) -> int:
    """The step at which `count` items are visited so that at most `most` of them are."""
    return (count + most - 1) // most if count > most else 1


@inner_kernel
def noted_stride(count: int, most: int, sampled: Array) -> int:
    """The same; `sampled[0]` becomes true if some items are left out."""
    step = stride(count, most)
    if step > 1:
        sampled[0] = True
    return step


@inner_kernel
def span(offsets: Array, relations: Array, head: int, relation: int) -> tuple[int, int]:
    """The slice of edges of (head, relation)."""
    low, high = offsets[head], offsets[head + 1]
    while low < high:
        middle = (low + high) // 2
        if relations[middle] < relation:
            low = middle + 1
        else:
            high = middle
    first = low
    high = offsets[head + 1]
    while low < high:
        middle = (low + high) // 2
        if relations[middle] <= relation:
            low = middle + 1
        else:
            high = middle
    return first, low


@inner_kernel
def edges_of(edges: Edges, head: int, relation: int) -> tuple[int, int]:
    """The same, looked up if there is a table."""
    if len(edges.firsts):
        return int64(edges.firsts[head, relation]), int64(edges.firsts[head, relation + 1])
    return span(edges.offsets, edges.relations, head, relation)


@inner_kernel
def lower_bound(sorted_values: Array, low: int, high: int, value: int) -> int:
    """The first position in low:high whose value is not below `value`."""
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@inner_kernel
def has_edge(edges: Edges, head: int, relation: int, tail: int) -> bool:
    low, high = edges_of(edges, head, relation)
    at = lower_bound(edges.tails, low, high, tail)
    return at < high and edges.tails[at] == tail


@inner_kernel
def reach(
    x: int,
    prefix: Array,  # (MAX_LENGTH): a body, of which all but the last edge type are walked
    length: int,
    edges: Edges,
    seen: Array,  # (entity): scratch, the token of the last walk that reached it
    via: Array,  # (entity): scratch, the entity before it, or -1 if there are several
    token: int,
    ends: Array,  # (entity): receives the ends of the walk before its last hop
    most: int,  # steps; beyond it, edges are skipped evenly
    sampled: Array,  # (1): becomes true if edges are skipped
) -> tuple[int, int]:
    """Walks all but the last hop of a body from X. Gives the number of ends and of steps.

    A last hop from end b to y is a simple path if y is neither X nor b nor `via[b]`.
    """
    if length == 1:
        ends[0], via[x] = x, x
        return 1, 1
    count, steps = 0, 0
    low, high = edges_of(edges, x, prefix[0])
    skip = noted_stride(high - low, most, sampled)
    most = max(most // max((high - low) // skip, 1), 1)  # steps from one neighbour
    for edge in range(low, high, skip):
        a = edges.tails[edge]
        if a == x:
            continue
        if length == 2:
            ends[count], via[a] = a, x
            count += 1
            continue
        low2, high2 = edges_of(edges, a, prefix[1])
        skip2 = noted_stride(high2 - low2, most, sampled)
        steps += (high2 - low2) // skip2
        for edge2 in range(low2, high2, skip2):
            b = edges.tails[edge2]
            if b == x or b == a:
                continue
            if seen[b] != token:
                seen[b], via[b] = token, a
                ends[count] = b
                count += 1
            elif via[b] != a:
                via[b] = -1
    return count, steps + (high - low) // skip + 1

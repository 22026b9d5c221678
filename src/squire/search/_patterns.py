"""Kernels that walk relation patterns from many heads at once.

`offsets, relations, tails` are those of an `Adjacency`. A walk visits no entity twice.
"""

from __future__ import annotations

from typing import Any

from squire.core.compile import inner_kernel, kernel
from squire.rules._walks import span, stride

Array = Any  # numba infers the types; the shapes stand at the arguments


@kernel
def leaving(
    ends: Array,  # (end)
    end_offsets: Array,  # (pattern + 1): into the ends
    most: int,  # ends and edges of one end that are looked at
    offsets: Array,
    relations: Array,
    out: Array,  # (pattern, edge type): receives whether an end has an edge of the type
) -> None:
    for pattern in range(len(end_offsets) - 1):
        first, last = end_offsets[pattern], end_offsets[pattern + 1]
        for i in range(first, last, stride(last - first, most)):
            low, high = offsets[ends[i]], offsets[ends[i] + 1]
            for edge in range(low, high, stride(high - low, most)):
                out[pattern, relations[edge]] = True


@kernel
def walk(
    heads: Array,  # (new pattern): where it starts
    parent: Array,  # (new pattern): the pattern that it extends
    edge_type: Array,  # (new pattern): by this type
    end_offsets: Array,  # (pattern + 1)
    ends: Array,  # (end)
    via: Array,  # (end, 2): two different entities that come before it, −1 if there is no such
    most: int,  # ends of a pattern; beyond it edges are skipped evenly
    offsets: Array,
    relations: Array,
    tails: Array,
    seen: Array,  # (entity): scratch, where the entity is among the new ends, −1 if it is not
    new_offsets: Array,  # (new pattern + 1): output
    skipped: Array,  # (new pattern): output, for how many edges each one that was followed stands
    new_ends: Array,  # (capacity): output
    new_via: Array,  # (capacity, 2): output
) -> None:
    count = 0
    for i in range(len(parent)):
        first, last = end_offsets[parent[i]], end_offsets[parent[i] + 1]
        number = 0
        for at in range(first, last):
            low, high = span(offsets, relations, ends[at], edge_type[i])
            number += high - low
        skip = stride(number, most)
        skipped[i] = skip
        begin, left = count, 0
        for at in range(first, last):
            a = ends[at]
            low, high = span(offsets, relations, a, edge_type[i])
            for edge in range(low + left, high, skip):
                b = tails[edge]
                if b != heads[i] and b != a and not (via[at, 0] == b and via[at, 1] < 0):
                    count = _note(a, b, begin, count, seen, new_ends, new_via)
            left = (left - (high - low)) % skip
        for at in range(begin, count):
            seen[new_ends[at]] = -1
        new_offsets[i + 1] = count


@inner_kernel
def _note(a: int, b: int, begin: int, count: int, seen: Array, ends: Array, via: Array) -> int:
    """Remembers that a leads to b; returns the number of ends."""
    at = seen[b]
    if at < begin:
        seen[b] = count
        ends[count], via[count, 0], via[count, 1] = b, a, -1
        return count + 1
    if via[at, 1] < 0 and via[at, 0] != a:
        via[at, 1] = a
    return count

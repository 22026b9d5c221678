"""Kernels that put edges into other orders without comparing them.

Every edge has its inverse. So whoever visits the edges in a fitting order can put the inverse of each at the next
place of its head.
"""

from __future__ import annotations

from typing import Any

from squire.core.compile import kernel

Array = Any  # numba infers the types


@kernel
def order_by_tail(
    offsets: Array, relations: Array, tails: Array, num_relations: int,
    place: Array,  # (entity): where the next edge of each head goes; at first offsets[:-1]
    out_relations: Array, out_tails: Array,
) -> None:  # fmt: skip
    """The edges sorted by head, tail and type, from those sorted by head, type and tail.  (edge) each"""
    for x in range(len(offsets) - 1):
        low, high = offsets[x], offsets[x + 1]
        middle = low
        while middle < high and relations[middle] < num_relations:
            middle += 1
        for i in range(middle, high):  # inverse types first: their inverses are the smaller numbers
            y = tails[i]
            out_relations[place[y]], out_tails[place[y]] = relations[i] - num_relations, x
            place[y] += 1
        for i in range(low, middle):
            y = tails[i]
            out_relations[place[y]], out_tails[place[y]] = relations[i] + num_relations, x
            place[y] += 1


@kernel
def order_runs(
    order: Array, starts: Array, tails: Array,
    place: Array,  # (entity): as above
    out: Array,
) -> None:  # fmt: skip
    """For each edge (h, r, t) the run (t, r⁻¹), which has all edges of this type and tail.  (edge)

    order: the runs by the inverse of their type, then by head.  (run)
    """
    for run in order:
        for i in range(starts[run], starts[run + 1]):
            y = tails[i]
            out[place[y]] = run
            place[y] += 1


@kernel
def find_inverses(
    end_runs: Array,
    place: Array,  # (run): where the inverse of the next edge that leads to it is; at first starts[:-1]
    out: Array,
) -> None:
    """For each edge the position of its inverse.  (edge)"""
    for i in range(len(end_runs)):
        run = end_runs[i]
        out[i] = place[run]
        place[run] += 1

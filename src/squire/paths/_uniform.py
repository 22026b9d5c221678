"""Kernels that count and draw random paths (§3.2).

Queries are taken in groups that share their *pivot*, the end with more neighbours; since every edge has its
inverse, either end will do. Walks of two hops from the pivot are counted once per group. The other end is searched
through its own few neighbours, and a path is drawn where the two meet. Paths are never enumerated.

A simple path of two hops or more can use neither the query edge nor its inverse: it is at the head only at its
start and at the tail only at its end. So only paths of one hop must be checked against the query edge.
"""

from __future__ import annotations

import numpy as np

from squire.core.compile import inner_kernel, int64, kernel
from squire.graph.adjacency import Ids
from squire.paths._lookups import (
    ALL,
    HEAVY,
    NONE,
    PROBES,
    Drawn,
    PathIndex,
    Task,
    Work,
    add_ways,
    among,
    below,
    edges_between,
    forget_ways,
    holds,
    multiplicity,
    opposite,
    other_of,
    pivot_of,
    position,
    reseed,
)


@inner_kernel
def spread(index: PathIndex, work: Work, pivot: int, lookups: int) -> None:
    """Counts the walks pivot → a → b for every b, except over those a that are cheaper to look up."""
    for i in range(index.offsets[pivot], index.offsets[pivot + 1]):
        a = index.tails[i]
        low, high = index.offsets[a], index.offsets[a + 1]
        if high - low > HEAVY * lookups:
            work.heavy[work.sizes[1]] = a
            work.sizes[1] += 1
            continue
        for j in range(low, high):
            add_ways(work, index.tails[j], work.near[a] * (index.starts[j + 1] - index.starts[j]))


@inner_kernel
def add_ways_over(index: PathIndex, work: Work, a: int, sign: int) -> None:
    """Adds (1) or removes (-1) the walks pivot → a → b: a path to a may not pass through it."""
    for i in range(index.offsets[a], index.offsets[a + 1]):
        work.ways[index.tails[i]] += sign * work.near[a] * (index.starts[i + 1] - index.starts[i])


@inner_kernel
def ways_to(index: PathIndex, work: Work, b: int, avoid: Ids) -> int:
    """The number of walks pivot → a → b whose a is not to be avoided."""
    total = work.ways[b]
    for i in range(work.sizes[1]):
        a = work.heavy[i]
        total += work.near[a] * multiplicity(index, b, a)
    if total:
        for x in avoid:
            if x != NONE and work.near[x]:
                total -= work.near[x] * multiplicity(index, x, b)
    return int(total)


@inner_kernel
def first_step(index: PathIndex, work: Work, b: int, ordinal: int, ways: int, most: int) -> int:
    """The a of the walk pivot → a → b with this ordinal, or of another one, drawn uniformly.

    Where most edges of the pivot lead to b, random attempts soon succeed. An attempt that succeeds is uniform, and
    so is enumeration after failed attempts. `most` bounds the edges between two entities.
    """
    pivot = work.nodes[0]
    low, high = index.offsets[pivot], index.offsets[pivot + 1]
    edges = index.starts[high] - index.starts[low]
    b_low, b_high = index.offsets[b], index.offsets[b + 1]
    if min(high - low, b_high - b_low) > PROBES and edges * most <= PROBES // 2 * ways:
        for _ in range(PROBES):
            edge = index.starts[low] + below(work.state, edges)
            a = index.tails[position(index.starts, low, high, edge + 1) - 1]
            if below(work.state, most) < multiplicity(index, a, b) and not among(work.excluded, a):
                return int(a)
    if b_high - b_low <= HEAVY * (high - low):
        for i in range(b_low, b_high):
            a = index.tails[i]
            if work.near[a] and not among(work.excluded, a):
                ordinal -= work.near[a] * (index.starts[i + 1] - index.starts[i])
                if ordinal < 0:
                    return int(a)
    else:
        for i in range(low, high):
            a = index.tails[i]
            if not among(work.excluded, a):
                ordinal -= work.near[a] * multiplicity(index, a, b)
                if ordinal < 0:
                    return int(a)
    return NONE


@inner_kernel
def scan_near(index: PathIndex, work: Work, t: int, avoid: Ids, ordinal: int) -> int:
    """The number of paths pivot → a → t, or up to the one with this ordinal, which is written to `nodes`."""
    total = 0
    for i in range(index.offsets[t], index.offsets[t + 1]):
        a = index.tails[i]
        if work.near[a] and not among(avoid, a):
            total += work.near[a] * (index.starts[i + 1] - index.starts[i])
            if total > ordinal:
                work.nodes[1] = a
                return int(total)
    return int(total)


@inner_kernel
def scan_ways(index: PathIndex, work: Work, c: int, t: int, avoid: Ids, ordinal: int, slot: int, most: int) -> int:
    """The same for pivot → a → b → c, with b at nodes[slot]; c is t itself, or the entity before t."""
    total = 0
    own = 0 if c == t else work.near[c]  # walks through c itself; those through t are not in `ways`
    for i in range(index.offsets[c], index.offsets[c + 1]):
        b = index.tails[i]
        if b == work.nodes[0] or b == t or among(avoid, b):
            continue
        edges = index.starts[i + 1] - index.starts[i]
        ways = ways_to(index, work, b, avoid) - own * edges
        total += ways * edges
        if total > ordinal:
            rest = (ordinal - (total - ways * edges)) // edges
            work.nodes[slot] = b
            work.nodes[1] = first_step(index, work, b, rest, ways, most)
            return int(total)
    return int(total)


@inner_kernel
def scan_far(index: PathIndex, work: Work, t: int, avoid: Ids, ordinal: int, most: int) -> int:
    """The same for pivot → a → b → c → t."""
    total = 0
    for i in range(index.offsets[t], index.offsets[t + 1]):
        c = int64(index.tails[i])
        if c == work.nodes[0] or among(avoid, c):
            continue
        edges = index.starts[i + 1] - index.starts[i]
        work.excluded[-1] = c
        rest = ALL if ordinal == ALL else (ordinal - total) // edges
        found = scan_ways(index, work, c, t, avoid, rest, 2, most)
        if found > rest:
            work.nodes[3] = c
            work.excluded[-1] = NONE
            return int(ALL)
        total += found * edges
    work.excluded[-1] = NONE
    return int(total)


@inner_kernel
def scan(
    index: PathIndex, work: Work, t: int, avoid: Ids, length: int, relation: int, ordinal: int, most: int
) -> int:
    """The number of simple paths of a length from the pivot to t, or up to the one with this ordinal (`nodes`)."""
    work.nodes[length] = t
    if length == 1:
        low, high = edges_between(index, t, work.nodes[0])
        return high - low - holds(index.relations, low, high, relation)
    if length == 2:
        return scan_near(index, work, t, avoid, ordinal)
    if length == 3:
        return scan_ways(index, work, t, t, avoid, ordinal, 2, most)
    return scan_far(index, work, t, avoid, ordinal, most)


@inner_kernel
def write(index: PathIndex, task: Task, row: int, length: int, work: Work, out: Drawn) -> None:
    """Writes the path in `nodes` to the next slot of the row, with a uniform choice among parallel edges."""
    slot = out.filled[row]
    nodes = work.nodes[: length + 1]
    if task.flipped[row]:
        nodes = nodes[::-1]
    for hop in range(length):
        low, high = edges_between(index, nodes[hop], nodes[hop + 1])
        forbidden = high
        if length == 1 and holds(index.relations, low, high, task.relation[row]):
            forbidden = position(index.relations, low, high, task.relation[row])
            high -= 1  # one edge fewer to choose from; later ones shift by one
        edge = low + below(work.state, high - low)
        out.relations[row, slot, hop] = index.relations[edge + (edge >= forbidden)]
        out.entities[row, slot, hop] = nodes[hop + 1]
    out.length[row, slot] = length
    out.filled[row] += 1


@inner_kernel
def fill_row(index: PathIndex, task: Task, row: int, work: Work, out: Drawn, key: np.uint64, most: int) -> None:
    """Fills the empty slots: the lengths that exist take turns in random order, uniform within a length."""
    reseed(work.state, key, row, NONE)
    t, avoid = other_of(task, row), task.avoid[row]
    twin = task.relation[row]  # as seen by `scan`, from the end that is not the pivot
    if twin != NONE and not task.flipped[row]:
        twin = opposite(index, twin)
    for i in range(len(avoid)):
        work.excluded[i] = avoid[i]
    work.excluded[len(avoid)] = t
    work.excluded[-1] = NONE
    counts, lengths = work.counts, work.lengths
    kinds = 0
    if task.budget[row] >= 3:
        add_ways_over(index, work, t, int64(-1))
    for length in range(1, task.budget[row] + 1):
        counts[length] = scan(index, work, t, avoid, length, twin, ALL, most)
        if counts[length]:
            lengths[kinds] = length
            kinds += 1
    for i in range(kinds - 1, 0, -1):
        j = below(work.state, i + 1)
        lengths[i], lengths[j] = lengths[j], lengths[i]
    turn = 0
    while kinds and out.filled[row] < out.length.shape[1]:
        length = int64(lengths[turn % kinds])
        scan(index, work, t, avoid, length, twin, below(work.state, counts[length]), most)
        write(index, task, row, length, work, out)
        turn += 1
    if task.budget[row] >= 3:
        add_ways_over(index, work, t, int64(1))


@kernel
def fill(
    index: PathIndex,
    task: Task,
    first: int,
    last: int,
    work: Work,
    out: Drawn,
    key: np.uint64,
    most: int,
) -> None:
    """Draws random paths for the groups first:last."""
    for group in range(first, last):
        rows = task.order[task.groups[group] : task.groups[group + 1]]
        pivot = pivot_of(task, rows[0])
        lookups = int64(0)
        wanted = False
        for row in rows:
            if out.filled[row] == out.length.shape[1]:
                continue
            wanted = True
            t = other_of(task, row)
            if task.budget[row] >= 3:
                lookups += index.offsets[t + 1] - index.offsets[t]
            if task.budget[row] >= 4:
                for i in range(index.offsets[t], index.offsets[t + 1]):
                    c = index.tails[i]
                    lookups += index.offsets[c + 1] - index.offsets[c]
        if not wanted:
            continue
        work.nodes[0] = pivot
        for i in range(index.offsets[pivot], index.offsets[pivot + 1]):
            work.near[index.tails[i]] = index.starts[i + 1] - index.starts[i]
        if lookups:
            spread(index, work, pivot, lookups)
        for row in rows:
            if out.filled[row] < out.length.shape[1]:
                fill_row(index, task, row, work, out, key, most)
        forget_ways(work)
        for i in range(index.offsets[pivot], index.offsets[pivot + 1]):
            work.near[index.tails[i]] = 0


@inner_kernel
def is_same(out: Drawn, row: int, one: int, other: int) -> bool:
    if out.length[row, one] != out.length[row, other]:
        return False
    for hop in range(out.length[row, one]):
        if (
            out.relations[row, one, hop] != out.relations[row, other, hop]
            or out.entities[row, one, hop] != out.entities[row, other, hop]
        ):
            return False
    return True


@kernel
def weigh(out: Drawn, weight: Ids) -> None:
    """Counts equal paths of a row at the first of them.  weight: (query, slot)"""
    for row in range(len(out.filled)):
        for slot in range(out.filled[row]):
            same = 0
            while not is_same(out, row, same, slot):
                same += 1
            weight[row, same] += 1

"""Kernels that count for the miner: support, body counts, rules with constants. See `_walks` for the terms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from squire.core.compile import inner_kernel, int64, kernel
from squire.rules._walks import Edges, Starts, edges_of, has_edge, inverse, lower_bound, reach

Array = Any

# A neighbour list is scanned unless the other end's is this many times shorter: binary search costs more per step.
SEARCH_FACTOR = 8


class Neighbours(NamedTuple):
    """The neighbours of the current Y."""

    of: Array  # (entity): the last Y that has this neighbour
    first: Array  # (entity): its edges from Y, by pair
    stop: Array


class CountTable(NamedTuple):
    """A hash table with open addressing that counts each key once per pair."""

    keys: Array  # (slot): -1 if free
    counts: Array
    last: Array  # (slot): the last pair that touched it


class EdgeRuns(NamedTuple):
    """The edges of each (head, relation)."""

    starts: Array  # (run + 1): its first edge
    offsets: Array  # (entity + 1): the runs of each head


class CountScratch(NamedTuple):
    """Memory that is reused from group to group."""

    seen: Array  # (entity): the last walk that came here
    via: Array  # (entity): from where
    ends: Array  # (entity): ends of a walk before its last hop
    reached: Array  # (entity): the last body and start that led here
    body_of: Array  # (edge type): the body of the group that ends with it; -1 between groups
    run_of: Array  # (run): the last hops of each body, as linked lists
    next_run: Array
    end_of: Array  # (run): the end from which a listed run leaves
    sampled: Array  # (1): whether a walk left out edges; none does


class GroupCounts(NamedTuple):
    """What is counted for the bodies of a group: zero at first, `alive` true and `first_run` -1."""

    total: Array  # (body): pairs
    error: Array  # (body): standard error of the total
    alive: Array  # (body): is the total within the limits?
    rest: Array  # (body): pairs after the pilot
    squares: Array  # (body): the sum of their squares
    first_run: Array  # (body): the head of its list of runs


# ---------------------------------------------------------------------------- support: which bodies link X to Y


@kernel
def count_support(
    pairs: Array,  # (pair, 2): X and Y of triples of one relation; fastest if sorted by the end of higher degree
    length: int,
    num_relations: int,
    edges: Edges,
    by_pair: Edges,  # the same edges sorted by head, tail, relation
) -> tuple[Array, Array]:
    """The number of pairs that each body of this length links: keys (b1 · 2R + b2) · 2R + b3, or -1, and counts.

    One hop from each end, and the edges between: never more than two hops are walked, and these from the end with
    fewer edges. The hash table counts a key once per pair, by the last pair that touched it.
    """
    num_entities = len(edges.offsets) - 1
    near = Neighbours(
        np.full(num_entities, -1), np.zeros(num_entities, np.int64), np.zeros(num_entities, np.int64)
    )
    table = CountTable(np.full(4096, -1), np.zeros(4096, np.int32), np.zeros(4096, np.int32))
    used, marked = 0, int64(-1)
    for pair in range(len(pairs)):
        x, y = int64(pairs[pair, 0]), int64(pairs[pair, 1])
        if x == y:
            continue
        mirrored = _degree(edges, x) > _degree(edges, y)
        if mirrored:
            x, y = y, x
        if length > 1 and y != marked:
            _mark(y, edges, by_pair, near)
            marked = y
        while True:
            room = len(table.keys) // 2 - used
            used += _link_pair(x, y, mirrored, pair, length, num_relations, edges, by_pair, near, table, room)
            if 2 * used < len(table.keys):
                break
            # Full in the middle of a pair: repeating the pair is harmless, since it counts once. Growing here
            # and not inside keeps the inner loops free of reference counts (3× faster).
            size = 2 * len(table.keys)
            grown = CountTable(np.full(size, -1), np.zeros(size, np.int32), np.zeros(size, np.int32))
            _copy_entries(table, grown)
            table = grown
    return table.keys, table.counts


@inner_kernel
def _degree(edges: Edges, entity: int) -> int:
    return int64(edges.offsets[entity + 1] - edges.offsets[entity])


@inner_kernel
def _mark(y: int, edges: Edges, by_pair: Edges, near: Neighbours) -> None:
    """Notes which entities are neighbours of Y, and by which of its edges."""
    position, last = edges.offsets[y], edges.offsets[y + 1]
    while position < last:
        b = by_pair.tails[position]
        near.of[b], near.first[b] = y, position
        while position < last and by_pair.tails[position] == b:
            position += 1
        near.stop[b] = position


@inner_kernel
def _link_pair(
    x: int,
    y: int,
    mirrored: bool,  # is a body read from Y to X?
    pair: int,
    length: int,
    num_relations: int,
    edges: Edges,
    by_pair: Edges,
    near: Neighbours,
    table: CountTable,
    room: int,  # entries that the table can still take
) -> int:
    """Counts the bodies between X and Y. Gives the number of new entries, and stops when the table is full."""
    offsets, relations, tails, _ = edges
    _, pair_relations, pair_tails, _ = by_pair
    near_y, first, stop = near
    keys, counts, last = table
    base = 2 * num_relations
    new = 0
    degree_y = offsets[y + 1] - offsets[y]
    for edge in range(offsets[x], offsets[x + 1]):
        a, b1 = tails[edge], int64(relations[edge])
        if a == x:
            continue
        if length == 1:
            if a == y:
                b1 = inverse(b1, num_relations) if mirrored else b1
                new += _touch(keys, counts, last, b1 * base * base, pair)
                if new >= room:
                    return new
        elif length == 2:
            if a != y and near_y[a] == y:
                for e in range(first[a], stop[a]):
                    key = _key(b1, int64(-1), int64(pair_relations[e]), mirrored, num_relations)
                    new += _touch(keys, counts, last, key, pair)
                    if new >= room:
                        return new
        elif a == y:
            continue
        elif offsets[a + 1] - offsets[a] <= SEARCH_FACTOR * degree_y:
            for middle in range(offsets[a], offsets[a + 1]):
                b = tails[middle]
                if near_y[b] != y or b == x or b == y or b == a:
                    continue
                for e in range(first[b], stop[b]):
                    key = _key(b1, int64(relations[middle]), int64(pair_relations[e]), mirrored, num_relations)
                    new += _touch(keys, counts, last, key, pair)
                    if new >= room:
                        return new
        else:
            for e in range(offsets[y], offsets[y + 1]):
                b = pair_tails[e]
                if b == x or b == y or b == a:
                    continue
                middle = lower_bound(pair_tails, offsets[a], offsets[a + 1], b)
                while middle < offsets[a + 1] and pair_tails[middle] == b:
                    key = _key(
                        b1, int64(pair_relations[middle]), int64(pair_relations[e]), mirrored, num_relations
                    )
                    new += _touch(keys, counts, last, key, pair)
                    if new >= room:
                        return new
                    middle += 1
    return new


@inner_kernel
def _key(b1: int, b2: int, back: int, mirrored: bool, num_relations: int) -> int:
    """The key of the body b1, b2, back⁻¹ from X to Y, or of the same read from Y. Without b2 if that is -1."""
    base = 2 * num_relations
    if b2 < 0:
        if mirrored:
            return (back * base + inverse(b1, num_relations)) * base
        return (b1 * base + inverse(back, num_relations)) * base
    if mirrored:
        return (back * base + inverse(b2, num_relations)) * base + inverse(b1, num_relations)
    return (b1 * base + b2) * base + inverse(back, num_relations)


@inner_kernel
def _slot(keys: Array, key: Array) -> Array:
    """The slot of `key`, or the free one where it belongs."""
    mask = len(keys) - 1
    slot = ((key * int64(-7046029254386353131)) >> int64(20)) & mask  # Fibonacci hashing
    while keys[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@inner_kernel
def _touch(keys: Array, counts: Array, last: Array, key: Array, pair: int) -> int:
    """Counts `key` once for this pair. Gives 1 if it is new in the table, else 0."""
    slot = _slot(keys, key)
    new = keys[slot] < 0
    if new or last[slot] != pair:
        keys[slot], last[slot] = key, pair
        counts[slot] += 1
    return 1 if new else 0


@inner_kernel
def _copy_entries(table: CountTable, larger: CountTable) -> None:
    for old in range(len(table.keys)):
        if table.keys[old] >= 0:
            slot = _slot(larger.keys, table.keys[old])
            larger.keys[slot] = table.keys[old]
            larger.counts[slot], larger.last[slot] = table.counts[old], table.last[old]


# -------------------------------------------------------------------------------- body counts: where bodies lead


@kernel
def count_bodies(
    bodies: Array,  # (body, MAX_LENGTH): all of one length
    group_offsets: Array,  # (group + 1): bodies of a group differ only in their last atom
    length: int,
    limits: Array,  # (body): a body that gives more pairs than this is useless
    starts: Starts,  # shuffled: any prefix is a sample
    pilot: int,  # starts from which the cost of the rest is estimated
    budgets: Array,  # (group): steps allowed
    edges: Edges,
    runs: EdgeRuns,
) -> tuple[Array, Array, Array, Array]:
    """Per body: its distinct pairs (X, Y), their standard error (0 if exact), and whether it is within its limit.
    Per group: the steps that an exact count would take, or 0 if it was one.
    """
    num_entities, num_runs = len(edges.offsets) - 1, len(runs.starts)
    scratch = CountScratch(
        np.full(num_entities, -1), np.zeros(num_entities, np.int64), np.empty(num_entities, np.int64),
        np.full(num_entities, -1), np.full(len(starts.offsets), -1),
        np.empty(num_runs, np.int64), np.empty(num_runs, np.int64), np.empty(num_runs, np.int64),
        np.zeros(1, np.bool_),
    )  # fmt: skip
    size = len(bodies)
    totals, errors, alive = np.zeros(size), np.zeros(size), np.ones(size, np.bool_)
    rest, squares, first_run = np.zeros(size), np.zeros(size), np.full(size, -1)
    costs = np.zeros(len(group_offsets) - 1)
    token = int64(0)
    for group in range(len(group_offsets) - 1):
        low, high = group_offsets[group], group_offsets[group + 1]
        first = bodies[low, 0]
        counts = GroupCounts(
            totals[low:high], errors[low:high], alive[low:high],
            rest[low:high], squares[low:high], first_run[low:high],
        )  # fmt: skip
        costs[group], token = _count_group(
            starts.entities[starts.offsets[first] : starts.offsets[first + 1]], pilot, budgets[group],
            bodies[low:high], length, limits[low:high], edges, runs, scratch, token, counts,
        )  # fmt: skip
    return totals, errors, alive, costs


@inner_kernel
def _count_group(
    starts: Array,  # (start)
    pilot: int,
    budget: float,
    bodies: Array,  # (body, MAX_LENGTH): differ only in the last atom
    length: int,
    limits: Array,
    edges: Edges,
    runs: EdgeRuns,
    scratch: CountScratch,
    token: int,  # above all tokens in the scratch
    counts: GroupCounts,  # receives the counts
) -> tuple[float, int]:
    """Counts the pairs of a group's bodies. Gives the cost of an exact count, or 0 if it was one, and the token.

    If the pilot shows that all starts would cost more than the budget, the rest is estimated from as many starts
    as it allows. Their number is fixed before they are walked, so the estimate is unbiased.
    """
    relations, tails = edges.relations, edges.tails
    run_starts, run_offsets = runs
    seen, via, ends, reached, body_of, run_of, next_run, end_of, sampled = scratch
    total, errors, alive, rest, squares, first_run = counts
    num_alive, steps, stop, cost = len(bodies), 0, len(starts), 0.0
    for body in range(len(bodies)):
        body_of[bodies[body, length - 1]] = body
    for i in range(len(starts)):
        if i == pilot and steps * (len(starts) / pilot) > budget:
            stop = min(len(starts), pilot + max(pilot, int(pilot * (budget / steps))))
            cost = steps * (len(starts) / pilot)
        if i == stop or num_alive == 0:
            break
        x = starts[i]
        token += 1
        count, walked = reach(x, bodies[0], length, edges, seen, via, token, ends, len(tails) + 1, sampled)
        # Sort the last hops by body in one pass over the ends: looking up each body at each end took 6× as long.
        listed = 0
        for end in range(count):
            b = ends[end]
            walked += run_offsets[b + 1] - run_offsets[b]
            for run in range(run_offsets[b], run_offsets[b + 1]):
                body = body_of[relations[run_starts[run]]]
                if body >= 0 and alive[body]:
                    run_of[listed], next_run[listed], first_run[body] = run, first_run[body], listed
                    end_of[listed] = b
                    listed += 1
        for body in range(len(bodies)):
            at, first_run[body] = first_run[body], -1
            token += 1
            pairs = 0
            while at >= 0:
                run, b = run_of[at], end_of[at]
                walked += run_starts[run + 1] - run_starts[run]
                for edge in range(run_starts[run], run_starts[run + 1]):
                    y = tails[edge]
                    if reached[y] != token and y != x and y != b and y != via[b]:
                        reached[y] = token
                        pairs += 1
                at = next_run[at]
            total[body] += pairs
            if i >= pilot:
                rest[body] += pairs
                squares[body] += pairs * pairs
            if alive[body] and total[body] > limits[body]:
                alive[body] = False
                num_alive -= 1
        steps += walked
    for body in range(len(bodies)):
        body_of[bodies[body, length - 1]] = -1
    if stop == len(starts) or num_alive == 0:
        cost = 0.0
    else:
        sampled, unknown = stop - pilot, len(starts) - pilot
        for body in range(len(bodies)):
            mean = rest[body] / sampled
            variance = max(squares[body] / sampled - mean * mean, 0.0) * sampled / max(sampled - 1, 1)
            total[body] += mean * unknown - rest[body]
            # At least one pair: a sample without any would have the error 0, as if it were exact.
            spread = np.sqrt(max(variance * sampled, 1.0) * (1 - sampled / unknown))
            errors[body] = unknown / sampled * spread
    return cost, token


# ------------------------------------------------------------------------------------------ rules with constants


@kernel
def count_constants(
    targets: Array,  # (target): attributes (r, c) to predict
    minimum: int,  # support
    confidence: float,
    members: Array,  # (attribute, member), flat: the X of every attribute
    member_offsets: Array,
    attribute: Array,  # (edge): the attribute (relation, tail) of every edge
    attribute_relation: Array,  # (attribute)
    attribute_tail: Array,
    bearers: Array,  # (edge type): number of X with such an edge to another entity
    edges: Edges,
) -> Array:
    """Rules (r, c) ← (b, d) and (r, c) ← (b, any).  (rule, 4): target, body, body count, support

    Bodies are attributes, or `-1 - b` for any A. X is neither c nor the body's entity.
    """
    offsets, relations, tails, _ = edges
    num_attributes = len(member_offsets) - 1
    together = np.zeros(num_attributes, np.int64)  # X with the target and this attribute
    with_any = np.zeros(len(bearers), np.int64)  # X with the target and another edge of this relation
    touched = np.empty(num_attributes, np.int64)
    out = np.empty((1024, 4), np.int64)
    size = int64(0)
    for target in targets:
        r, c = attribute_relation[target], attribute_tail[target]
        num_touched = 0
        only_c = 0  # X whose only edge of relation r, except a self-loop, leads to c
        for m in range(member_offsets[target], member_offsets[target + 1]):
            x = members[m]
            previous, own_edges = -1, 0
            for edge in range(offsets[x], offsets[x + 1]):
                body, b = attribute[edge], relations[edge]
                if tails[edge] == x:
                    continue
                own_edges += b == r
                if body == target:
                    continue
                if together[body] == 0:
                    touched[num_touched] = body
                    num_touched += 1
                together[body] += 1
                if b != previous:
                    with_any[b] += 1
                    previous = b
            only_c += own_edges == 1
        for i in range(num_touched):
            if size + 2 > len(out):
                larger = np.empty((2 * len(out), 4), np.int64)
                _copy_rows(out, larger, size)
                out = larger
            body = touched[i]
            support, together[body] = together[body], 0
            b, d = attribute_relation[body], attribute_tail[body]
            count = member_offsets[body + 1] - member_offsets[body]
            if c != d and has_edge(edges, c, b, d):
                count -= 1  # X = c is no instance
            if support >= minimum and support >= confidence * count:
                size = _append(out, size, target, body, count, support)
            support, with_any[b] = with_any[b], 0
            if support >= minimum:
                count = bearers[b] - (only_c if b == r else 0)
                low, high = edges_of(edges, c, b)
                for edge in range(low, high):
                    if tails[edge] != c:
                        count -= 1
                        break
                if support >= confidence * count:
                    size = _append(out, size, target, -1 - b, count, support)
    return out[:size]


@inner_kernel
def _append(out: Array, size: int, target: int, body: int, count: int, support: int) -> int:
    out[size, 0], out[size, 1], out[size, 2], out[size, 3] = target, body, count, support
    return size + 1


@inner_kernel
def _copy_rows(rows: Array, larger: Array, count: int) -> None:
    for row in range(count):
        for column in range(rows.shape[1]):
            larger[row, column] = rows[row, column]

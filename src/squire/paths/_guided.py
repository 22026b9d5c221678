"""Kernels that draw paths along rules (§3.3).

As in `_uniform`, queries that share their pivot are taken together: all but the last step of a rule is walked once
from the pivot for all queries of one relation, and the last step is looked up from the other end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from squire.core.compile import inner_kernel, int64, kernel
from squire.graph.adjacency import Ids, Offsets
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
    below,
    forget_ways,
    holds,
    opposite,
    other_of,
    pivot_of,
    position,
    reseed,
    run_of,
)


class Bodies(NamedTuple):
    """The closed rules by head, those of the highest smoothed confidence first."""

    offsets: Offsets  # (2 * relations + 1)
    body: Ids  # (entry, atom): then NONE
    turned: Ids  # (entry, atom): the same from the tail
    length: Offsets  # (entry)


class Walk(NamedTuple):
    """One rule of two or three atoms, as walked from a pivot."""

    length: int
    low: int  # first steps: run_tails[low:high]
    high: int
    middle: int  # the last edge type but one
    last: int  # the inverse of the last edge type, as walked from t
    lazy: bool  # intersect first steps at the other end instead of spreading from the pivot


@inner_kernel
def common(values: Ids, low: int, high: int, other_low: int, other_high: int) -> int:
    """The number of values that two sorted slices share."""
    if other_high - other_low < high - low:
        low, high, other_low, other_high = other_low, other_high, low, high
    count = 0
    for i in range(low, high):
        other_low = position(values, other_low, other_high, values[i])
        if other_low == other_high:
            break
        count += values[other_low] == values[i]
    return count


@inner_kernel
def is_lazy(index: PathIndex, rule: Walk, ends: Offsets) -> bool:
    """Whether intersecting first steps at the other ends is cheaper than spreading them.  ends: (row, 2)"""
    first_steps = rule.high - rule.low
    back = opposite(index, rule.middle)
    cost = 0
    for row in range(len(ends)):
        for i in range(ends[row, 0], ends[row, 1]):
            low, high = run_of(index, index.run_tails[i], back)
            cost += 1 + min(high - low, first_steps)
            if cost > first_steps:
                return False
    return True


@inner_kernel
def spread_rule(index: PathIndex, work: Work, rule: Walk, lookups: int) -> None:
    """Counts the walks along all but the last step of the rule, by where they end."""
    for i in range(rule.low, rule.high if rule.length == 3 else rule.low + 1):
        source = index.run_tails[i] if rule.length == 3 else work.nodes[0]
        low, high = run_of(index, source, rule.middle)
        if high - low > HEAVY * lookups:
            work.heavy[work.sizes[1]] = source
            work.sizes[1] += 1
            continue
        for j in range(low, high):
            add_ways(work, index.run_tails[j], 1)


@inner_kernel
def first_step_of_rule(index: PathIndex, work: Work, rule: Walk, ordinal: int, ways: int) -> int:
    """As `first_step`: the a between the pivot and nodes[2] with this ordinal, or another, drawn uniformly."""
    low, high = rule.low, rule.high
    other_low, other_high = run_of(index, work.nodes[2], opposite(index, rule.middle))
    if other_high - other_low < high - low:
        low, high, other_low, other_high = other_low, other_high, low, high
    if high - low > PROBES and high - low <= PROBES // 2 * ways:
        for _ in range(PROBES):
            a = index.run_tails[low + below(work.state, high - low)]
            if a != work.nodes[3] and holds(index.run_tails, other_low, other_high, a):
                return int(a)
    for i in range(low, high):
        a = index.run_tails[i]
        if a != work.nodes[3] and holds(index.run_tails, other_low, other_high, a):
            ordinal -= 1
            if ordinal < 0:
                return int(a)
    return NONE


@inner_kernel
def scan_rule(index: PathIndex, work: Work, rule: Walk, low: int, high: int, ordinal: int) -> int:
    """Counts the groundings whose last step leads from run_tails[low:high] to t, or writes one to `nodes`."""
    total = 0
    t = work.nodes[rule.length]
    passes_t = rule.length == 3 and holds(index.run_tails, rule.low, rule.high, t)
    for i in range(low, high):
        x = index.run_tails[i]
        if x == work.nodes[0]:
            continue
        ways = work.ways[x]
        if rule.lazy:
            run = run_of(index, x, opposite(index, rule.middle))
            ways = common(index.run_tails, rule.low, rule.high, run[0], run[1])
        for j in range(work.sizes[1]):
            run = run_of(index, work.heavy[j], rule.middle)
            ways += holds(index.run_tails, run[0], run[1], x)
        if ways and passes_t:
            run = run_of(index, t, rule.middle)
            ways -= holds(index.run_tails, run[0], run[1], x)
        total += ways
        if total > ordinal:
            work.nodes[rule.length - 1] = x
            if rule.length == 3:
                work.nodes[1] = first_step_of_rule(index, work, rule, ordinal - (total - ways), ways)
            return int(total)
    return int(total)


@inner_kernel
def write_rule(task: Task, row: int, entry: int, body: Ids, length: int, work: Work, out: Drawn) -> None:
    slot = out.filled[row]
    for hop in range(length):
        out.relations[row, slot, hop] = body[hop]
        out.entities[row, slot, hop] = work.nodes[length - 1 - hop if task.flipped[row] else hop + 1]
    out.length[row, slot] = length
    out.entry[row, slot] = entry
    out.filled[row] += 1


@inner_kernel
def ground_edge(
    index: PathIndex,
    task: Task,
    rows: Offsets,
    entry: int,
    body: Ids,
    run: tuple[int, int],
    work: Work,
    out: Drawn,
) -> None:
    """Rules r(X,Y) ← b(X,Y), except r itself, which is the query edge.  run: the tails of b from the pivot"""
    for row in rows:
        work.nodes[1] = other_of(task, row)
        if body[0] != task.relation[row] and holds(index.run_tails, run[0], run[1], work.nodes[1]):
            write_rule(task, row, entry, body, int64(1), work, out)


@inner_kernel
def ground_walk(
    index: PathIndex,
    task: Task,
    rows: Offsets,
    entry: int,
    body: Ids,
    rule: Walk,
    ends: Offsets,
    work: Work,
    out: Drawn,
    key: np.uint64,
) -> None:
    """One path along a longer rule for each row that has one.  ends: (row, 2), scratch for the rows' last runs"""
    lookups = int64(0)
    for i in range(len(rows)):
        ends[i, 0], ends[i, 1] = run_of(index, other_of(task, rows[i]), rule.last)
        lookups += ends[i, 1] - ends[i, 0]
    if lookups == 0:
        return
    if rule.length == 3 and is_lazy(index, rule, ends[: len(rows)]):
        rule = Walk(rule.length, rule.low, rule.high, rule.middle, rule.last, True)
    else:
        spread_rule(index, work, rule, lookups)
    for i in range(len(rows)):
        work.nodes[rule.length] = other_of(task, rows[i])
        found = scan_rule(index, work, rule, ends[i, 0], ends[i, 1], ALL)
        if found:
            reseed(work.state, key, rows[i], entry)
            scan_rule(index, work, rule, ends[i, 0], ends[i, 1], below(work.state, found))
            write_rule(task, rows[i], entry, body, rule.length, work, out)
    forget_ways(work)


@inner_kernel
def ground_rows(
    index: PathIndex,
    bodies: Bodies,
    task: Task,
    rows: Offsets,
    ends: Offsets,
    work: Work,
    out: Drawn,
    key: np.uint64,
) -> None:
    """Follows the rules of a relation in turn until all rows are full; rows share pivot, relation and direction.

    `rows` is changed: full rows are dropped.
    """
    slots, hops = out.relations.shape[1], out.relations.shape[2]
    relation, flipped = task.relation[rows[0]], task.flipped[rows[0]]
    pivot = work.nodes[0]
    for entry in range(bodies.offsets[relation], bodies.offsets[relation + 1]):
        length = bodies.length[entry]
        steps = bodies.turned[entry] if flipped else bodies.body[entry]  # as walked from the pivot
        low, high = run_of(index, pivot, steps[0])
        if low == high or length > hops:
            continue
        if length == 1:
            ground_edge(index, task, rows, entry, bodies.body[entry], (low, high), work, out)
        else:
            last = opposite(index, steps[length - 1])
            rule = Walk(length, low, high, steps[length - 2], last, False)
            ground_walk(index, task, rows, entry, bodies.body[entry], rule, ends, work, out, key)
        left = 0
        for row in rows:
            if out.filled[row] < slots:
                rows[left] = row
                left += 1
        rows = rows[:left]
        if left == 0:
            return


@kernel
def ground(
    index: PathIndex, bodies: Bodies, task: Task, first: int, last: int, work: Work, out: Drawn, key: np.uint64
) -> None:
    """Draws paths along rules for the groups first:last."""
    for group in range(first, last):
        rows = task.order[task.groups[group] : task.groups[group + 1]].copy()
        ends = np.empty((len(rows), 2), np.int64)
        work.nodes[0] = pivot_of(task, rows[0])
        start = 0
        for stop in range(1, len(rows) + 1):
            if (
                stop == len(rows)
                or task.relation[rows[stop]] != task.relation[rows[start]]
                or task.flipped[rows[stop]] != task.flipped[rows[start]]
            ):
                ground_rows(index, bodies, task, rows[start:stop], ends, work, out, key)
                start = stop

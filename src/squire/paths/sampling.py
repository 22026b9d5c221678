"""Sampling of evidence paths.

`sample_paths` makes the training set U of the paper (§3.2, §3.3, Appendix A), `continue_paths` is line 9 of its
Algorithm 1. Every query row has its own random stream, so a seed gives the same paths on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from squire.core.parallel import run_chunks, thread_count
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.paths._guided import Bodies, ground
from squire.paths._lookups import Drawn, PathIndex, Task, Work
from squire.paths._uniform import fill, weigh
from squire.paths.paths import EDGE, NONE, RANDOM, RULE, Paths
from squire.rules.rules import ClosedIndex, mirrored

Progress = Callable[[int, int], None]  # queries done, their number

MAX_HOPS = 4
MAX_ATOMS = 3  # of a rule


def sample_paths(
    adjacency: Adjacency,
    queries: Ids,
    rules: ClosedIndex | None = None,
    *,
    hops: int = 3,
    per_triple: int = 6,
    edge_weight: int | None = None,
    seed: int,
    threads: int | None = None,
    progress: Progress | None = None,
    index: PathIndex | None = None,
) -> Paths:
    """`per_triple` simple paths from head to tail for each query (h, r, t), r an edge type.  (n, 3)

    First, one path for each rule of r, in order of smoothed confidence and uniform among the rule's groundings.
    The remaining paths are drawn at random, with replacement: the lengths that exist take turns in random order,
    and within a length every path is equally likely. A path's weight is how often it was drawn, so the weights of
    a row sum to `per_triple`. No path uses the query edge or its inverse. Where there is no path, and for a
    self-loop, the path is the edge (r, t) itself with all the weight (§3.2), or with `edge_weight` if given.

    index: that of the adjacency, if it was built before.
    """
    queries = _checked_queries(adjacency, queries)
    _check_options(hops, seed)
    if per_triple < 1:
        raise SettingError(f"per_triple={per_triple}: expected 1 or more.")
    _check_rules(adjacency, rules)
    index = PathIndex.from_adjacency(adjacency) if index is None else index
    out = _empty(len(queries), per_triple, hops)
    task = _task(
        index,
        *queries.T,
        budget=np.full(len(queries), hops, np.int32),
        avoid=np.empty((len(queries), 0), np.int32),
        todo=queries[:, 0] != queries[:, 2],
    )
    _run(index, rules, task, out, seed, threads, progress)
    edges = np.flatnonzero(out.filled == 0)
    out.relations[edges, :, 0] = queries[edges, 1, None]
    out.entities[edges, :, 0] = queries[edges, 2, None]
    out.length[edges] = 1
    out.filled[edges] = per_triple if edge_weight is None else edge_weight
    return _gather(queries, out, rules, edges)


def continue_paths(
    adjacency: Adjacency,
    queries: Ids,
    prefix_relations: Ids,
    prefix_entities: Ids,
    *,
    hops: int = 3,
    seed: int,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Paths:
    """One path per query that begins with the query's prefix, or none: τ₁ + τ₂ of Algorithm 1.

    The hops of a prefix τ₁ are (row, hop), then NONE; its edges need not be in the graph. The rest is drawn as in
    `sample_paths`, among the simple paths to the tail with the hops that remain of `hops`. A prefix that ends at
    the tail is a complete path. A prefix that visits an entity twice, passes through the tail, or uses the query
    edge has none.
    """
    queries = _checked_queries(adjacency, queries)
    _check_options(hops, seed)
    relations, entities, length = _checked_prefixes(adjacency, queries, prefix_relations, prefix_entities, hops)
    rows = np.arange(len(queries))
    visited = np.concatenate([queries[:, :1], entities], axis=1)  # (row, 1 + prefix hop)
    here = visited[rows, length]
    sound = _is_simple(visited) & ~_walks_query_edge(adjacency, queries, visited, relations)
    arrived = sound & (here == queries[:, 2]) & (length > 0)
    passes = (visited == queries[:, 2:]).any(axis=1)

    visited[rows, length] = NONE  # the search starts there
    index = PathIndex.from_adjacency(adjacency)
    out = _empty(len(queries), 1, hops)
    budget = (hops - length).astype(np.int32)
    forbidden = np.where(length == 0, queries[:, 1], NONE).astype(np.int32)  # the query edge leaves the head only
    todo = sound & ~passes & (budget > 0)
    task = _task(index, here, forbidden, queries[:, 2], budget=budget, avoid=visited, todo=todo)
    _run(index, None, task, out, seed, threads, progress)
    out.filled[arrived] = 1
    found = np.flatnonzero(out.filled)
    _prepend(out, found, relations, entities, length)
    return _gather(queries, out, None, np.empty(0, np.int64))


# --------------------------------------------------------------------------------------------------- checks


def _check_options(hops: int, seed: int) -> None:
    if not 1 <= hops <= MAX_HOPS:
        raise SettingError(f"hops={hops}: expected 1 to {MAX_HOPS}.")
    if not 0 <= seed < 2**64:
        raise SettingError(f"seed={seed}: expected 0 or more, below 2^64.")


def _check_rules(adjacency: Adjacency, rules: ClosedIndex | None) -> None:
    if rules is None:
        return
    relations = (len(rules.offsets) - 1) // 2
    if relations != adjacency.num_relations:
        raise SettingError(
            f"rules: they belong to a graph with {relations} relations, this one has {adjacency.num_relations}."
        )
    if rules.body.shape[1] > MAX_ATOMS:
        raise SettingError(f"rules: bodies of {rules.body.shape[1]} atoms, expected at most {MAX_ATOMS}.")


def _checked_queries(adjacency: Adjacency, queries: Ids) -> Ids:
    if queries.ndim != 2 or queries.shape[1] != 3:
        raise SettingError(f"queries of shape {queries.shape}: expected (n, 3), head, relation, tail.")
    limits = (adjacency.num_entities, 2 * adjacency.num_relations, adjacency.num_entities)
    if queries.size and (queries.min() < 0 or (queries.max(axis=0) >= limits).any()):
        raise SettingError(f"queries contain ids that are not in the graph: expected less than {limits}.")
    return np.ascontiguousarray(queries, np.int32)


def _checked_prefixes(
    adjacency: Adjacency, queries: Ids, relations: Ids, entities: Ids, hops: int
) -> tuple[Ids, Ids, Offsets]:
    """The prefixes and their lengths."""
    if relations.shape != entities.shape or relations.shape[0] != len(queries) or relations.ndim != 2:
        raise SettingError(
            f"prefix_relations of shape {relations.shape}, prefix_entities of shape {entities.shape}: "
            f"expected ({len(queries)}, hops) for both."
        )
    there = entities != NONE
    length = np.count_nonzero(there, axis=1)
    padded_last = (there == (np.arange(entities.shape[1]) < length[:, None])).all()
    if not padded_last or ((relations != NONE) != there).any():
        raise SettingError("prefix_relations, prefix_entities: expected the same hops, padded with -1 at the end.")
    if length.size and length.max() > hops:
        raise SettingError(f"hops={hops}: a prefix has {length.max()} hops.")
    for name, ids, limit in (
        ("prefix_relations", relations, 2 * adjacency.num_relations),
        ("prefix_entities", entities, adjacency.num_entities),
    ):
        if ids.size and (ids.min() < NONE or ids.max() >= limit):
            raise SettingError(f"{name} contain ids that are not in the graph: expected less than {limit}.")
    return relations.astype(np.int32), entities.astype(np.int32), length


def _is_simple(visited: Ids) -> npt.NDArray[np.bool_]:
    """Whether all entities of a row differ.  (row, entity) -> (row)"""
    ordered = np.sort(visited, axis=1)
    simple: npt.NDArray[np.bool_] = np.all((ordered[:, 1:] != ordered[:, :-1]) | (ordered[:, 1:] == NONE), axis=1)
    return simple


def _walks_query_edge(adjacency: Adjacency, queries: Ids, visited: Ids, relations: Ids) -> npt.NDArray[np.bool_]:
    """Whether the query edge (h, r, t) or its inverse (t, r⁻¹, h) is among the hops.  (row)"""
    head, relation, tail = queries[:, :1], queries[:, 1:2], queries[:, 2:]
    n = adjacency.num_relations
    twin = np.where(relation < n, relation + n, relation - n)
    before, after = visited[:, :-1], visited[:, 1:]
    forward = (before == head) & (relations == relation) & (after == tail)
    backward = (before == tail) & (relations == twin) & (after == head)
    either: npt.NDArray[np.bool_] = np.any(forward | backward, axis=1)
    return either


# ----------------------------------------------------------------------------------------------------- work


def _task(
    index: PathIndex,
    start: Ids,
    relation: Ids,
    end: Ids,
    *,
    budget: Ids,
    avoid: Ids,
    todo: npt.NDArray[np.bool_],
) -> Task:
    """The queries in groups that share their pivot, the end with more neighbours."""
    start, relation, end = (np.ascontiguousarray(column) for column in (start, relation, end))
    flipped = index.degrees[end] > index.degrees[start]
    pivot = np.where(flipped, end, start)
    rows = np.flatnonzero(todo)
    order = rows[np.lexsort((flipped[rows], relation[rows], pivot[rows]))]
    starts = np.flatnonzero(np.diff(pivot[order], prepend=-1))
    groups = np.append(starts, len(order)).astype(np.int64)
    return Task(start, end, relation, budget, avoid, flipped, order, groups)


def _empty(rows: int, slots: int, hops: int) -> Drawn:
    return Drawn(
        relations=np.full((rows, slots, hops), NONE, np.int32),
        entities=np.full((rows, slots, hops), NONE, np.int32),
        length=np.zeros((rows, slots), np.int32),
        entry=np.full((rows, slots), NONE, np.int64),
        filled=np.zeros(rows, np.int32),
    )


def _run(
    index: PathIndex,
    rules: ClosedIndex | None,
    task: Task,
    out: Drawn,
    seed: int,
    threads: int | None,
    progress: Progress | None,
) -> None:
    """Fills `out`, in chunks of groups on several threads. Each row is written by one thread only."""
    threads = thread_count(threads)
    bodies = None if rules is None else _bodies(rules, index.num_relations)
    most = int(np.diff(index.starts).max(initial=1))
    works: SimpleQueue[Work] = SimpleQueue()
    for _ in range(threads):
        works.put(_work(len(index.offsets) - 1, task.avoid.shape[1]))

    def sample(first: int, last: int) -> None:
        work = works.get()
        try:
            if bodies is not None:
                ground(index, bodies, task, first, last, work, out, np.uint64(seed))
            fill(index, task, first, last, work, out, np.uint64(seed), most)
        finally:
            works.put(work)

    run_chunks(sample, _costs(index, task), threads, progress, np.diff(task.groups))


@lru_cache(4)  # answers ask for the same rules again and again
def _bodies(rules: ClosedIndex, num_relations: int) -> Bodies:
    length = np.count_nonzero(rules.body != NONE, axis=1)
    return Bodies(rules.offsets, rules.body, mirrored(rules.body, num_relations), length)


def _work(entities: int, avoided: int) -> Work:
    return Work(
        near=np.zeros(entities, np.int32),
        ways=np.zeros(entities, np.int64),
        touched=np.empty(entities, np.int32),
        heavy=np.empty(entities, np.int32),
        sizes=np.zeros(2, np.int64),
        excluded=np.full(avoided + 2, NONE, np.int32),
        nodes=np.full(MAX_HOPS + 1, NONE, np.int32),
        state=np.zeros(1, np.uint64),
        counts=np.zeros(MAX_HOPS + 1, np.int64),
        lengths=np.zeros(MAX_HOPS + 1, np.int32),
    )


def _costs(index: PathIndex, task: Task) -> Offsets:
    """The approximate cost of each group: the two-hop neighbourhood of its pivot, and its rows.  (group)"""
    first = task.order[task.groups[:-1]]
    pivots = np.where(task.flipped[first], task.end[first], task.start[first])
    costs: Offsets = index.two_hop_degrees(pivots) + 100 * np.diff(task.groups)
    return costs


# --------------------------------------------------------------------------------------------------- result


def _prepend(out: Drawn, rows: Offsets, relations: Ids, entities: Ids, length: Offsets) -> None:
    """Puts each row's prefix before the path found for it."""
    for prefix, drawn in ((relations, out.relations), (entities, out.entities)):
        both = np.concatenate([prefix[rows], drawn[rows, 0]], axis=1)  # prefix, padding, rest
        order = np.argsort(both == NONE, axis=1, kind="stable")  # moves the padding to the end
        drawn[rows, 0] = np.take_along_axis(both, order, axis=1)[:, : drawn.shape[2]]
    out.length[rows, 0] += length[rows].astype(np.int32)


def _gather(queries: Ids, out: Drawn, rules: ClosedIndex | None, edges: Offsets) -> Paths:
    """The distinct paths, with their weights."""
    weight = np.zeros(out.length.shape, np.int32)
    weigh(out, weight)
    row, slot = np.nonzero(weight)
    entry = out.entry[row, slot]
    source = np.where(entry == NONE, RANDOM, RULE).astype(np.int8)
    source[np.isin(row, edges)] = EDGE
    rule = np.full(len(row), NONE, np.int64)
    if rules is not None:
        by_rule = source == RULE
        rule[by_rule] = rules.rule[entry[by_rule]]
    return Paths(
        queries,
        row,
        out.length[row, slot],
        out.relations[row, slot],
        out.entities[row, slot],
        weight[row, slot],
        source,
        rule,
    )

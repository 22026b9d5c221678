"""The graph index, look-ups and random stream shared by the kernels of path sampling. `sampling` checks inputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from squire.core.compile import inner_kernel, int64
from squire.core.ragged import ranges
from squire.graph.adjacency import Adjacency, Ids, Offsets

Numbers = npt.NDArray[np.uint64]

NONE = -1
ALL: Any = np.int64(2**63 - 1)  # an ordinal that no scan reaches: count only; not a literal, see `int64`
HEAVY = 8  # a list this much longer than the number of look-ups is searched, not spread
PROBES = 64  # random attempts at a first step before its candidates are enumerated

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S27, S30, S31 = np.uint64(27), np.uint64(30), np.uint64(31)


class PathIndex(NamedTuple):
    """Two sorted views of the edges, without self-loops: they are on no simple path.

    Every edge has its inverse, so both views work from either end.
    """

    num_relations: int  # without inverses
    offsets: Offsets  # (entity + 1): the pairs of x are offsets[x]:offsets[x + 1]
    tails: Ids  # (pair): the distinct neighbours of each entity, sorted
    starts: Offsets  # (pair + 1): the edges of a pair are starts[pair]:starts[pair + 1] of `relations`
    relations: Ids  # (edge): sorted by head, tail, relation
    run_offsets: Offsets  # (entity + 1): the runs of x are run_offsets[x]:run_offsets[x + 1]
    run_relations: Ids  # (run): the distinct relations that leave each entity, sorted
    run_starts: Offsets  # (run + 1): the tails of a run are run_starts[run]:run_starts[run + 1] of `run_tails`
    run_tails: Ids  # (edge): sorted by head, relation, tail

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> PathIndex:
        return cls(adjacency.num_relations, *adjacency.kept.get("paths", lambda: _two_views(adjacency)))

    @property
    def degrees(self) -> Offsets:
        """Distinct neighbours.  (entity)"""
        return np.diff(self.offsets)

    def two_hop_degrees(self, entities: Ids) -> Offsets:
        """The number of walks of two hops from each of them: what a look at two hops costs.  (entity)"""
        degrees = self.degrees
        near = self.tails[ranges(self.offsets[entities], degrees[entities])]
        ends = np.append(0, np.cumsum(degrees[near]))
        walks: Offsets = np.diff(ends[np.append(0, np.cumsum(degrees[entities]))])
        return walks


def _two_views(adjacency: Adjacency) -> tuple[Offsets | Ids, ...]:
    """The fields of a `PathIndex` after the first."""
    n, heads = adjacency.num_entities, adjacency.heads
    relations, tails = adjacency.relations, adjacency.tails
    keep = heads != tails
    by_relation = *_groups(heads[keep], relations[keep], n), tails[keep]
    relations, tails = adjacency.by_tail
    keep = heads != tails
    return *_groups(heads[keep], tails[keep], n), relations[keep], *by_relation


def _groups(heads: Ids, values: Ids, num_entities: int) -> tuple[Offsets, Ids, Offsets]:
    """The start of each distinct (head, value) in edges sorted by both, and the bounds of each head."""
    first = np.ones(len(heads), bool)
    first[1:] = (heads[1:] != heads[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(first)
    offsets = np.searchsorted(heads[starts], np.arange(num_entities + 1))
    return offsets.astype(np.int64), values[starts], np.append(starts, len(heads)).astype(np.int64)


class Task(NamedTuple):
    """Queries for paths from `start` to `end`, in groups by pivot."""

    start: Ids  # (query)
    end: Ids  # (query)
    relation: Ids  # (query): the edge type from start to end that a path may not use, or NONE
    budget: Ids  # (query): hops
    avoid: Ids  # (query, avoided): entities that a path may not visit, then NONE
    flipped: npt.NDArray[np.bool_]  # (query): whether the pivot is the end
    order: Offsets  # (sampled query): by pivot, relation, flipped
    groups: Offsets  # (group + 1): bounds in `order`


class Drawn(NamedTuple):
    """The paths found, in a fixed number of slots per query."""

    relations: Ids  # (query, slot, hop)
    entities: Ids  # (query, slot, hop)
    length: Ids  # (query, slot): hops, 0 where empty
    entry: Offsets  # (query, slot): entry of the rule, or NONE
    filled: Ids  # (query): slots in use


class Work(NamedTuple):
    """The memory of one thread; `near` and `ways` are all 0 between groups."""

    near: Ids  # (entity): edges from the pivot
    ways: Offsets  # (entity): walks from the pivot that end here, of two hops or along a rule
    touched: Ids  # (entity): entities whose `ways` may not be 0
    heavy: Ids  # (entity): first steps with too many edges to spread
    sizes: Offsets  # (2): lengths of `touched` and `heavy`
    excluded: Ids  # (avoided + 2): entities that the first step may not visit, or NONE
    nodes: Ids  # (hop + 1): the path under construction, from the pivot
    state: Numbers  # (1): of the random stream
    counts: Offsets  # (hop + 1): paths of each length
    lengths: Ids  # (hop + 1): lengths that exist


# ----------------------------------------------------------------------------------------------- randomness


@inner_kernel
def mix(x: np.uint64) -> np.uint64:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> S30)) * MIX_1
    x = (x ^ (x >> S27)) * MIX_2
    return x ^ (x >> S31)


@inner_kernel
def reseed(state: Numbers, key: np.uint64, row: int, entry: int) -> None:
    """Starts the stream of (key, row, entry). Results do not depend on threads or the order of work."""
    state[0] = mix(mix(key + np.uint64(row) * GOLDEN) + np.uint64(entry + 1) * GOLDEN)


@inner_kernel
def below(state: Numbers, bound: int) -> int:
    """A uniform integer in [0, bound), without bias: the excess of 2^64 over a multiple of it is rejected."""
    n = np.uint64(bound)
    excess = (np.uint64(0) - n) % n  # 2^64 mod n
    while True:
        state[0] += GOLDEN
        x = mix(state[0])
        if x >= excess:
            return int64(x % n)


# ------------------------------------------------------------------------------------------------- look-ups


@inner_kernel
def position(values: Ids | Offsets, low: int, high: int, wanted: int) -> int:
    """The first position in sorted values[low:high] whose value is not less than `wanted`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@inner_kernel
def holds(values: Ids, low: int, high: int, wanted: int) -> bool:
    at = position(values, low, high, wanted)
    return at < high and values[at] == wanted


@inner_kernel
def edges_between(index: PathIndex, x: int, y: int) -> tuple[int, int]:
    """The bounds in `index.relations` of the edges x → y."""
    at = position(index.tails, index.offsets[x], index.offsets[x + 1], y)
    if at < index.offsets[x + 1] and index.tails[at] == y:
        return index.starts[at], index.starts[at + 1]
    return 0, 0


@inner_kernel
def multiplicity(index: PathIndex, x: int, y: int) -> int:
    low, high = edges_between(index, x, y)
    return high - low


@inner_kernel
def run_of(index: PathIndex, x: int, relation: int) -> tuple[int, int]:
    """The bounds in `index.run_tails` of the tails of (x, relation)."""
    at = position(index.run_relations, index.run_offsets[x], index.run_offsets[x + 1], relation)
    if at < index.run_offsets[x + 1] and index.run_relations[at] == relation:
        return index.run_starts[at], index.run_starts[at + 1]
    return 0, 0


@inner_kernel
def opposite(index: PathIndex, relation: int) -> int:
    n = index.num_relations
    return relation + n if relation < n else relation - n


@inner_kernel
def among(few: Ids, x: int) -> bool:
    for i in range(len(few)):
        if few[i] == x:
            return True
    return False


@inner_kernel
def pivot_of(task: Task, row: int) -> int:
    return int(task.end[row] if task.flipped[row] else task.start[row])


@inner_kernel
def other_of(task: Task, row: int) -> int:
    return int(task.start[row] if task.flipped[row] else task.end[row])


@inner_kernel
def add_ways(work: Work, x: int, count: int) -> None:
    if work.ways[x] == 0:
        work.touched[work.sizes[0]] = x
        work.sizes[0] += 1
    work.ways[x] += count


@inner_kernel
def forget_ways(work: Work) -> None:
    for i in range(work.sizes[0]):
        work.ways[work.touched[i]] = 0
    work.sizes[0] = work.sizes[1] = 0

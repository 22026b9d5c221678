"""The adjacency of a graph: immutable, compact, ids only.

Every triple `(h, r, t)` gives two edges: `h --r--> t` and `t --r⁻¹--> h`, where r⁻¹ is `r + num_relations`.
The edges are sorted by head, relation, tail, so that the tails of `(head, relation)` are one slice. Built over
several splits, the same structure is the filter of a ranking: all known tails of `(head, relation)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from squire.core.kept import NOT_KEPT, Kept, frozen
from squire.core.ragged import offsets_from, order_of
from squire.core.relations import both_directions, inverse, is_inverse
from squire.errors import DataError
from squire.graph import _orders as kernels

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
AnyIds = npt.NDArray[np.integer[Any]]


def sort_unique(triples: Ids, num_entities: int, num_relations: int) -> Ids:
    """The distinct triples, sorted by head, relation, tail.  (n, 3) -> (m, 3), m ≤ n"""
    key = _pack(triples[:, 0], triples[:, 1], triples[:, 2], num_entities, num_relations)
    out = np.empty((len(key), 3), np.int32)
    out[:, 0], out[:, 1], out[:, 2] = _unpack(key, num_entities, num_relations)
    return frozen(out)


def _pack(head: Ids, relation: Ids, tail: Ids, num_entities: int, num_relations: int) -> Offsets:
    """Distinct sorted 64-bit keys of the triples: sorting integers is 30× as fast as a lexsort."""
    if num_entities**2 * num_relations >= 2**63:
        raise DataError(f"{num_entities:,} entities × {num_relations:,} relations: too many for one graph.")
    key = head.astype(np.int64)
    key *= num_relations
    key += relation
    key *= num_entities
    key += tail
    key.sort()
    first = np.ones(len(key), bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return key if first.all() else key[first]


def _unpack(key: Offsets, num_entities: int, num_relations: int) -> tuple[Ids, Ids, Ids]:
    """Inverse of `_pack`; destroys `key` to save a copy."""
    tail = (key % max(num_entities, 1)).astype(np.int32)
    key //= max(num_entities, 1)
    relation = (key % max(num_relations, 1)).astype(np.int32)
    key //= max(num_relations, 1)
    return key.astype(np.int32), relation, tail


class Runs(NamedTuple):
    """The edges of one head and one type follow each other: a run."""

    offsets: Offsets  # (entity + 1): the runs of h are offsets[h]:offsets[h + 1]
    heads: Ids  # (run)
    relations: Ids  # (run)
    starts: Offsets  # (run + 1): the edges of a run are starts[run]:starts[run + 1]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The edges that leave each entity, inverse edges included."""

    num_entities: int
    num_relations: int  # R, without inverses; `relations` has edge types in [0, 2R)
    offsets: Offsets  # (num_entities + 1): edges of head h are offsets[h]:offsets[h + 1]
    relations: Ids  # (edge)
    tails: Ids  # (edge)
    kept: Kept = NOT_KEPT  # for what is worked out of the edges

    @classmethod
    def build(cls, triples: Ids, num_entities: int, num_relations: int) -> Adjacency:
        """From triples in any order, repeated or not.  (n, 3)"""
        edges = both_directions(triples, num_relations)
        key = _pack(edges[:, 0], edges[:, 1], edges[:, 2], num_entities, 2 * num_relations)
        heads, relations, tails = _unpack(key, num_entities, 2 * num_relations)
        offsets = offsets_from(np.bincount(heads, minlength=num_entities))
        return cls(num_entities, num_relations, frozen(offsets), frozen(relations), frozen(tails))

    def grown(self, num_entities: int) -> Adjacency:
        """The same edges among more entities."""
        offsets = np.append(self.offsets, np.full(num_entities - self.num_entities, self.num_edges))
        return replace(self, num_entities=num_entities, offsets=frozen(offsets), kept=NOT_KEPT)

    def joined(self, others: Adjacency) -> Adjacency:
        """These edges and others of the same entities. Few are added to many without sorting all."""
        at, is_there = self._find(others)
        new, at = ~is_there, at[~is_there]
        relations, tails = (
            np.insert(own, at, other[new])
            for own, other in ((self.relations, others.relations), (self.tails, others.tails))
        )
        more = np.bincount(others.heads[new], minlength=self.num_entities)
        return self._with(self.offsets + offsets_from(more), relations, tails)

    def without(self, others: Adjacency) -> Adjacency:
        """Those of these edges that the others, which have the same entities, do not have."""
        at, is_there = self._find(others)
        keep = np.ones(self.num_edges, bool)
        keep[at[is_there]] = False
        fewer = np.bincount(others.heads[is_there], minlength=self.num_entities)
        return self._with(self.offsets - offsets_from(fewer), self.relations[keep], self.tails[keep])

    def _find(self, others: Adjacency) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        """Where each of the others' edges is or would be, and whether it is there.  (edge), (edge)"""
        keys, wanted = self._keys, others._keys
        at = np.searchsorted(keys, wanted)
        return at, keys.take(at, mode="clip") == wanted if len(keys) else np.zeros(len(at), bool)

    def _with(self, offsets: Offsets, relations: Ids, tails: Ids) -> Adjacency:
        return Adjacency(self.num_entities, self.num_relations, frozen(offsets), frozen(relations), frozen(tails))

    @property
    def num_edges(self) -> int:
        return len(self.tails)

    def edges(self, head: int) -> tuple[Ids, Ids]:
        """Types and tails of the edges that leave `head`.  (degree), (degree)"""
        edges = slice(self.offsets[head], self.offsets[head + 1])
        return self.relations[edges], self.tails[edges]

    def tails_of(self, head: int, relation: int) -> Ids:
        """All known tails of `(head, relation)`, sorted."""
        relations, tails = self.edges(head)
        low, high = np.searchsorted(relations, [relation, relation + 1])
        return tails[low:high]

    def relations_between(self, head: int, tail: int) -> Ids:
        """The types of the edges from `head` to `tail`, sorted."""
        relations, tails = (column[self.offsets[head] : self.offsets[head + 1]] for column in self.by_tail)
        low, high = np.searchsorted(tails, [tail, tail + 1])
        return relations[low:high]

    def contains(self, head: int, relation: int, tail: int) -> bool:
        tails = self.tails_of(head, relation)
        at = np.searchsorted(tails, tail)
        return bool(at < len(tails) and tails[at] == tail)

    def contains_each(self, heads: AnyIds, relations: AnyIds, tails: AnyIds) -> npt.NDArray[np.bool_]:
        """The same for many triples at once, as arrays of one shape."""
        keys = self._keys
        wanted = (heads.astype(np.int64) * (2 * self.num_relations) + relations) * self.num_entities + tails
        at = np.searchsorted(keys, wanted)
        return np.asarray(keys[np.minimum(at, len(keys) - 1)] == wanted) if len(keys) else np.zeros(at.shape, bool)

    def positions(self, edges: AnyIds) -> Offsets:
        """Where edges of the graph are.  (n, 3) -> (n)"""
        heads, relations, tails = edges.astype(np.int64).T
        keys = (heads * (2 * self.num_relations) + relations) * self.num_entities + tails
        return np.asarray(np.searchsorted(self._keys, keys), np.int64)

    @cached_property
    def _keys(self) -> Offsets:
        """One number for each edge, sorted like the edges.  (edge)"""
        key = self.heads.astype(np.int64) * (2 * self.num_relations) + self.relations
        return frozen(key * self.num_entities + self.tails)

    @cached_property
    def heads(self) -> Ids:
        """The head of every edge.  (edge)"""
        heads = np.repeat(np.arange(self.num_entities, dtype=np.int32), np.diff(self.offsets))
        return frozen(heads)

    @cached_property
    def triples(self) -> Ids:
        """The forward triples, sorted by head, relation, tail.  (triple, 3)"""
        forward = ~is_inverse(self.relations, self.num_relations)
        return frozen(np.stack([self.heads, self.relations, self.tails], axis=1)[forward])

    @cached_property
    def runs(self) -> Runs:
        """The edges by head and type."""
        return Runs(*self.kept.get("runs", self._find_runs))

    def _find_runs(self) -> tuple[Offsets, Ids, Ids, Offsets]:
        heads, relations = self.heads, self.relations
        is_first = np.ones(len(heads), bool)
        is_first[1:] = (heads[1:] != heads[:-1]) | (relations[1:] != relations[:-1])
        firsts = np.flatnonzero(is_first)
        offsets = np.searchsorted(firsts, self.offsets).astype(np.int64)
        return offsets, heads[firsts], relations[firsts], np.append(firsts, len(heads)).astype(np.int64)

    @cached_property
    def firsts(self) -> Ids:
        """Where the edges of each head and type begin, also for types it lacks.  (entity, edge type + 1)"""
        firsts = np.zeros((self.num_entities, 2 * self.num_relations + 1), np.int32)
        runs = self.runs
        firsts[runs.heads, runs.relations + 1] = np.diff(runs.starts)
        firsts[:, 0] = self.offsets[:-1]
        return frozen(np.cumsum(firsts, axis=1, dtype=np.int32, out=firsts))

    @cached_property
    def starts(self) -> tuple[Ids, Offsets]:
        """The sorted entities that have an edge of each type: of r, entities[offsets[r]:offsets[r + 1]]."""
        entities, offsets = self.kept.get("starts", self._find_starts)
        return entities, offsets

    def _find_starts(self) -> tuple[Ids, Offsets]:
        order, offsets = self.by_type
        return self.runs.heads[order], offsets

    @cached_property
    def by_type(self) -> tuple[Offsets, Offsets]:
        """The runs of each type, by head: of r, they are order[offsets[r]:offsets[r + 1]]."""
        return self._runs_by(self.runs.relations)

    def _runs_by(self, types: Ids) -> tuple[Offsets, Offsets]:
        """The runs by these types, then by head, and where each type begins.  (run), (edge type + 1)"""
        size = 2 * self.num_relations
        return order_of(types, size), offsets_from(np.bincount(types, minlength=size))

    @cached_property
    def ends(self) -> tuple[Offsets, Offsets]:
        """The runs (t, r⁻¹) by r, then by t, which are all edges of type r that lead to t.

        Of r, they are the runs order[offsets[r]:offsets[r + 1]].
        """
        return self._runs_by(inverse(self.runs.relations, self.num_relations))

    @cached_property
    def end_runs(self) -> Ids:
        """For each edge (h, r, t) the run (t, r⁻¹), which has all edges of type r that lead to t.  (edge)"""
        found: Ids = self.kept.get("end_runs", self._find_end_runs)[0]
        return found

    def _find_end_runs(self) -> tuple[Ids]:
        out = np.empty(self.num_edges, np.int32)
        kernels.order_runs(self.ends[0], self.runs.starts, self.tails, self.offsets[:-1].copy(), out)
        return (out,)

    @cached_property
    def back(self) -> Ids:
        """For each edge (h, r, t) the position of its inverse (t, r⁻¹, h).  (edge)"""
        found: Ids = self.kept.get("back", self._find_back)[0]
        return found

    def _find_back(self) -> tuple[Ids]:
        out = np.empty(self.num_edges, np.int32)
        kernels.find_inverses(self.end_runs, self.runs.starts[:-1].copy(), out)
        return (out,)

    @cached_property
    def by_tail(self) -> tuple[Ids, Ids]:
        """Types and tails of the edges, sorted by head, tail and type.  (edge), (edge)"""
        relations, tails = self.kept.get("by_tail", self._sort_by_tail)
        return relations, tails

    def _sort_by_tail(self) -> tuple[Ids, Ids]:
        out = np.empty(self.num_edges, np.int32), np.empty(self.num_edges, np.int32)
        edges = self.offsets, self.relations, self.tails, self.num_relations
        kernels.order_by_tail(*edges, self.offsets[:-1].copy(), *out)
        return out

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Adjacency)
            and (self.num_entities, self.num_relations) == (other.num_entities, other.num_relations)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.relations, other.relations)
            and np.array_equal(self.tails, other.tails)
        )

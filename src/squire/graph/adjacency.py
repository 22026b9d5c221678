"""The adjacency of a graph: immutable, compact, ids only.

Every triple `(h, r, t)` gives two edges: `h --r--> t` and `t --r⁻¹--> h`, where r⁻¹ is `r + num_relations`.
The edges are sorted by head, relation, tail, so that the tails of `(head, relation)` are one slice. Built over
several splits, the same structure is the filter of a ranking: all known tails of `(head, relation)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from squire.core.relations import both_directions, is_inverse
from squire.errors import DataError

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
AnyIds = npt.NDArray[np.integer[Any]]
Array = TypeVar("Array", bound=npt.NDArray[Any])


def sort_unique(triples: Ids, num_entities: int, num_relations: int) -> Ids:
    """The distinct triples, sorted by head, relation, tail.  (n, 3) -> (m, 3), m ≤ n"""
    key = _pack(triples[:, 0], triples[:, 1], triples[:, 2], num_entities, num_relations)
    out = np.empty((len(key), 3), np.int32)
    out[:, 0], out[:, 1], out[:, 2] = _unpack(key, num_entities, num_relations)
    return frozen(out)


def frozen(array: Array) -> Array:
    """The same array, no longer writable, so that it can be shared."""
    array.flags.writeable = False
    return array


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


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The edges that leave each entity, inverse edges included."""

    num_entities: int
    num_relations: int  # R, without inverses; `relations` has edge types in [0, 2R)
    offsets: Offsets  # (num_entities + 1): edges of head h are offsets[h]:offsets[h + 1]
    relations: Ids  # (edge)
    tails: Ids  # (edge)

    @classmethod
    def build(cls, triples: Ids, num_entities: int, num_relations: int) -> Adjacency:
        """From triples in any order, repeated or not.  (n, 3)"""
        edges = both_directions(triples, num_relations)
        key = _pack(edges[:, 0], edges[:, 1], edges[:, 2], num_entities, 2 * num_relations)
        heads, relations, tails = _unpack(key, num_entities, 2 * num_relations)
        offsets = np.zeros(num_entities + 1, np.int64)
        np.cumsum(np.bincount(heads, minlength=num_entities), out=offsets[1:])
        return cls(num_entities, num_relations, frozen(offsets), frozen(relations), frozen(tails))

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
        order = self._by_tail[self.offsets[head] : self.offsets[head + 1]]
        tails = self.tails[order]
        low, high = np.searchsorted(tails, [tail, tail + 1])
        return self.relations[order[low:high]]

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
    def starts(self) -> tuple[Ids, Offsets]:
        """The sorted entities that have an edge of each type: of r, entities[offsets[r]:offsets[r + 1]]."""
        size = max(self.num_entities, 1)
        pairs = np.unique(self.relations.astype(np.int64) * size + self.heads)
        relation, entity = np.divmod(pairs, size)
        offsets = np.searchsorted(relation, np.arange(2 * self.num_relations + 1)).astype(np.int64)
        return frozen(entity.astype(np.int32)), frozen(offsets)

    @cached_property
    def _by_tail(self) -> Offsets:
        """The order of edges by (head, tail), stable, so that relations stay sorted.  (edge)"""
        key = self.heads.astype(np.int64) * self.num_entities + self.tails
        return frozen(np.argsort(key, kind="stable"))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Adjacency)
            and (self.num_entities, self.num_relations) == (other.num_entities, other.num_relations)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.relations, other.relations)
            and np.array_equal(self.tails, other.tails)
        )

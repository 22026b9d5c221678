"""Kernels that count what entities have: how many values of a relation, and which relations go together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from squire.core.compile import inner_kernel, kernel
from squire.rules._walks import span

Array = Any  # numba infers the types
PAIR_COLUMNS = 8
MOST_VALUES = 20  # larger numbers of values are counted as this many
PRIOR_HOLDERS = 2.0  # imagined entities that behave like those of all relations
PRIOR_SHARE, PRIOR_SIZE = 0.05, 0.5  # the same for the share of entities that have both of two relations


class RelationIndex(NamedTuple):
    """How many values the holders of each edge type have, and which edge types they also have."""

    offsets: Array  # (entity + 1): an `Adjacency`
    relations: Array  # (edge)
    type_offsets: Array  # (entity + 1)
    types: Array  # (entity, edge type), flat: the edge types of each entity
    holders: Array  # (edge type): entities that have it
    facts: Array  # (edge type)
    at_least: Array  # (edge type, n): entities with n or more values; n up to MOST_VALUES + 1
    one_more: Array  # (n): of all entities with n values of an edge type, the share that has another
    together_offsets: Array  # (edge type + 1)
    other: Array  # (edge type, other), flat: edge types that occur together
    both: Array  # (edge type, other), flat: number of entities that have both


@kernel
def count_together(
    head_offsets: Array, heads: Array, type_offsets: Array, types: Array,
    offsets: Array, other: Array, both: Array,
) -> None:  # fmt: skip
    """Entities that have two edge types, for all pairs.  offsets, other and both are outputs.

    With an empty `other`, only the offsets are computed.
    """
    num_types = len(head_offsets) - 1
    count = np.zeros(num_types, np.int64)
    for r in range(num_types):
        found = 0
        for i in range(head_offsets[r], head_offsets[r + 1]):
            entity = heads[i]
            for j in range(type_offsets[entity], type_offsets[entity + 1]):
                e = types[j]
                found += count[e] == 0
                count[e] += 1
        offsets[r + 1] = offsets[r] + found
        at = offsets[r]
        for i in range(head_offsets[r], head_offsets[r + 1]):
            entity = heads[i]
            for j in range(type_offsets[entity], type_offsets[entity + 1]):
                e = types[j]
                if count[e] > 0:
                    if len(other):
                        other[at], both[at] = e, count[e]
                    at += 1
                    count[e] = 0


@kernel
def fill_pairs(entities: Array, edge_types: Array, index: RelationIndex, out: Array) -> None:
    """What is known about pairs of an entity and an edge type.  out: (pair, PAIR_COLUMNS)"""
    have_both = np.zeros(len(index.holders), np.int64)
    relation = -1
    for i in range(len(entities)):
        r = edge_types[i]
        if r != relation:
            if relation >= 0:
                _enter(relation, index, have_both, False)
            _enter(r, index, have_both, True)
            relation = r
        _fill_pair(entities[i], r, index, have_both, out[i])


@inner_kernel
def _enter(r: int, index: RelationIndex, have_both: Array, fill: bool) -> None:
    for j in range(index.together_offsets[r], index.together_offsets[r + 1]):
        have_both[index.other[j]] = index.both[j] if fill else 0


@inner_kernel
def _fill_pair(entity: int, r: int, index: RelationIndex, have_both: Array, x: Array) -> None:
    """The columns of `context.PAIR_FEATURES`. The entity itself is not counted among the others."""
    low, high = span(index.offsets, index.relations, entity, r)
    known = high - low
    best, second, total, count = 0.0, 0.0, 0.0, 0
    for j in range(index.type_offsets[entity], index.type_offsets[entity + 1]):
        e = index.types[j]
        if e == r:
            continue
        share = (have_both[e] - (known > 0) + PRIOR_SHARE) / (index.holders[e] - 1 + PRIOR_SIZE)
        total += share
        count += 1
        if share > best:
            best, second = share, best
        elif share > second:
            second = share
    n = min(known, MOST_VALUES)
    more = best
    if n > 0:
        prior = PRIOR_HOLDERS * index.one_more[n]
        more = (index.at_least[r, n + 1] + prior) / (index.at_least[r, n] - 1 + PRIOR_HOLDERS)
    holders = max(index.holders[r], 1)
    x[0] = np.log1p(known)
    x[1] = more
    x[2] = best
    x[3] = second
    x[4] = total / max(count, 1)
    x[5] = np.log1p(index.facts[r] / holders)
    x[6] = index.at_least[r, 2] / holders
    x[7] = np.log1p(index.holders[r])

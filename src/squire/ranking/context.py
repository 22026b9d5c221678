"""What is usual for an entity: how many values of a relation it has, and whether entities like it have any.

This tells whether a value is missing at all, which the features of a candidate do not. Ordinary questions are
drawn here too.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from squire.core.ragged import offsets_from
from squire.graph.adjacency import Adjacency, AnyIds, Ids
from squire.ranking._context import MOST_VALUES, PAIR_COLUMNS, RelationIndex, count_together, fill_pairs
from squire.ranking.features import CONTEXT, Feature, Features

Heads = Literal["known", "typical", "all"]
LIKELY = 0.5  # share of the holders of another relation that must have this one

PAIR_FEATURES = (
    ("values", "log of 1 + the number of values of r that the entity has"),
    ("one more", "of entities with so many values, the share that has another; without any value, the best share"),
    ("best share", "the largest share of entities with r among those with another relation of the entity"),
    ("second share", "the second largest"),
    ("mean share", "the mean over all relations of the entity"),
    ("usual values", "log of 1 + the mean number of values of entities with r"),
    ("several", "share of entities with r that have two values or more"),
    ("holders", "log of 1 + the number of entities with r"),
)
assert len(PAIR_FEATURES) == PAIR_COLUMNS


def pair_features(of: str) -> list[Feature]:
    """Columns for an entity and an edge type; `of` is "head", or "tail" for the tail and the inverse of r."""
    return [Feature(f"{name} of {of}", CONTEXT, sentence, None) for name, sentence in PAIR_FEATURES]


def relation_index(adjacency: Adjacency) -> RelationIndex:
    """Count the values and the common holders of all edge types."""
    runs, counted = adjacency.runs, adjacency.kept.get("relations", lambda: _count(adjacency))
    return RelationIndex(adjacency.offsets, adjacency.relations, runs.offsets, runs.relations, *counted)


def _count(adjacency: Adjacency) -> tuple[np.ndarray, ...]:
    num_types, columns = 2 * adjacency.num_relations, MOST_VALUES + 2
    type_offsets, _, types, firsts = adjacency.runs
    values = np.minimum(np.diff(firsts), MOST_VALUES + 1)
    codes = types.astype(np.int64) * columns + values
    counts = np.bincount(codes, minlength=num_types * columns).reshape(num_types, columns)
    at_least = np.ascontiguousarray(counts[:, ::-1].cumsum(1)[:, ::-1])
    every = at_least.sum(0)
    one_more = (np.append(every[1:], 0) + 0.5) / (every + 1)
    holders, head_offsets = adjacency.starts
    offsets, none = np.zeros(num_types + 1, np.int64), np.empty(0, np.int64)
    count_together(head_offsets, holders, type_offsets, types, offsets, none, none)
    other, both = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    count_together(head_offsets, holders, type_offsets, types, offsets, other, both)
    facts = np.bincount(adjacency.relations, minlength=num_types)
    return np.diff(head_offsets), facts, at_least, one_more, offsets, other, both


def describe_pairs(entities: AnyIds, edge_types: AnyIds, index: RelationIndex) -> Features:
    """The columns of PAIR_FEATURES; fastest if equal edge types are together.  (pair, PAIR_COLUMNS)"""
    out = np.zeros((len(entities), PAIR_COLUMNS), np.float32)
    fill_pairs(entities.astype(np.int64), edge_types.astype(np.int64), index, out)
    return out


def heads_of(graph: Adjacency, relation: int, which: Heads) -> AnyIds:
    """The entities to ask about a relation, sorted.

    known: those with the relation in the graph. typical: also those with an edge type of whose holders at least
    half have the relation. all: every entity.
    """
    if which == "all":
        return np.arange(graph.num_entities)
    entities, offsets = graph.starts
    own = entities[offsets[relation] : offsets[relation + 1]]
    if which == "known":
        return own
    has = np.zeros(graph.num_entities, bool)
    has[own] = True
    sizes = np.diff(offsets)  # (edge type): entities that have it
    running = offsets_from(has[entities])
    both = running[offsets[1:]] - running[offsets[:-1]]  # (edge type): those of them that have `relation` too
    typical = np.zeros(graph.num_entities, bool)
    typical[entities[np.repeat(both >= LIKELY * sizes, sizes)]] = True
    return np.flatnonzero(typical)


# ----------------------------------------------------------------------------------------- ordinary questions

KINDS = ("with a value", "typical, without a value", "untypical")
UNTYPICAL_SHARE = 0.1  # of untypical questions beside typical ones
MOST_EDGE_TYPES = 1000  # of a graph with more, only so many are asked about


class OrdinaryQuestions:
    """The questions people ask: (h, r) that has a value, that such heads usually have, and that makes no sense."""

    def __init__(self, graph: Adjacency, seed: int) -> None:
        self._graph, self._rng = graph, np.random.default_rng([seed, 17])
        num_types = 2 * graph.num_relations
        self.edge_types = np.arange(num_types)
        if num_types > MOST_EDGE_TYPES:
            self.edge_types = np.sort(self._rng.choice(num_types, MOST_EDGE_TYPES, replace=False))
        pairs = [self._typical(edge_type) for edge_type in self.edge_types.tolist()]
        self.typical: Ids = np.concatenate(pairs).astype(np.int32)  # (question, 2), sorted by edge type and head
        self._codes = self.codes(self.typical)

    def _typical(self, edge_type: int) -> npt.NDArray[np.int64]:
        heads = heads_of(self._graph, edge_type, "typical")
        return np.stack([heads, np.full(len(heads), edge_type)], axis=1)

    def codes(self, queries: Ids) -> npt.NDArray[np.int64]:
        """A number for each question, sorted by edge type, then by head.  (question)"""
        return queries[:, 1].astype(np.int64) * self._graph.num_entities + queries[:, 0]

    def kinds(self, queries: Ids) -> npt.NDArray[np.int64]:
        """Which of the KINDS each question is.  (question)"""
        at = np.minimum(np.searchsorted(self._codes, codes := self.codes(queries)), len(self._codes) - 1)
        is_typical = self._codes[at] == codes
        values = [len(self._graph.tails_of(*query)) for query in queries.tolist()]
        return np.where(np.array(values) > 0, 0, np.where(is_typical, 1, 2))

    def untypical(self, count: int) -> Ids:
        """Random pairs that make no sense, at most `count`.  (question, 2)"""
        heads = self._rng.choice(np.unique(self._graph.heads), count)
        pairs = np.stack([heads, self._rng.choice(self.edge_types, count)], axis=1).astype(np.int32)
        chosen: Ids = pairs[self.kinds(pairs) == 2]
        return chosen

    def sample(self, count: int) -> Ids:
        """A random sample of typical questions, and a share of untypical ones; sorted.  (question, 2)"""
        queries = self.typical
        if len(queries) > count:
            queries = queries[self._rng.choice(len(queries), count, replace=False)]
        together = np.concatenate([queries, self.untypical(int(UNTYPICAL_SHARE * len(queries)))])
        return together[np.unique(self.codes(together), return_index=True)[1]]

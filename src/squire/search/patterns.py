"""Search over relation patterns: the model chooses the relations, the graph says where they lead.

A path is a sequence of relations and entities. Here the model sees <mask> in place of the entities between, as it
does for some of them in training, so that all paths with the same relations are one hypothesis: a pattern. What a
beam of paths can hold only a few of is then walked in full, along known edges, and the costly choice among all
entities is left out. Only patterns that lead somewhere are extended. A pattern of probability p that leads to n
entities is, to each of them, a path of probability p / n.

The model learned which patterns connect heads with answers, but not what else they connect. So a pattern counts
by how often it is right, the confidence of its rule, and by the model's probability for this query (`worth`).
Patterns that lead to the same answer are taken for independent reasons.

Beside these paths, every answer has the queried edge, with the model's opinion of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from squire.core.ragged import offsets_from, ranges
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.rules.rules import PatternConfidence
from squire.search._patterns import leaving, walk
from squire.search.beam import Decoder, FinishedPaths
from squire.search.options import DecodingOptions

Floats = npt.NDArray[np.float64]

MOST_ENDS, ENDS_AT_ONCE = 2000, 2**22  # of a pattern, and of all patterns of a block: 50 MB
LOOKED_AT = 50  # ends, and edges of each, to see which relations go on
ANSWERS = 200  # of a query, by paths; as many by the queried edge as the beam is wide
LEAST = 1e-3  # less than this, all paths to an answer together count like none
POWER = 0.25  # of a pattern's probability; its confidence has 1 (docs/LOG.md)


@dataclass(frozen=True)
class _Patterns:
    """Patterns of one length, sorted by query."""

    query: Offsets  # (pattern)
    parent: Offsets  # (pattern): among those that are one shorter
    edge_type: Offsets  # (pattern): the last one
    score: Floats  # (pattern): log-probability so far
    token: Floats  # (pattern): log-probability of the last edge type
    end_offsets: Offsets  # (pattern + 1)
    ends: Ids  # (end): where the pattern leads
    via: Ids  # (end, 2): two different entities before it; −1 if there is one only
    number: Floats  # (pattern): of ends, estimated if edges were skipped
    body: Offsets  # (pattern, hops): its edge types, then −1

    @classmethod
    def empty(cls, queries: Offsets, hops: int) -> _Patterns:
        """One for each query, which leads to its head.  (query, 2)"""
        rows, zero = np.arange(len(queries)), np.zeros(len(queries))
        heads, none = queries[:, 0].astype(np.int32), np.full((len(queries), 2), -1, np.int32)
        body = np.full((len(queries), hops), -1)
        return cls(rows, rows, queries[:, 1], zero, zero, np.arange(len(rows) + 1), heads, none, zero + 1, body)

    def find(self, pattern: Offsets, entity: Ids, num_entities: int) -> Offsets:
        """The rows of these ends of these patterns, which must be there."""
        numbers = np.repeat(np.arange(len(self.query)), np.diff(self.end_offsets))
        codes = numbers * num_entities + self.ends
        order = np.argsort(codes)
        return order[np.searchsorted(codes, pattern * num_entities + entity, sorter=order)]

    def take(self, which: Offsets) -> _Patterns:
        """Some of them."""
        sizes = np.diff(self.end_offsets)[which]
        rows = ranges(self.end_offsets[which], sizes)
        return _Patterns(
            self.query[which], self.parent[which], self.edge_type[which], self.score[which], self.token[which],
            offsets_from(sizes), self.ends[rows], self.via[rows], self.number[which], self.body[which],
        )  # fmt: skip


@torch.no_grad()
def search_patterns(
    decoder: Decoder, heads: Tensor, relations: Tensor, graph: Adjacency, decoding: DecodingOptions
) -> FinishedPaths:
    """Paths along known edges to the best answers, and the queried edge to each.  heads, relations: (query)"""
    follow = decoder.begin(heads, relations).double().numpy(force=True)
    edges = decoder.queried_edge(relations).double().numpy(force=True)  # (query, entity)
    queries = np.stack([heads.numpy(force=True), relations.numpy(force=True)], axis=1)
    live = _Patterns.empty(queries, decoding.hops)
    levels = []
    for hop in range(1, decoding.hops + 1):
        live = _extended(live, hop, follow[:, :-1], queries[:, 0], graph, decoding.beam)
        if not len(live.query):
            break
        nodes, edge_types = (torch.from_numpy(x).to(decoder.device) for x in (live.parent, live.edge_type))
        follow = decoder.skip(2 * hop - 1, nodes, edge_types).double().numpy(force=True)
        levels.append(_Level(live, follow[:, -1], *_ends(live, hop, queries[:, 1], graph.num_entities)))
    code = _best_answers(levels, edges, queries, graph, decoding)
    lengths, size = range(1, len(levels) + 1), graph.num_entities
    paths = [_grounded(levels[:length], code, queries, decoding.hops, size) for length in lengths]
    paths.append(_queried_edges(code, edges, queries, decoding.hops))
    columns = (np.concatenate(column) for column in zip(*paths, strict=True))
    return FinishedPaths(*(torch.from_numpy(column) for column in columns))


def worth(patterns: PatternConfidence | None, relation: Offsets, body: Offsets, log_probability: Floats) -> Floats:
    """The probability that a path along each pattern leads to an answer, as far as it is known.

    (pattern), (pattern, hops), (pattern) -> (pattern). Patterns that are no rules have the least confidence.
    """
    confidence = np.full(len(body), LEAST)
    if patterns is not None:
        confidence = np.clip(patterns.look_up(relation, body), LEAST, 1 - LEAST)
    return np.asarray(confidence * np.exp(POWER * log_probability))


def _extended(live: _Patterns, hop: int, follow: Floats, heads: Offsets, graph: Adjacency, beam: int) -> _Patterns:
    """The most probable patterns that are one longer and lead somewhere.

    follow: (pattern, edge type), log-probabilities; heads: (query)
    """
    allowed = np.zeros(follow.shape, bool)
    leaving(live.ends, live.end_offsets, LOOKED_AT, graph.offsets, graph.relations, allowed)
    parent, edge_type = np.nonzero(allowed)
    score, query = live.score[parent] + follow[parent, edge_type], live.query[parent]
    order = np.lexsort((-score, query))
    order = order[_position(query[order]) < beam]
    parent, edge_type, query, score = parent[order], edge_type[order], query[order], score[order]
    most = max(min(MOST_ENDS, ENDS_AT_ONCE // max(len(parent), 1)), 1)
    offsets, skipped = np.zeros(len(parent) + 1, np.int64), np.ones(len(parent), np.int64)
    ends, via = np.empty(len(parent) * most, np.int32), np.empty((len(parent) * most, 2), np.int32)
    walk(
        heads[query], parent, edge_type, live.end_offsets, live.ends, live.via, most,
        graph.offsets, graph.relations, graph.tails, np.full(graph.num_entities, -1),
        offsets, skipped, ends, via,
    )  # fmt: skip
    last = offsets[-1]
    token, number = follow[parent, edge_type], np.diff(offsets) * skipped.astype(np.float64)
    body = live.body[parent]
    body[:, hop - 1] = edge_type
    found = _Patterns(query, parent, edge_type, score, token, offsets, ends[:last], via[:last], number, body)
    return found.take(np.flatnonzero(number > 0))


def _position(sorted_values: Offsets) -> Offsets:
    """0, 1, 2 … within each run of equal values."""
    return np.arange(len(sorted_values)) - np.searchsorted(sorted_values, sorted_values)


@dataclass(frozen=True)
class _Level:
    """Patterns of one length, which may end, and their ends; the queried edge is not among these."""

    patterns: _Patterns
    last: Floats  # (pattern): log-probability of the end of the path
    code: Offsets  # (end): query · entities + end
    pattern: Offsets  # (end)
    at: Offsets  # (end): its row in `patterns.ends`

    @property
    def log_probability(self) -> Floats:
        """(pattern)"""
        return self.patterns.score + self.last


def _ends(patterns: _Patterns, hop: int, queried: Offsets, num_entities: int) -> tuple[Offsets, Offsets, Offsets]:
    """Code, pattern and row of each end."""
    pattern = np.repeat(np.arange(len(patterns.query)), np.diff(patterns.end_offsets))
    rows = np.arange(len(pattern))
    if hop == 1:
        rows = np.flatnonzero((patterns.edge_type != queried[patterns.query])[pattern])
    pattern = pattern[rows]
    return patterns.query[pattern] * num_entities + patterns.ends[rows], pattern, rows


def _best_answers(
    levels: Sequence[_Level], edges: Floats, queries: Offsets, graph: Adjacency, decoding: DecodingOptions
) -> Offsets:
    """The best new answers of each query, as codes, sorted.  (answer)"""
    size, weight = graph.num_entities, decoding.edge_weight
    code = np.concatenate([np.empty(0, np.int64), *(level.code for level in levels)])
    own = [
        worth(decoding.patterns, queries[level.patterns.query, 1], level.patterns.body, level.log_probability)
        for level in levels
    ]
    wrong = [np.log1p(-chance)[level.pattern] for level, chance in zip(levels, own, strict=True)]
    code, which = np.unique(code, return_inverse=True)
    right = -np.expm1(np.bincount(which, np.concatenate([np.empty(0), *wrong]), minlength=len(code)))
    edges = edges.copy()
    for row, (head, edge_type) in enumerate(queries.tolist()):
        excluded = graph.edges(head)[1] if decoding.unlinked else graph.tails_of(head, edge_type)
        edges[row, excluded] = -np.inf
    is_new = np.isfinite(edges[code // size, code % size])
    code, right = code[is_new], right[is_new]
    query = code // size
    score = weight * edges[query, code % size] + (1 - weight) * np.log(right + LEAST)
    order = np.lexsort((-score, query))
    by_paths = code[order[_position(query[order]) < ANSWERS]]
    first = np.argpartition(-edges, min(decoding.beam, size - 1), axis=1)[:, : decoding.beam]
    found = np.union1d(by_paths, np.arange(len(queries))[:, None] * size + first)
    return np.asarray(found[np.isfinite(edges[found // size, found % size])])


Paths = tuple[Offsets, Offsets, Offsets, npt.NDArray[np.float32]]  # the columns of FinishedPaths


def _queried_edges(code: Offsets, edges: Floats, queries: Offsets, hops: int) -> Paths:
    query, answer = code // edges.shape[1], code % edges.shape[1]
    paths, tokens = _empty(len(code), hops)
    paths[:, 0], paths[:, 1], tokens[:, 1] = queries[query, 1], answer, edges[query, answer]
    return query, paths, np.ones(len(code), np.int64), tokens


def _grounded(levels: Sequence[_Level], code: Offsets, queries: Offsets, hops: int, num_entities: int) -> Paths:
    """One path for each of these answers and each of the longest patterns that leads there."""
    level, length = levels[-1], len(levels)
    place = np.searchsorted(code, level.code)
    wanted = np.flatnonzero(code.take(place, mode="clip") == level.code if len(code) else np.zeros(0, bool))
    pattern, row = level.pattern[wanted], level.at[wanted]
    query = level.patterns.query[pattern]
    paths, tokens = _empty(len(wanted), hops)
    answer = level.patterns.ends[row]
    tokens[:, 2 * length - 1], tokens[:, 2 * length] = -np.log(level.patterns.number[pattern]), level.last[pattern]
    entity = answer
    for hop in range(length, 0, -1):
        own = levels[hop - 1].patterns
        paths[:, 2 * hop - 1], paths[:, 2 * hop - 2] = entity, own.edge_type[pattern]
        tokens[:, 2 * hop - 2] = own.token[pattern]
        before, other = own.via[row].T
        entity, pattern = np.where((before == answer) & (other >= 0), other, before), own.parent[pattern]
        if hop > 1:
            row = levels[hop - 2].patterns.find(pattern, entity, num_entities)
    visited = np.sort(np.concatenate([queries[query, :1], paths[:, 1 : 2 * length : 2]], axis=1), axis=1)
    simple = np.all(np.diff(visited, axis=1) > 0, axis=1)  # a path of four hops may not be
    return query[simple], paths[simple], np.full(int(simple.sum()), length), tokens[simple]


def _empty(number: int, hops: int) -> tuple[Offsets, npt.NDArray[np.float32]]:
    return np.full((number, 2 * hops), -1), np.zeros((number, 2 * hops + 1), np.float32)

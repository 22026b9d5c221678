"""From paths to answers: beam search over any number of queries, and the ranked answers of each (§4.1).

Works on ids, a block of queries at a time, so that memory does not grow with the number of queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from squire.core.parallel import in_order
from squire.core.ragged import offsets_from, ranges
from squire.graph.adjacency import Ids, Offsets
from squire.search.beam import Decoder, FinishedPaths, search
from squire.search.options import Aggregate, DecodingOptions
from squire.search.patterns import LEAST, search_patterns, worth

HYPOTHESES_AT_ONCE = 2048  # over all queries of a block; their keys and values take most of a search's memory
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PathRanking:
    """The answers to a block of queries, best first, each with all its paths, best first."""

    offsets: Offsets  # (query + 1): into the answers
    entity: Offsets  # (answer)
    score: Floats  # (answer): what answers are ranked by
    asserted: Floats  # (answer): the queried edge's share of the probability of all its paths
    path_probability: Floats  # (answer): of all paths but the queried edge
    path_offsets: Offsets  # (answer + 1): into the paths
    paths: Offsets  # (path, 2 · hops): relation, entity, …, then −1
    hops: Offsets  # (path)
    token_log_probability: Floats  # (path, 2 · hops + 1)
    aggregate: Aggregate

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, query: int) -> slice:
        """The answers of one query."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    def probability(self, answer: int) -> float:
        """The score as a probability: of all paths together (sum), or of a token of the best path (max)."""
        score = float(self.score[answer])
        return math.exp(score) if self.aggregate == "max" else score

    @property
    def best_path(self) -> Offsets:
        """The path shown as evidence: the best one by Eq. 5, however answers are ranked.  (answer)

        With `edge_ends`, the queried edge itself counts only if there is no other path.
        """
        return self.path_offsets[:-1]

    def best_path_to(self, query: int, entity: int) -> int | None:
        """The best path (Eq. 5) of a query to an answer, or None if none leads there."""
        own = self.rows(query)
        at = np.flatnonzero(self.entity[own] == entity)
        return int(self.best_path[own.start + at[0]]) if len(at) else None


def decode(decoder: Decoder, queries: Ids, decoding: DecodingOptions) -> Iterator[PathRanking]:
    """Blocks of answers, in the order of the queries.  queries: (query, 2) head and edge type"""
    at_once = max(1, HYPOTHESES_AT_ONCE // decoding.beam)

    def decode_block(i: int) -> PathRanking:
        own = queries[i * at_once : (i + 1) * at_once].astype(np.int64)
        heads, relations = torch.from_numpy(own).to(decoder.device).T
        if decoding.aggregate == "pool":
            assert decoding.known
            found = search_patterns(decoder, heads, relations, decoding.known, decoding)
            return rank_answers(found, relations.cpu(), decoding)
        return rank_answers(search(decoder, heads, relations, decoding), relations, decoding)

    return in_order(decode_block, -(-len(queries) // at_once), threads=1)


def within(
    ranking: PathRanking, allowed: npt.NDArray[np.bool_], relations: Offsets, decoding: DecodingOptions
) -> PathRanking:
    """The ranking if only some of its paths are allowed (§4.6).  allowed: (path); relations: (query)"""
    answers = np.repeat(np.arange(len(ranking.entity)), np.diff(ranking.path_offsets))  # (path)
    queries = np.repeat(np.arange(len(ranking)), np.diff(ranking.offsets))[answers]  # (path)
    # 32 bits, as in the search, so that sums round alike.
    columns = queries, ranking.paths, ranking.hops, ranking.token_log_probability.astype(np.float32)
    paths = FinishedPaths(*(torch.from_numpy(column[allowed]) for column in columns))
    return rank_answers(paths, torch.from_numpy(relations), decoding)


def rank_answers(found: FinishedPaths, relations: Tensor, decoding: DecodingOptions) -> PathRanking:
    """Group paths by query and answer, and score the answers.

    `max`: the score of the best path (Eq. 5); `sum`: the sum of probabilities; `pool`: a logarithmic opinion pool,
    p(edge)^w · (1 − Π (1 − worth) + δ)^(1 − w), of the queried edge and all other paths (`search.patterns.worth`),
    normalised over the answers.

    relations: (query), the queried ones
    """
    query, answer, score = (x.cpu().numpy() for x in (found.query, found.answer, found.score.double()))
    probability = np.exp(found.log_probability.double().cpu().numpy())
    is_edge = ((found.hops == 1) & (found.paths[:, 0] == relations[found.query])).cpu().numpy()
    # The queried edge, which is no evidence, comes after all other paths, unless it is a path like any other.
    comes_last = is_edge & (decoding.edge_ends or decoding.aggregate == "pool")
    by_group = np.lexsort((-score, comes_last, answer, query))
    query, answer, score, probability = (x[by_group] for x in (query, answer, score, probability))
    is_first = np.ones(len(query), bool)
    is_first[1:] = (np.diff(query) != 0) | (np.diff(answer) != 0)
    firsts = np.flatnonzero(is_first)
    total = asserted = others = np.empty(0)
    if len(firsts):
        mass = np.add.reduceat(probability, firsts)
        edge = np.add.reduceat(probability * is_edge[by_group], firsts)
        asserted, others = edge / mass, np.maximum(mass - edge, 0)
        if decoding.aggregate == "pool":
            by_relations = found.log_probability - found.token_log_probability[:, 1::2].sum(1)
            heads, bodies = relations[found.query].cpu().numpy(), found.paths[:, ::2].cpu().numpy()
            own = worth(decoding.patterns, heads, bodies, by_relations.double().cpu().numpy()) * ~is_edge
            right = -np.expm1(np.add.reduceat(np.log1p(-own[by_group]), firsts))
            pooled = _pool(edge, right, decoding.edge_weight)
            total = pooled / np.bincount(query[firsts], pooled)[query[firsts]]
        else:
            total = mass if decoding.aggregate == "sum" else np.maximum.reduceat(score, firsts)
    sizes = np.diff(np.append(firsts, len(query)))
    best_first = np.lexsort((-total, query[firsts]))
    paths = by_group[ranges(firsts[best_first], sizes[best_first])]
    return PathRanking(
        np.searchsorted(query[firsts], np.arange(len(relations) + 1)),
        answer[firsts][best_first],
        total[best_first],
        asserted[best_first],
        others[best_first],
        offsets_from(sizes[best_first]),
        found.paths.cpu().numpy()[paths],
        found.hops.cpu().numpy()[paths],
        found.token_log_probability.double().cpu().numpy()[paths],
        decoding.aggregate,
    )


def _pool(edge: Floats, paths: Floats, weight: float) -> Floats:
    """The weighted geometric mean of two opinions.  (answer) × 2 -> (answer)"""
    least = np.finfo(np.float32).tiny
    return np.asarray(np.maximum(edge, least) ** weight * (paths + LEAST) ** (1 - weight))

"""From paths to answers: beam search over any number of queries, and the answers of each, best first (§4.1).

Works on ids; in blocks, so memory does not grow with the number of queries. How answers look to a person is the
business of `reasoner`, how good they are of `evaluate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from squire.core.ragged import offsets_from, ranges
from squire.errors import SettingError
from squire.graph.adjacency import Ids, Offsets
from squire.model.recipe import Recipe
from squire.search.beam import Constraint, Decoder, Found, Guide, search

HYPOTHESES_AT_ONCE = 2048  # of all queries of a block: their keys and values are the memory of a search
Aggregate = Literal["sum", "max"]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DecodingOptions:
    """How to search and how to rank."""

    beam: int = 256
    aggregate: Aggregate = "sum"
    prune: float = 0.0
    hops: int = 3
    constraint: Constraint | None = None
    guide: Guide | None = None
    edge_ends: bool = False

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise SettingError(f"--beam {self.beam}: expected 1 or more.")
        if self.aggregate not in get_args(Aggregate):
            raise SettingError(f"--aggregate {self.aggregate}: expected {' or '.join(get_args(Aggregate))}.")
        if not 0 <= self.prune < 1:
            raise SettingError(f"--prune {self.prune:g}: expected a share from 0 to less than 1.")
        # What adds too little to a sum may still be the best path, or the only one that is allowed.
        if self.prune and (self.aggregate == "max" or self.constraint):
            raise SettingError("--prune: is of --aggregate sum without --constraint only. To do: leave it out.")

    @property
    def known_share(self) -> float:
        return self.guide.share if self.guide else 0.0

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        known: Constraint,
        *,
        beam: int | None = None,
        aggregate: Aggregate | None = None,
        prune: float | None = None,
        constraint: Constraint | None = None,
        edge_ends: bool | None = None,
    ) -> DecodingOptions:
        """The recipe's way, with these changes; `known` are the edges of the graph."""
        own = recipe.decode
        aggregate = own.aggregate if aggregate is None else aggregate
        if prune is None:
            prune = own.prune if aggregate == "sum" and not constraint else 0.0
        return cls(
            own.beam if beam is None else beam,
            aggregate,
            prune,
            recipe.paths.hops,
            constraint,
            Guide(known, own.known_share) if own.known_share else None,
            own.edge_ends if edge_ends is None else edge_ends,
        )


@dataclass(frozen=True)
class PathRanking:
    """The answers to a block of queries, best first, each with all its paths, best first."""

    offsets: Offsets  # (query + 1): into the answers
    entity: Offsets  # (answer)
    score: Floats  # (answer): what they are ranked by
    asserted: Floats  # (answer): of the probability of all its paths, the share of the queried edge itself
    path_offsets: Offsets  # (answer + 1): into the paths
    trail: Offsets  # (path, 2 · hops): relation, entity, …, then −1
    hops: Offsets  # (path)
    token_log_probability: Floats  # (path, 2 · hops + 1)
    aggregate: Aggregate

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, query: int) -> slice:
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    def probability(self, answer: int) -> float:
        """An answer's score as people know it: probability of all paths (sum), or of a token of the best (max)."""
        score = float(self.score[answer])
        return score if self.aggregate == "sum" else math.exp(score)

    @property
    def best_path(self) -> Offsets:
        """The evidence: the best path by Eq. 5, however answers are ranked.  (answer)

        If `edge_ends`, the best of those that are not the queried edge itself, unless there is no other.
        """
        return self.path_offsets[:-1]

    def best_path_to(self, query: int, entity: int) -> int | None:
        """The best path (Eq. 5) from a query to an answer; None if none leads there."""
        own = self.rows(query)
        at = np.flatnonzero(self.entity[own] == entity)
        return int(self.best_path[own.start + at[0]]) if len(at) else None


def decode(decoder: Decoder, queries: Ids, decoding: DecodingOptions) -> Iterator[PathRanking]:
    """Blocks of answers, in the order of the queries.  queries: (query, 2) head and edge relation"""
    for first in range(0, len(queries), at_once := max(1, HYPOTHESES_AT_ONCE // decoding.beam)):
        block = torch.from_numpy(queries[first : first + at_once].astype(np.int64)).to(decoder.device)
        heads, relations = block[:, 0], block[:, 1]
        found = search(
            decoder,
            heads,
            relations,
            decoding.beam,
            decoding.hops,
            decoding.prune,
            decoding.constraint,
            decoding.guide,
            decoding.edge_ends,
        )
        yield rank_answers(found, relations, decoding)


def within(
    ranked: PathRanking, allowed: npt.NDArray[np.bool_], relations: Offsets, decoding: DecodingOptions
) -> PathRanking:
    """What is left of a search if only these paths count (§4.6).  allowed: (path); relations: (query)"""
    answers = np.repeat(np.arange(len(ranked.entity)), np.diff(ranked.path_offsets))  # (path)
    queries = np.repeat(np.arange(len(ranked)), np.diff(ranked.offsets))[answers]  # (path)
    # Sums round as in the search, which has 32 bits.
    columns = queries, ranked.trail, ranked.hops, ranked.token_log_probability.astype(np.float32)
    found = Found(*(torch.from_numpy(column[allowed]) for column in columns))
    return rank_answers(found, torch.from_numpy(relations), decoding)


def rank_answers(found: Found, relations: Tensor, decoding: DecodingOptions) -> PathRanking:
    """Paths grouped by query and answer. `max`: the best path's score (Eq. 5); `sum`: all their probabilities.

    relations: (query), the queried ones
    """
    query, answer, score = (x.cpu().numpy() for x in (found.query, found.answer, found.score.double()))
    probability = np.exp(found.log_probability.double().cpu().numpy())
    is_edge = ((found.hops == 1) & (found.trail[:, 0] == relations[found.query])).cpu().numpy()
    # An assertion is no evidence: where it is apart from the other paths, it comes after them.
    by_group = np.lexsort((-score, is_edge & decoding.edge_ends, answer, query))
    query, answer, score, probability = (x[by_group] for x in (query, answer, score, probability))
    is_first = np.ones(len(query), bool)
    is_first[1:] = (np.diff(query) != 0) | (np.diff(answer) != 0)
    firsts = np.flatnonzero(is_first)
    total = asserted = np.empty(0)
    if len(firsts):
        mass = np.add.reduceat(probability, firsts)
        asserted = np.add.reduceat(probability * is_edge[by_group], firsts) / mass
        total = mass if decoding.aggregate == "sum" else np.maximum.reduceat(score, firsts)
    sizes = np.diff(np.append(firsts, len(query)))
    best_first = np.lexsort((-total, query[firsts]))
    paths = by_group[ranges(firsts[best_first], sizes[best_first])]
    return PathRanking(
        np.searchsorted(query[firsts], np.arange(len(relations) + 1)),
        answer[firsts][best_first],
        total[best_first],
        asserted[best_first],
        offsets_from(sizes[best_first]),
        found.trail.cpu().numpy()[paths],
        found.hops.cpu().numpy()[paths],
        found.token_log_probability.double().cpu().numpy()[paths],
        decoding.aggregate,
    )

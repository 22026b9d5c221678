"""Beam search (§3.2, Eq. 5): the most probable paths of many queries at once, with no Python loop over hypotheses.

A hypothesis is a path so far. Relations and entities alternate; after each entity the path may also end, and ended
paths are put aside, so they take nobody's place in the beam. Either kind of step keeps, for each query, the `beam`
most probable continuations. Probabilities only fall as a path grows. So the best hypotheses are expanded first,
and whoever is below what a continuation must reach by then (`_Best.floor`) is not expanded at all. This is exact.
Pruning lets that floor begin where paths stop to matter (`_least_that_matters`).

Knows ids of entities and relations and their log-probabilities; the model is whatever gives these (`Decoder`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

SCORES_AT_ONCE = 2**23  # entity scores in memory at a time: 32 MB; half of it is 3 % slower on NELL23K
ROUNDING = 1e-4
LOOKED_AT = 10  # answers; what cannot change these is not searched for when pruning
Pairs = tuple[Tensor, Tensor]  # (pair) each: row, class


class Decoder(Protocol):
    """A model as the search sees it. Level 0 is the queries, 1 their first relations, 2 the first entities, …

    A node is a token fed to the model; its number is its place among those fed to its level, over all calls.
    """

    num_entities: int
    device: torch.device  # where queries are to be

    def begin(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Feed queries. Log-probabilities of the first relation; the last column (the end) is of no use.

        (query), (query) -> (query, edge relation + 1)
        """

    def entities(self, level: int, parents: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """Feed relations after nodes of the level above: logits of the entity to follow, and their log-normaliser.

        (node), (node) -> (node, entity), (node)
        """

    def relations(self, level: int, parents: Tensor, entities: Tensor) -> Tensor:
        """Feed entities: of the relation to follow, or the end.  (node) × 2 -> (node, edge relation + 1)"""


class Constraint(Protocol):
    """Which edges a path may walk (§4.6)."""

    @property
    def name(self) -> str:
        """Of the edges, for signatures."""

    def relations(self, entities: Tensor) -> Pairs:
        """The relations that may leave these entities, as (row, relation) pairs."""

    def entities(self, entities: Tensor, relations: Tensor) -> Pairs:
        """The entities that may be reached from these along these relations, as (row, entity) pairs."""


@dataclass(frozen=True)
class Guide:
    """Leads a step to where known edges lead: what is in the graph need not be inferred.

    After an entity and a relation that have known tails, the next entity is with probability `share` one of these,
    as the model weighs them, else whichever it infers:  (1 − share) · p + share · p / Z,  the second part for the
    known tails only, Z their probability. Where no tail is known the model is on its own, as it always is in the
    choice of relations. A share of 0 is the paper's search.
    """

    edges: Constraint
    share: float

    def lead(self, entities: Tensor, relations: Tensor, logits: Tensor, norm: Tensor) -> None:
        """Change the logits in place; the log-normaliser stays.  (row) × 2, (row, entity), (row)"""
        row, tail = self.edges.entities(entities, relations)
        known = torch.zeros_like(norm).index_add_(0, row, (logits[row, tail] - norm[row]).exp())  # Z
        free = torch.where(known > 0, math.log1p(-self.share), 0.0)
        logits += free[:, None]
        logits[row, tail] += torch.log1p(self.share / ((1 - self.share) * known[row]))


@dataclass(frozen=True)
class Found:
    """Ended paths of some queries, in the order in which they ended."""

    query: Tensor  # (path)
    trail: Tensor  # (path, 2 · hops): relation, entity, relation, entity …, then −1
    hops: Tensor  # (path)
    token_log_probability: Tensor  # (path, 2 · hops + 1): of each token, of the end, then 0

    @property
    def log_probability(self) -> Tensor:
        """Of the whole path, its end included (Eq. 2).  (path)"""
        return self.token_log_probability.sum(1)

    @property
    def score(self) -> Tensor:
        """Eq. 5: the log-probability by the number of tokens, <eos> included.  (path)"""
        return self.log_probability / (2 * self.hops + 1)

    @property
    def answer(self) -> Tensor:
        """Where each path leads.  (path)"""
        return self.trail.gather(1, 2 * self.hops[:, None] - 1)[:, 0]


@dataclass(frozen=True)
class _Live:
    """Hypotheses of one length, by query, then the most probable first. The last token is not fed yet."""

    query: Tensor  # (hypothesis)
    score: Tensor  # (hypothesis): log-probability so far
    scores: Tensor  # (hypothesis, 1 + tokens): the same after each token, 0 at first
    trail: Tensor  # (hypothesis, 1 + tokens): the head, then the path
    parent: Tensor  # (hypothesis): the node that the last token comes after

    def take(self, which: Tensor) -> _Live:
        """Some of them.  (hypothesis)"""
        return _Live(*(column[which] for column in vars(self).values()))


@torch.no_grad()
def search(
    decoder: Decoder,
    heads: Tensor,  # (query)
    relations: Tensor,  # (query)
    beam: int,
    hops: int,
    prune: float = 0.0,  # drop what is less than this share as probable as the tenth new answer
    constraint: Constraint | None = None,
    guide: Guide | None = None,
    edge_ends: bool = False,  # is a path that is the queried edge itself sure to end there?
) -> Found:
    """All paths of at most so many hops that end within the beam."""
    queries = torch.arange(len(heads), device=heads.device)
    follow = decoder.begin(heads, relations)
    certain = follow.new_zeros(len(heads))
    least, fed = torch.full_like(certain, -math.inf), 0
    if prune:
        least = _least_that_matters(decoder, heads, relations, follow, guide) + math.log(prune)
        fed = len(heads)
    live = _Live(queries, certain, certain[:, None], heads[:, None], queries)
    ended: list[Found] = []
    for hop in range(1, hops + 1):
        live = _choose_relations(follow[:, :-1], live, _Best(beam, least), constraint)
        # What the queried relation leads to is an answer, however improbable; but not all of it is worth going on.
        answers = edge_ends and hop == 1
        best = _Best(beam, torch.full_like(least, -math.inf) if answers else least)
        live = _choose_entities(decoder, 2 * hop - 1, live, best, constraint, guide, fed if hop == 1 else 0)
        if answers:
            matters = live.score >= least[live.query]
            only = live.take(~matters & (live.trail[:, 1] == relations[live.query]))
            ended.append(_ended(only, torch.zeros_like(only.score), hop, hops))
            live = live.take(matters)
        # A constraint may have left nobody to feed.
        follow = decoder.relations(2 * hop, live.parent, live.trail[:, -1]) if len(live.query) else follow[:0]
        end = follow[:, -1]
        if answers:
            end = end.masked_fill(live.trail[:, 1] == relations[live.query], 0.0)
        ended.append(_ended(live, end, hop, hops))
    columns = zip(
        *((part.query, part.trail, part.hops, part.token_log_probability) for part in ended), strict=True
    )
    return Found(*(torch.cat(column) for column in columns))


def _least_that_matters(
    decoder: Decoder, heads: Tensor, relations: Tensor, follow: Tensor, guide: Guide | None
) -> Tensor:
    """How probable the tenth new answer is by the queried edge alone.  (query)

    A path adds its probability to that of its answer. If it has far less than the last of the answers that anybody
    looks at, these are the same without it. New are those that the guide's edges do not have.
    """
    logits, norm = decoder.entities(1, torch.arange(len(heads), device=heads.device), relations)
    if guide:
        guide.lead(heads, relations, logits, norm)
        logits[guide.edges.entities(heads, relations)] = -math.inf
    last = logits.topk(min(LOOKED_AT, logits.shape[1]), dim=1).values[:, -1]
    return follow.gather(1, relations[:, None])[:, 0] + last - norm


def _ended(live: _Live, end: Tensor, hop: int, hops: int) -> Found:
    """The hypotheses as they are, ended; columns as for the longest."""
    more = 2 * (hops - hop)
    trail = pad(live.trail[:, 1:], (0, more), value=-1)
    tokens = pad(torch.cat([live.scores.diff(dim=1), end[:, None]], 1), (0, more))
    return Found(live.query, trail, torch.full_like(live.query, hop), tokens)


def _choose_relations(follow: Tensor, live: _Live, best: _Best, constraint: Constraint | None) -> _Live:
    """Each hypothesis was fed, in order, so its number is its node's.  follow: (hypothesis, edge relation)"""
    allowed = constraint.relations(live.trail[:, -1]) if constraint else None
    number = torch.arange(len(live.query), device=follow.device)
    best.offer(follow, live.score, live.query, number, number, allowed)
    return best.grow(live)


def _choose_entities(
    decoder: Decoder,
    level: int,
    live: _Live,
    best: _Best,
    constraint: Constraint | None,
    guide: Guide | None,
    fed: int,  # to this level before
) -> _Live:
    """Feed the relations, the best hypotheses of all queries first, as long as they can matter.

    Evidence is a simple path: nothing is visited twice. Only the first hop may lead back to the head, since a fact
    may do so.
    """
    rows = max(1, SCORES_AT_ONCE // max(decoder.num_entities, 1))
    left = _place_in_query(live.query).argsort(stable=True)
    while len(left := left[live.score[left] >= best.floor[live.query[left]]]):
        block, left = left[:rows], left[rows:]
        trail = live.trail[block]
        logits, norm = decoder.entities(level, live.parent[block], trail[:, -1])
        if guide:
            guide.lead(trail[:, -2], trail[:, -1], logits, norm)
        if level > 1:
            logits.scatter_(1, trail[:, 0::2], -math.inf)
        allowed = constraint.entities(trail[:, -2], trail[:, -1]) if constraint else None
        node = torch.arange(fed, fed + len(block), device=block.device)
        best.offer(logits, live.score[block] - norm, live.query[block], block, node, allowed)
        fed += len(block)
    return best.grow(live)


class _Best:
    """The best continuations of each query, out of those offered a block of hypotheses at a time."""

    def __init__(self, beam: int, least: Tensor) -> None:
        self._beam, self._bounded = beam, False
        self.floor = least.clone()  # (query): what a continuation must reach to matter
        none = torch.empty(0, dtype=torch.long, device=least.device)
        self._kept = [none, none, none, none, least.new_empty(0)]  # query, source, node, token, score

    def offer(
        self, scores: Tensor, plus: Tensor, query: Tensor, source: Tensor, node: Tensor, allowed: Pairs | None
    ) -> None:
        """Rows of scores, one a hypothesis: add this to each, of this query, with this number and this node.

        scores: (row, class); the others: (row)
        """
        if allowed is None:
            if not self._bounded:
                self._set_floor(*_heads_of_rows(scores, plus, query, self._beam))
                self._bounded = bool(self.floor.isfinite().all())
            # No sum is made of all scores: most are never looked at again. The sums round otherwise than this
            # difference, so a little more is let in than must be, and judged with the others.
            row, token = _at_least(scores, self.floor[query] - plus - ROUNDING)
        else:
            row, token = allowed
        score = scores[row, token] + plus[row]
        possible = score > -math.inf
        offered = (column[possible] for column in (query[row], source[row], node[row], token, score))
        kept = [torch.cat(pair) for pair in zip(self._kept, offered, strict=True)]
        order = _best_first(kept[0], kept[-1])
        order = order[_place_in_query(kept[0][order]) < self._beam]
        self._kept = [column[order] for column in kept]
        self._set_floor(self._kept[0], self._kept[-1])

    def _set_floor(self, query: Tensor, score: Tensor) -> None:
        """Raised to the `beam`-th of these sorted scores, if there are so many."""
        here = _place_in_query(query) == self._beam - 1
        self.floor[query[here]] = torch.maximum(self.floor[query[here]], score[here])

    def grow(self, live: _Live) -> _Live:
        """The chosen hypotheses, one token longer."""
        good = self._kept[-1] >= self.floor[self._kept[0]]
        query, source, node, token, score = (column[good] for column in self._kept)
        scores, trail = (
            torch.cat([before[source], new[:, None]], 1)
            for before, new in ((live.scores, score), (live.trail, token))
        )
        return _Live(query, score, scores, trail, node)


def _heads_of_rows(scores: Tensor, plus: Tensor, query: Tensor, beam: int) -> tuple[Tensor, Tensor]:
    """The best scores of each row, sorted, with their queries: enough to bound a query's `beam`-th best."""
    rows = torch.bincount(query)
    fewest = int(rows[rows > 0].min()) if len(query) else 1
    each = min(-(-beam // fewest), scores.shape[1])
    score = (scores.topk(each, dim=1).values + plus[:, None]).flatten()
    query = query.repeat_interleave(each)
    order = _best_first(query, score)
    return query[order], score[order]


def _at_least(scores: Tensor, floor: Tensor) -> Pairs:
    """Where a row has its floor or more.  (row, class), (row) -> (pair) × 2"""
    if scores.device.type != "cpu":
        row, token = (scores >= floor[:, None]).nonzero(as_tuple=True)
        return row, token
    # numpy skips over what is false: 1.5 ms where torch takes 16 for 4 million scores.
    found = torch.from_numpy(np.flatnonzero(scores.numpy() >= floor[:, None].numpy()))
    return found // scores.shape[1], found % scores.shape[1]


def _best_first(query: Tensor, score: Tensor) -> Tensor:
    """The order by query, then by falling score; who came first wins a tie.  (candidate)"""
    order = score.argsort(descending=True, stable=True)
    return order[query[order].argsort(stable=True)]


def _place_in_query(query: Tensor) -> Tensor:
    """0, 1, 2 … within each run of equal queries.  (hypothesis), ascending"""
    number = torch.arange(len(query), device=query.device)
    return number - torch.searchsorted(query, query)

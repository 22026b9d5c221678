"""Beam search (§3.2, Eq. 5): the most probable paths of many queries at once, without a Python loop over
hypotheses.

A hypothesis is a path so far. Relations and entities alternate. After each entity the path may also end; finished
paths are set aside and take up no space in the beam. Each step keeps the `beam` most probable continuations of a
query. Since probabilities only fall as a path grows, the best hypotheses are expanded first, and those below what
a continuation must reach by then (`_Beam.floor`) are not expanded at all. This is exact. Pruning starts with a
higher floor (`_least_relevant`).

Works on entity and relation ids and their log-probabilities, which any `Decoder` may provide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from squire.search.options import DecodingOptions, Guidance, Pairs

SCORES_AT_ONCE = 2**23  # entity scores in memory at a time: 32 MB; half of it is 3 % slower on NELL23K
ROUNDING = 1e-4
RELEVANT_ANSWERS = 10  # pruning drops paths that cannot change the first answers


class Decoder(Protocol):
    """A model as the search sees it. Level 0 holds the queries, 1 their first relations, 2 the first entities, …

    A node is a token fed to the model. Its number is its position among all those fed to its level so far.
    """

    num_entities: int
    device: torch.device  # where queries must be

    def begin(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Feed queries; return log-probabilities of the first relation. The last column (the end) is unused.

        (query), (query) -> (query, edge type + 1)
        """

    def entities(self, level: int, parents: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """Feed relations after nodes of the previous level; return logits of the next entity and their
        log-normaliser.

        (node), (node) -> (node, entity), (node)
        """

    def relations(self, level: int, parents: Tensor, entities: Tensor) -> Tensor:
        """Feed entities; return log-probabilities of the next relation or the end.

        (node), (node) -> (node, edge type + 1)
        """

    def queried_edge(self, relations: Tensor) -> Tensor:
        """After `begin`: log-probabilities of answers by the queried edge alone.  (query) -> (query, entity)"""

    def skip(self, level: int, parents: Tensor, relations: Tensor) -> Tensor:
        """Feed relations after nodes of the previous level, and <mask> instead of an entity after each; return
        log-probabilities of the next relation or the end.

        (node), (node) -> (node, edge type + 1)
        """


@dataclass(frozen=True)
class FinishedPaths:
    """Finished paths of some queries, in the order in which they ended."""

    query: Tensor  # (path)
    paths: Tensor  # (path, 2 · hops): relation, entity, relation, entity …, then −1
    hops: Tensor  # (path)
    token_log_probability: Tensor  # (path, 2 · hops + 1): of each token, of the end, then 0

    def take(self, which: Tensor) -> FinishedPaths:
        """Select some of them by mask.  (path)"""
        return FinishedPaths(*(column[which] for column in vars(self).values()))

    @property
    def log_probability(self) -> Tensor:
        """Log-probability of the whole path, including its end (Eq. 2).  (path)"""
        return self.token_log_probability.sum(1)

    @property
    def score(self) -> Tensor:
        """Eq. 5: the log-probability divided by the number of tokens, <eos> included.  (path)"""
        return self.log_probability / (2 * self.hops + 1)

    @property
    def answer(self) -> Tensor:
        """The last entity of each path.  (path)"""
        return self.paths.gather(1, 2 * self.hops[:, None] - 1)[:, 0]


@dataclass(frozen=True)
class _Hypotheses:
    """Hypotheses of one length, sorted by query, then by falling probability. The last token is not fed yet."""

    query: Tensor  # (hypothesis)
    score: Tensor  # (hypothesis): log-probability so far
    scores: Tensor  # (hypothesis, 1 + tokens): the same after each token, starting with 0
    paths: Tensor  # (hypothesis, 1 + tokens): the head, then the path
    parent: Tensor  # (hypothesis): the node before the last token

    def take(self, which: Tensor) -> _Hypotheses:
        """Select some of them by index or mask.  (hypothesis)"""
        return _Hypotheses(*(column[which] for column in vars(self).values()))


@torch.no_grad()
def search(decoder: Decoder, heads: Tensor, relations: Tensor, decoding: DecodingOptions) -> FinishedPaths:
    """All paths of at most `decoding.hops` hops that end within the beam.  heads, relations: (query)"""
    queries = torch.arange(len(heads), device=heads.device)
    follow = decoder.begin(heads, relations)
    zero = follow.new_zeros(len(heads))
    least, fed = torch.full_like(zero, -math.inf), 0
    if decoding.prune:
        least = _least_relevant(decoder, heads, relations, follow, decoding.guidance) + math.log(decoding.prune)
        fed = len(heads)
    live = _Hypotheses(queries, zero, zero[:, None], heads[:, None], queries)
    finished: list[FinishedPaths] = []
    for hop in range(1, decoding.hops + 1):
        live = _choose_relations(follow[:, :-1], live, _Beam(decoding.beam, least), decoding)
        # Every tail of the queried relation is an answer, however improbable; only the relevant ones are extended.
        keep_all = decoding.edge_ends and hop == 1
        beam = _Beam(decoding.beam, torch.full_like(least, -math.inf) if keep_all else least)
        live = _choose_entities(decoder, 2 * hop - 1, live, beam, decoding, fed if hop == 1 else 0)
        if keep_all:
            is_relevant = live.score >= least[live.query]
            irrelevant = live.take(~is_relevant & (live.paths[:, 1] == relations[live.query]))
            finished.append(_finish(irrelevant, torch.zeros_like(irrelevant.score), hop, decoding.hops))
            live = live.take(is_relevant)
        # A constraint may leave no hypothesis to feed.
        follow = decoder.relations(2 * hop, live.parent, live.paths[:, -1]) if len(live.query) else follow[:0]
        end = follow[:, -1]
        if keep_all:
            end = end.masked_fill(live.paths[:, 1] == relations[live.query], 0.0)
        finished.append(_finish(live, end, hop, decoding.hops))
    columns = zip(*(vars(part).values() for part in finished), strict=True)
    return FinishedPaths(*(torch.cat(column) for column in columns))


def _least_relevant(
    decoder: Decoder, heads: Tensor, relations: Tensor, follow: Tensor, guidance: Guidance | None
) -> Tensor:
    """The probability of the tenth new answer by the queried edge alone, as a logarithm.  (query)

    A path adds its probability to that of its answer. A path that is far less probable than the tenth answer
    cannot change the first ten. New answers are those that the known edges do not have.
    """
    logits, norm = decoder.entities(1, torch.arange(len(heads), device=heads.device), relations)
    if guidance:
        guidance.apply(heads, relations, logits, norm)
        logits[guidance.edges.entities(heads, relations)] = -math.inf
    last = logits.topk(min(RELEVANT_ANSWERS, logits.shape[1]), dim=1).values[:, -1]
    return follow.gather(1, relations[:, None])[:, 0] + last - norm


def _finish(live: _Hypotheses, end: Tensor, hop: int, hops: int) -> FinishedPaths:
    """End the hypotheses where they are, padded to the longest path.  end: (hypothesis), log-probability"""
    padding = 2 * (hops - hop)
    paths = pad(live.paths[:, 1:], (0, padding), value=-1)
    tokens = pad(torch.cat([live.scores.diff(dim=1), end[:, None]], 1), (0, padding))
    return FinishedPaths(live.query, paths, torch.full_like(live.query, hop), tokens)


def _choose_relations(follow: Tensor, live: _Hypotheses, beam: _Beam, decoding: DecodingOptions) -> _Hypotheses:
    """All hypotheses were fed in order, so that each has its node's number.  follow: (hypothesis, edge type)"""
    allowed = decoding.constraint.relations(live.paths[:, -1]) if decoding.constraint else None
    number = torch.arange(len(live.query), device=follow.device)
    beam.offer(follow, live.score, live.query, number, number, allowed)
    return beam.extend(live)


def _choose_entities(
    decoder: Decoder,
    level: int,
    live: _Hypotheses,
    beam: _Beam,
    decoding: DecodingOptions,
    fed: int,  # nodes fed to this level before
) -> _Hypotheses:
    """Feed the relations, the best hypotheses of all queries first, as long as they can enter the beam.

    Evidence is a simple path: no entity is visited twice. Only the first hop may lead back to the head, as a fact
    may.
    """
    rows = max(1, SCORES_AT_ONCE // max(decoder.num_entities, 1))
    left = _position_in_query(live.query).argsort(stable=True)
    while len(left := left[live.score[left] >= beam.floor[live.query[left]]]):
        block, left = left[:rows], left[rows:]
        paths = live.paths[block]
        logits, norm = decoder.entities(level, live.parent[block], paths[:, -1])
        if decoding.guidance:
            decoding.guidance.apply(paths[:, -2], paths[:, -1], logits, norm)
        if level > 1:
            logits.scatter_(1, paths[:, 0::2], -math.inf)
        allowed = decoding.constraint.entities(paths[:, -2], paths[:, -1]) if decoding.constraint else None
        node = torch.arange(fed, fed + len(block), device=block.device)
        beam.offer(logits, live.score[block] - norm, live.query[block], block, node, allowed)
        fed += len(block)
    return beam.extend(live)


class _Beam:
    """The best continuations of each query, out of those offered a block of hypotheses at a time."""

    def __init__(self, width: int, least: Tensor) -> None:
        self._width, self._bounded = width, False
        self.floor = least.clone()  # (query): the score that a continuation must reach
        none = torch.empty(0, dtype=torch.long, device=least.device)
        self._kept = [none, none, none, none, least.new_empty(0)]  # query, source, node, token, score

    def offer(
        self, scores: Tensor, plus: Tensor, query: Tensor, source: Tensor, node: Tensor, allowed: Pairs | None
    ) -> None:
        """Offer rows of scores, one per hypothesis, with its score (`plus`), query, number (`source`) and node.

        scores: (row, class); the others: (row)
        """
        if allowed is None:
            if not self._bounded:
                self._raise_floor(*_best_of_rows(scores, plus, query, self._width))
                self._bounded = bool(self.floor.isfinite().all())
            # Adding `plus` to all scores would be slow, since most are not needed. The difference rounds
            # differently from the sum, so a few more are let in here and compared exactly below.
            row, token = _at_least(scores, self.floor[query] - plus - ROUNDING)
        else:
            row, token = allowed
        score = scores[row, token] + plus[row]
        possible = score > -math.inf
        offered = (column[possible] for column in (query[row], source[row], node[row], token, score))
        kept = [torch.cat(pair) for pair in zip(self._kept, offered, strict=True)]
        order = _best_first(kept[0], kept[-1])
        order = order[_position_in_query(kept[0][order]) < self._width]
        self._kept = [column[order] for column in kept]
        self._raise_floor(self._kept[0], self._kept[-1])

    def _raise_floor(self, query: Tensor, score: Tensor) -> None:
        """Raise the floor to the last of these sorted scores that fits into the beam, if the beam is full."""
        here = _position_in_query(query) == self._width - 1
        self.floor[query[here]] = torch.maximum(self.floor[query[here]], score[here])

    def extend(self, live: _Hypotheses) -> _Hypotheses:
        """The chosen hypotheses, one token longer."""
        good = self._kept[-1] >= self.floor[self._kept[0]]
        query, source, node, token, score = (column[good] for column in self._kept)
        scores, paths = (
            torch.cat([before[source], new[:, None]], 1)
            for before, new in ((live.scores, score), (live.paths, token))
        )
        return _Hypotheses(query, score, scores, paths, node)


def _best_of_rows(scores: Tensor, plus: Tensor, query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The best scores of each row, sorted, with their queries: enough to bound the last score in a full beam."""
    rows = torch.bincount(query)
    fewest = int(rows[rows > 0].min()) if len(query) else 1
    each = min(-(-width // fewest), scores.shape[1])
    score = (scores.topk(each, dim=1).values + plus[:, None]).flatten()
    query = query.repeat_interleave(each)
    order = _best_first(query, score)
    return query[order], score[order]


def _at_least(scores: Tensor, floor: Tensor) -> Pairs:
    """Where a row reaches its floor.  (row, class), (row) -> (pair) × 2"""
    if scores.device.type != "cpu":
        row, token = (scores >= floor[:, None]).nonzero(as_tuple=True)
        return row, token
    # numpy skips false values quickly: 1.5 ms where torch takes 16 for 4 million scores.
    found = torch.from_numpy(np.flatnonzero(scores.numpy() >= floor[:, None].numpy()))
    return found // scores.shape[1], found % scores.shape[1]


def _best_first(query: Tensor, score: Tensor) -> Tensor:
    """The order by query, then by falling score, stable.  (continuation)"""
    order = score.argsort(descending=True, stable=True)
    return order[query[order].argsort(stable=True)]


def _position_in_query(query: Tensor) -> Tensor:
    """0, 1, 2 … within each run of equal queries.  (hypothesis), ascending"""
    number = torch.arange(len(query), device=query.device)
    return number - torch.searchsorted(query, query)

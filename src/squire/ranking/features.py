"""Candidate answers of a query, and what every source of evidence says of each: arrays, in the order of the table.

`CandidateFeatures` depends on one graph and one rule set and never sees the right answers. Scores of trained
models are further columns, given by a `Scorer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from squire.core.parallel import in_order, thread_count
from squire.core.ragged import offsets_from
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.ranking import _votes as kernels
from squire.ranking._features import FeatureColumns, Profile, RuleCandidates, Sizes
from squire.ranking.index import index_of, scratch
from squire.ranking.table import BEST, COLUMN, FEATURES, LEAST, Feature, Features
from squire.ranking.words import no_words
from squire.rules.application import RuleEngine
from squire.rules.rules import NONE, Rules

QUERIES_AT_ONCE = 128  # 128 × 421 candidates × 46 features: 10 MB
# What the search on NELL23K's valid used: four of five right answers are among some 110 candidates a query.
FROM_FREQUENCY, FROM_RULES, FROM_VOTE, FROM_SIGNATURE, FROM_NAMES, VOTERS = 120, 120, 60, 60, 60, 20
ROOM = FROM_FREQUENCY + FROM_RULES + FROM_VOTE + FROM_SIGNATURE + FROM_NAMES + 1  # and the head itself
POWER = 8  # most signatures are alike to some degree; the eighth power leaves those that are really so
WORDS_POWER = 2  # few names share words at all, so little need be damped; not searched for
LONG, LONG_CONFIDENCE = (
    3,
    0.1,
)  # longer rules need this smoothed confidence: the same MRR, four times as fast on FB15K237
OWN_TAILS = 50  # tails of h to which candidates are compared


@dataclass(frozen=True)
class CandidateLists:
    """Candidates of some queries."""

    queries: Ids  # (query, 2): head and edge relation
    offsets: Offsets  # (query + 1)
    candidates: Ids  # (candidate), sorted within a query
    features: Features  # (candidate, feature)

    def __len__(self) -> int:
        return len(self.queries)

    def rows(self, query: int) -> slice:
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    @property
    def query(self) -> Offsets:
        """The number of the query of each candidate.  (candidate)"""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, keep: Offsets) -> CandidateLists:
        """Only some of the candidates, at sorted positions."""
        counts = np.bincount(self.query[keep], minlength=len(self))
        return CandidateLists(self.queries, offsets_from(counts), self.candidates[keep], self.features[keep])

    def only(self, chosen: Offsets) -> CandidateLists:
        """Without the queries that are not chosen; these must have no candidates."""
        sizes = np.diff(self.offsets)[chosen]
        offsets = offsets_from(sizes)
        return CandidateLists(self.queries[chosen], offsets, self.candidates, self.features)

    @classmethod
    def join(cls, parts: Sequence[CandidateLists]) -> CandidateLists:
        """Several one after the other; at least one."""
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        columns = zip(*((part.queries, part.candidates, part.features) for part in parts), strict=True)
        queries, candidates, features = (np.concatenate(column) for column in columns)
        return cls(queries, offsets_from(sizes), candidates, features)


class Scorer(Protocol):
    """A trained model that says something of candidates, as further columns."""

    @property
    def table(self) -> Sequence[Feature]:
        """What its columns are; their source is usually "paths"."""
        ...

    def scores(self, listed: CandidateLists) -> Features:
        """Of every candidate.  (candidate, column)"""
        ...


MakeScorers = Callable[[Adjacency], Sequence[Scorer]]
"""Models trained on this graph and nothing else: for a fold it is called without the hidden triples."""


def no_scorers(adjacency: Adjacency) -> Sequence[Scorer]:
    """Symbolic evidence only."""
    return ()


class CandidateFeatures:
    """What a graph, its rules and further models say of candidates."""

    def __init__(
        self,
        adjacency: Adjacency,
        rules: Rules,
        drop_linked: bool = False,
        scorers: Sequence[Scorer] = (),
        words: Profile | None = None,
    ) -> None:
        self.adjacency, self.rules, self.scorers = adjacency, rules, tuple(scorers)
        self.table = (*FEATURES, *(feature for scorer in self.scorers for feature in scorer.table))
        # The engine's, to which the numbers of its answers refer; `rules` are all that were mined.
        self.used_rules = rules.take((rules.length < LONG) | (rules.smoothed_confidence >= LONG_CONFIDENCE))
        self._engine = RuleEngine(self.used_rules, adjacency, best=BEST)
        self.words = no_words(adjacency.num_entities) if words is None else words
        self._index = index_of(adjacency, self.words)
        self._kind = _kinds(self.used_rules)
        self._sizes = Sizes(
            FROM_FREQUENCY, FROM_RULES, FROM_VOTE, FROM_SIGNATURE, FROM_NAMES, VOTERS, POWER, WORDS_POWER,
            OWN_TAILS, LEAST, drop_linked,
        )  # fmt: skip
        firsts = ("log frequency", "noisy or of 5", "vote", "edges", "like tails", "name vote", "edges of h")
        self._columns = FeatureColumns(*(COLUMN[name] for name in firsts))

    def describe(self, queries: Ids) -> CandidateLists:
        """The candidates of some queries, on one thread.  queries: (query, 2)"""
        answers = self._engine.answer(queries)  # refuses ids that are not in the graph
        rule = RuleCandidates(
            answers.offsets, answers.answers, answers.rules, answers.smoothed_confidence, self._kind
        )
        offsets = np.zeros(len(queries) + 1, np.int64)
        candidates = np.empty(len(queries) * ROOM, np.int32)
        features = np.zeros((len(queries) * ROOM, len(FEATURES)), np.float32)
        kernels.describe(
            queries, self._index, rule, self._sizes, self._columns, scratch(self._index, ROOM),
            offsets, candidates, features,
        )  # fmt: skip
        end = int(offsets[-1])
        listed = CandidateLists(queries, offsets, candidates[:end].copy(), features[:end].copy())
        if not self.scorers:
            return listed
        columns = [listed.features, *(scorer.scores(listed) for scorer in self.scorers)]
        return CandidateLists(
            queries, offsets, listed.candidates, np.concatenate(columns, axis=1, dtype=np.float32)
        )

    def stream(self, queries: Ids, threads: int | None = None) -> Iterator[CandidateLists]:
        """The same for any number of queries, a block of them at a time and in order, on several threads."""
        blocks = [queries[i : i + QUERIES_AT_ONCE] for i in range(0, len(queries), QUERIES_AT_ONCE)]
        return in_order(lambda i: self.describe(blocks[i]), len(blocks), thread_count(threads))


def _kinds(rules: Rules) -> Offsets:
    """The place of each rule's kind among `table.KINDS`.  (rule)"""
    return np.where(rules.is_closed, rules.length - 1, np.where(rules.body_constant == NONE, 4, 3))

"""Candidate answers of a query and their features: one table, and `CandidateFeatures`, which fills it.

A feature belongs to a source of evidence, and users are shown how much each source contributed. Features depend on
one graph and one rule set, and never on the right answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from squire.core.parallel import in_order, thread_count
from squire.core.ragged import offsets_from
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.ranking import _votes as kernels
from squire.ranking._features import FeatureColumns, Profile, RuleCandidates, Sizes
from squire.ranking._walks import WalkWeights
from squire.ranking.index import build_index, new_scratch, no_words
from squire.ranking.walks import LEAST_SHARE, initial_weights, new_walk_scratch, walk_graph
from squire.ranking.walks import STEPS as WALK_STEPS
from squire.rules.application import Candidates, RuleEngine
from squire.rules.mining import MiningOptions
from squire.rules.rules import NONE, PSEUDO_COUNT, Rules

Features = npt.NDArray[np.float32]  # (candidate, feature)
Floats = npt.NDArray[np.float64]

# ---------------------------------------------------------------------------------------------------- the table

FREQUENCY, RULES, SIMILAR = "frequency", "rules", "similar entities"
CONNECTIONS, TAILS, NAMES, MODEL, CONTEXT = "connections", "tail similarity", "names", "model", "context"
SOURCES = (FREQUENCY, RULES, SIMILAR, CONNECTIONS, TAILS, NAMES, MODEL, CONTEXT)

LEAST = 1e-6  # added to the probabilities of walks before taking logarithms
NOWHERE = float(np.log(LEAST))
BEST_RULES = 10  # rules considered for an answer
KINDS = ("of one hop", "of two hops", "of three hops", "with two constants", "with one constant")


@dataclass(frozen=True)
class Feature:
    """One column of the table."""

    name: str
    source: str
    sentence: str  # its meaning; h is the query's head, r its relation, t the candidate
    # The value if the source has no evidence for t: a number, or the name of the column that holds it. None for
    # context, which is always present.
    absent: float | str | None = 0.0
    log: bool = False  # the ranker also sees its logarithm, since differences between small values matter


def _rule_features() -> list[Feature]:
    rows = [
        ("noisy or of 5", "the probability that one of the 5 best rules for t is right, if they are independent"),
        ("noisy or of 10", "the same for the 10 best rules"),
        *((f"rule {i}", f"smoothed confidence of the best rule number {i}") for i in range(1, 6)),
        ("rules", f"number of rules that predict t, at most {BEST_RULES}"),
        ("sum of confidences", f"sum of the smoothed confidences of the {BEST_RULES} best rules"),
        *((f"best {kind}", f"smoothed confidence of the best rule {kind}") for kind in KINDS),
        *((f"rules {kind}", f"how many of the {BEST_RULES} best rules are {kind}") for kind in KINDS),
    ]
    return [Feature(name, RULES, sentence, log=True) for name, sentence in rows]


FEATURES: tuple[Feature, ...] = (
    Feature("log frequency", FREQUENCY, "log of 1 + how often t is a tail of r"),
    Feature("frequency rank", FREQUENCY, "log of 1 + how many entities are more often a tail of r", "tails of r"),
    Feature("frequency", FREQUENCY, "share of t among the tails of r", log=True),
    Feature("degree", FREQUENCY, "log of 1 + the number of edges of t"),
    *_rule_features(),
    Feature("vote", SIMILAR, "entities that share neighbours with h vote for their tails of r", log=True),
    Feature("vote share", SIMILAR, "the share of t in this vote", log=True),
    Feature("vote of 20", SIMILAR, "the share of t in the vote of the 20 most similar entities", log=True),
    Feature("signature vote", SIMILAR, "the share of t in the vote of entities with similar relations", log=True),
    Feature("edges", CONNECTIONS, "number of edges between h and t"),
    Feature("two steps", CONNECTIONS, "log probability that a random walk of two steps from h ends at t", NOWHERE),
    Feature("three steps", CONNECTIONS, "the same for three steps", NOWHERE),
    Feature("itself", CONNECTIONS, "1 if t is h"),
    Feature("loops", CONNECTIONS, "if t is h, the share of the facts of r that link an entity to itself"),
    Feature("walk", CONNECTIONS, "log probability that a walk that has learned where r leads ends at t", NOWHERE),
    Feature("like tails", TAILS, "mean similarity of t, by neighbours, to the tails of r that h has"),
    Feature("like tails by relations", TAILS, "the same by relations"),
    Feature("typical tail", TAILS, "similarity of t, by relations, to all tails of r"),
    Feature("name vote", NAMES, "entities with names similar to that of h vote for their tails of r", log=True),
    Feature("name vote share", NAMES, "the share of t in this vote", log=True),
    Feature("like voted names", NAMES, "mean similarity of the name of t to those of the voted tails", log=True),
    Feature("like name", NAMES, "similarity of the names of h and t", log=True),
    Feature("like tails by name", NAMES, "mean similarity of the name of t to those of the tails of r that h has"),
    Feature("typical name", NAMES, "similarity of the name of t to those of all tails of r"),
    Feature("edges of h", CONTEXT, "log of 1 + the number of edges of h", None),
    Feature("tails of h", CONTEXT, "number of tails of r that h has", None),
    Feature("facts of r", CONTEXT, "log of 1 + the number of facts of r", None),
    Feature("tails of r", CONTEXT, "log of 1 + the number of entities that are a tail of r", None),
    Feature("tails a head", CONTEXT, "mean number of tails of r per head of r", None),
)  # fmt: skip

COLUMN = {feature.name: i for i, feature in enumerate(FEATURES)}


def absent(features: Features, table: Sequence[Feature]) -> Features:
    """The features that the same candidates would have if no source had evidence for them."""
    column = {feature.name: i for i, feature in enumerate(table)}
    out = features.copy()
    for i, feature in enumerate(table):
        if isinstance(feature.absent, str):
            out[:, i] = features[:, column[feature.absent]]
        elif feature.absent is not None:
            out[:, i] = feature.absent
    return out


# ---------------------------------------------------------------------------------------------- candidate lists


@dataclass(frozen=True)
class CandidateLists:
    """The candidates of some queries, with their features."""

    queries: Ids  # (query, 2): head and edge type
    offsets: Offsets  # (query + 1)
    candidates: Ids  # (candidate), sorted within a query
    features: Features  # (candidate, feature)
    # (query): does its evidence rest on a sample of the edges of hubs? None: no
    sampled: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def is_sampled(self, query: int) -> bool:
        """Whether the evidence of a query rests on a sample of the edges of hubs."""
        return self.sampled is not None and bool(self.sampled[query])

    def rows(self, query: int) -> slice:
        """The candidates of one query."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    @property
    def query(self) -> Offsets:
        """The number of each candidate's query.  (candidate)"""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, keep: Offsets) -> CandidateLists:
        """Only the candidates at these sorted positions; all queries stay."""
        counts = np.bincount(self.query[keep], minlength=len(self))
        kept = self.candidates[keep], self.features[keep]
        return CandidateLists(self.queries, offsets_from(counts), *kept, self.sampled)

    def facts(self, adjacency: Adjacency) -> Offsets:
        """The positions of the candidates that are facts.  (fact), ascending"""
        head, relation = self.queries[self.query].T
        return np.flatnonzero(adjacency.contains_each(head, relation, self.candidates))

    def without(self, facts: Adjacency) -> CandidateLists:
        """Without candidates that are facts; all queries stay."""
        if not facts.num_edges:
            return self
        return self.take(np.delete(np.arange(len(self.candidates)), self.facts(facts)))

    def without_features(self) -> CandidateLists:
        """The same lists; features are most of their memory."""
        return replace(self, features=np.empty((len(self.candidates), 0), np.float32))

    def softmax(self, scores: Floats) -> Floats:
        """The softmax of scores within each list.  (candidate)"""
        query = self.query
        top = np.full(len(self), -np.inf)
        np.maximum.at(top, query, scores)
        weight = np.exp(scores - top[query])
        return np.asarray(weight / np.bincount(query, weight, minlength=len(self))[query])

    def positions(self, scores: Floats) -> Offsets:
        """0, 1, 2 … by falling score within each list.  (candidate)"""
        query = self.query
        best_first = np.lexsort((-scores, query))
        position = np.empty(len(scores), np.int64)
        position[best_first] = np.arange(len(scores)) - self.offsets[query[best_first]]
        return position

    def only(self, chosen: Offsets) -> CandidateLists:
        """Only these queries; the others must have no candidates."""
        sizes = np.diff(self.offsets)[chosen]
        offsets = offsets_from(sizes)
        sampled = None if self.sampled is None else self.sampled[chosen]
        return CandidateLists(self.queries[chosen], offsets, self.candidates, self.features, sampled)

    @classmethod
    def join(cls, parts: Sequence[CandidateLists]) -> CandidateLists:
        """Concatenate one or more."""
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        columns = zip(*((part.queries, part.candidates, part.features) for part in parts), strict=True)
        queries, candidates, features = (np.concatenate(column) for column in columns)
        flags = [np.zeros(len(part), bool) if part.sampled is None else part.sampled for part in parts]
        return cls(queries, offsets_from(sizes), candidates, features, np.concatenate(flags))


# ------------------------------------------------------------------------------------------- candidate features

QUERIES_AT_ONCE = 128  # 128 × 482 candidates × 47 features: 12 MB
# Candidates from each source. On valid of NELL23K four of five right answers are among some 110 candidates a
# query.
FROM_FREQUENCY, FROM_RULES, FROM_VOTE, FROM_SIGNATURE, FROM_NAMES, FROM_WALK, VOTERS = 120, 120, 60, 60, 60, 60, 20
# And h, and a wanted one.
MOST_CANDIDATES = FROM_FREQUENCY + FROM_RULES + FROM_VOTE + FROM_SIGNATURE + FROM_NAMES + FROM_WALK + 2
POWER = 8  # of the similarity of signatures: most are somewhat similar, and only close ones should vote
WORDS_POWER = 2  # few names share words at all, so less damping is needed; not tuned
# Longer rules must be this reliable (same MRR, four times as fast on FB15K237), and among so many of their head.
# The first few of a head may be less reliable: sparse graphs have not many others, and they reach further.
LONG, LONG_CONFIDENCE, MOST_LONG = 3, 0.1, 1000
WEAK_CONFIDENCE, MOST_WEAK = 0.01, 100
OWN_TAILS = 50  # tails of h to which candidates are compared
# Budgets of one query, so that a hub costs no more than another entity. Beyond them only every second, third …
# edge is looked at, and counts twice, three times …
EDGES, VOTERS_HEARD, STEPS, TYPICAL_TAILS = 10_000, 20_000, 2_000_000, 10_000
MIN_SUPPORT, MIN_CONSTANT_SUPPORT = MiningOptions.min_support, MiningOptions.constant_support


class CandidateFeatures:
    """Finds candidates and their features by a graph and its rules."""

    table: Sequence[Feature] = FEATURES

    def __init__(
        self,
        adjacency: Adjacency,
        rules: Rules,
        drop_linked: bool = False,  # propose no entity that has any edge with the head
        words: Profile | None = None,  # of the entities' names; None if these are not used
        hidden: Adjacency | None = None,  # facts that the rules were mined from, but that this graph lacks
        walks: WalkWeights | None = None,  # as they were learned; None if there are none
    ) -> None:
        self.adjacency, self.rules, self.drop_linked = adjacency, rules, drop_linked
        # The subset of `rules` that the engine applies; its answers refer to their numbers.
        self.used_rules = used_rules(rules)
        self.engine = RuleEngine(self.used_rules, adjacency, best=BEST_RULES)
        self.words = no_words(adjacency.num_entities) if words is None else words
        self.index = build_index(adjacency, self.words)
        self.walks = walks
        self._walk_graph, self._walks = walk_graph(adjacency), walks or initial_weights(0)
        self._kind = _rule_kinds(self.used_rules)
        self._sizes = Sizes(
            FROM_FREQUENCY, FROM_RULES, FROM_VOTE, FROM_SIGNATURE, FROM_NAMES, FROM_WALK, VOTERS, POWER,
            WORDS_POWER, OWN_TAILS, LEAST, drop_linked, EDGES, VOTERS_HEARD, STEPS, TYPICAL_TAILS,
            WALK_STEPS if walks else 0, LEAST_SHARE,
        )  # fmt: skip
        self._hidden = hidden
        firsts = ("log frequency", "noisy or of 5", "vote", "edges", "like tails", "name vote", "edges of h")
        self._columns = FeatureColumns(*(COLUMN[name] for name in firsts))

    def describe(self, queries: Ids, wanted: Ids | None = None) -> CandidateLists:
        """The candidates of some queries, on one thread.  queries: (query, 2)

        wanted: entities that are candidates in any case, (query).
        """
        if wanted is None:
            wanted = np.full(len(queries), -1, np.int32)
        scratch, walk_scratch = new_scratch(self.index, MOST_CANDIDATES), new_walk_scratch(self._walk_graph)
        parts, first = [], 0
        for answers in self.answers_by_rules(queries):
            rows = slice(first, first := first + len(answers))
            offsets = np.zeros(len(answers) + 1, np.int64)
            candidates = np.empty(len(answers) * MOST_CANDIDATES, np.int32)
            features = np.zeros((len(answers) * MOST_CANDIDATES, len(FEATURES)), np.float32)
            sampled = answers.sampled.copy()
            rule = RuleCandidates(
                answers.offsets, answers.answers, answers.rules, answers.smoothed_confidence, self._kind
            )
            kernels.describe(
                queries[rows], wanted[rows], self.index, rule, self._walk_graph, self._walks, self._sizes,
                self._columns, scratch, walk_scratch, offsets, candidates, features, sampled,
            )  # fmt: skip
            end = int(offsets[-1])
            parts.append(
                CandidateLists(queries[rows], offsets, candidates[:end].copy(), features[:end].copy(), sampled)
            )
        return parts[0] if len(parts) == 1 else CandidateLists.join(parts)

    def answers_by_rules(self, queries: Ids) -> Iterator[Candidates]:
        """What rules predict, a part of the queries after the other.  queries: (query, 2)"""
        first = 0
        for answers in self.engine.answer_in_parts(queries):  # rejects ids that are not in the graph
            own = queries[first : (first := first + len(answers))]
            yield _without_own_support(answers, own, self.used_rules, self._hidden) if self._hidden else answers

    def stream(
        self, queries: Ids, threads: int | None = None, wanted: Ids | None = None
    ) -> Iterator[CandidateLists]:
        """The same for any number of queries, in blocks and in order, on several threads."""

        def describe_block(i: int) -> CandidateLists:
            rows = slice(i * QUERIES_AT_ONCE, (i + 1) * QUERIES_AT_ONCE)
            return self.describe(queries[rows], None if wanted is None else wanted[rows])

        return in_order(describe_block, -(-len(queries) // QUERIES_AT_ONCE), thread_count(threads))


def _without_own_support(answers: Candidates, queries: Ids, rules: Rules, hidden: Adjacency) -> Candidates:
    """Answers that are hidden facts no longer count as support of the rules that give them."""
    head, relation = np.repeat(queries, np.diff(answers.offsets), axis=0).T
    rows = np.flatnonzero(hidden.contains_each(head, relation, answers.answers))
    own = answers.rules[rows]  # (answer, best)
    support, body_count = rules.support[own] - 1, rules.body_count[own]
    # With less support a rule would not have been found.
    found = (own != NONE) & (support >= np.where(rules.is_closed, MIN_SUPPORT, MIN_CONSTANT_SUPPORT)[own])
    confidence = np.where(found, support / (body_count + PSEUDO_COUNT), 0.0)
    order = np.argsort(-confidence, axis=1, kind="stable")
    all_rules, all_confidences = answers.rules.copy(), answers.smoothed_confidence.copy()
    all_rules[rows] = np.take_along_axis(np.where(found, own, NONE), order, axis=1)
    all_confidences[rows] = np.take_along_axis(confidence, order, axis=1)
    return replace(answers, rules=all_rules, smoothed_confidence=all_confidences)


def used_rules(rules: Rules) -> Rules:
    """The rules that are applied."""
    used = rules.length < LONG
    confidence = rules.smoothed_confidence
    long = np.flatnonzero(~used & (confidence >= WEAK_CONFIDENCE))
    long = long[np.lexsort((-confidence[long], rules.head[long]))]
    first = np.searchsorted(rules.head[long], np.arange(rules.num_relations))
    place = np.arange(len(long)) - first[rules.head[long]]  # among those of its head, the most reliable first
    used[long[place < np.where(confidence[long] >= LONG_CONFIDENCE, MOST_LONG, MOST_WEAK)]] = True
    return rules if used.all() else rules.take(used)


def _rule_kinds(rules: Rules) -> Offsets:
    """The index of each rule's kind in KINDS.  (rule)"""
    return np.where(rules.is_closed, rules.length - 1, np.where(rules.body_constant == NONE, 4, 3))

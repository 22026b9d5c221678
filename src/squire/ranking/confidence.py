"""Confidence: the probability that a fact is true, given the graph, whatever made somebody ask.

A rank score says which answer is right if one is missing. Confidence says whether this fact is true, so it must
also weigh whether anything is missing: how many values the head has, how many such heads have, whether such heads
have the relation at all.

It is learned where the truth is known. Facts of train are hidden, and questions are asked the way people ask them,
most of which have no hidden answer. Let p be the plausibility of a triple: the probability that it is true, before
looking whether the graph has it. If a share u of all true facts is absent from the graph, and we have hidden a
share l of them, then an absent triple is one that we have hidden with probability

    p l / (p u + 1 − p).                                                                            (1)

Networks learn the logit of p, z, by the likelihood of what was hidden. The same z then answers for any graph of
this kind: if a share m of the facts is absent, an absent triple is true with probability

    p m / (p m + 1 − p) = sigmoid(z + log m).                                                       (2)

In (1), true facts that the data do not have at all count as false, so p is really that of being in the data. If
the data lack a share m of the true facts, p = p' (1 − m) with the plausibility p' of being true, and an absent
triple is true with probability

    p' m / (p' m + 1 − p') = exp(z) m / (1 − m).                                                    (3)

(2) is used to evaluate, where the truth is what was held out, and (3) to answer. All shares are by relation. The
networks are fitted in `confidence_fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from squire.core.relations import inverse, is_inverse
from squire.graph.adjacency import Ids, Offsets
from squire.graph.folds import can_be_hidden
from squire.graph.graph import Graph
from squire.ranking._context import RelationIndex
from squire.ranking.context import describe_pairs, pair_features
from squire.ranking.features import CONTEXT, CandidateLists, Feature, Features, Floats
from squire.ranking.networks import Bools, Networks
from squire.ranking.recalibration import Recalibration

DEFAULT_MISSING = 0.1  # share of true facts that a graph is assumed to lack, unless its splits are smaller
MOST_MISSING = 0.9
PRIOR_FACTS = 10.0  # of an average relation, added to the counts of each relation
# (3) takes the estimate of p for exact, and reaches 1 where p is 1 − m. When a tenth or a fifth of world was
# deleted, 85 % of the facts for which it was 1 or more were true (docs/LOG.md).
MOST_LIKELY = 0.9
MOST_CERTAIN = 0.99  # of being held out

LIST_FEATURES = (
    Feature("score", CONTEXT, "the ranker's score", None),
    Feature("rank score", CONTEXT, "softmax of the scores of a list", None),
    Feature("log rank score", CONTEXT, "its logarithm", None),
    Feature("position", CONTEXT, "log of 1 + the number of better candidates", None),
    Feature("lead", CONTEXT, "score minus that of the next candidate, at most 10", None),
    Feature("gap", CONTEXT, "score minus that of the first candidate", None),
    Feature("heads", CONTEXT, "1 if the question is for heads", None),
)
LEAST, MOST_LEAD = 1e-6, 10.0


def confidence_table(table: Sequence[Feature]) -> list[Feature]:
    """The columns that networks see, given those of the candidates."""
    own = [replace(feature, log=False) for feature in table]
    return [*LIST_FEATURES, *pair_features("head"), *pair_features("tail"), *own]


# ------------------------------------------------------------------------------------------------- the columns


def fact_columns(
    lists: CandidateLists, scores: Floats, index: RelationIndex, rows: Offsets | None = None
) -> Features:
    """The columns of `confidence_table` for all candidates, or for some rows.  (row, column)"""
    num_relations = len(index.holders) // 2
    rank_score, position = lists.softmax(scores), lists.positions(scores)
    order = np.lexsort((position, lists.query))
    ranked, query = scores[order], lists.query[order]
    lead = np.full(len(scores), MOST_LEAD)
    has_next = np.flatnonzero(query[1:] == query[:-1])
    lead[order[has_next]] = np.minimum(ranked[has_next] - ranked[has_next + 1], MOST_LEAD)
    first = np.zeros(len(lists))
    first[lists.query[position == 0]] = scores[position == 0]
    own = (
        scores, rank_score, np.log(rank_score + LEAST), np.log1p(position), lead, scores - first[lists.query],
        is_inverse(lists.queries[lists.query, 1], num_relations),
    )  # fmt: skip
    chosen = np.arange(len(scores)) if rows is None else rows
    relation = lists.queries[lists.query[chosen], 1]
    of_head = describe_pairs(lists.queries[:, 0], lists.queries[:, 1], index)[lists.query[chosen]]
    of_tail = describe_pairs(lists.candidates[chosen], inverse(relation, num_relations), index)
    columns = [np.stack(own, axis=1)[chosen], of_head, of_tail, lists.features[chosen]]
    return np.concatenate(columns, axis=1, dtype=np.float32)


# -------------------------------------------------------------------------------------------------- the shares


@dataclass(frozen=True)
class Shares:
    """How many facts of each relation can be hidden, and how many the splits hold out."""

    train: Floats  # (relation): train facts
    facts: Floats  # (relation): those of them that can be hidden: others would not be missing either
    valid: Floats  # (relation)
    test: Floats  # (relation): estimated from valid, since test must not be looked at

    @classmethod
    def from_graph(cls, graph: Graph, unlinked: bool) -> Shares:
        size = graph.num_relations
        relation = graph.train.triples[can_be_hidden(graph.train, unlinked), 1]
        facts = np.bincount(relation, minlength=size).astype(np.float64)
        valid = np.bincount(graph.valid[:, 1], minlength=size).astype(np.float64)
        # Splits that we have drawn ourselves are random, so counts would only be less exact.
        like = facts if graph.is_divided or not len(graph.valid) else valid
        train = np.bincount(graph.train.triples[:, 1], minlength=size).astype(np.float64)
        return cls(train, facts, *(like * len(split) / max(like.sum(), 1) for split in (graph.valid, graph.test)))

    def _held_out(self, splits: Sequence[str]) -> Floats:
        """(relation)"""
        return np.asarray(("valid" in splits) * self.valid + ("test" in splits) * self.test)

    def hidden(self, hidden: Ids) -> tuple[Floats, Floats]:
        """l and u of (1) if these train facts are hidden and facts of valid are no candidates.  (relation) each"""
        count = np.bincount(hidden[:, 1], minlength=len(self.facts))
        every = self.facts + self.test
        return _share(count, every), _share(count + self.test, every)

    def absent(self, splits: Sequence[str]) -> Floats:
        """m of (2): the share of facts in these splits, if those of the others are no candidates.  (relation)"""
        held_out = self._held_out(splits)
        return _share(held_out, self.facts + held_out)

    def missing(self, share: float) -> Floats:
        """m of (3), if this share of all facts is missing, and relations differ as in valid.  (relation)"""
        relative = self.absent(["valid"]) if self.valid.any() else np.ones_like(self.facts)
        missing = share / (1 - share) * self.train * relative * self.train.sum() / max(self.train @ relative, 1e-9)
        return np.minimum(_share(missing, self.facts + missing), MOST_MISSING)


def _share(part: npt.NDArray[np.float64] | npt.NDArray[np.int64], whole: Floats) -> Floats:
    """The share in each relation; one with few facts gets about that of all relations.  (relation)"""
    mean = part.sum() / max(whole.sum(), 1)
    return np.asarray((part + PRIOR_FACTS * mean) / (whole + PRIOR_FACTS))


def missing_share(graph: Graph) -> float:
    """The share of facts in valid and test if these were given, but at most DEFAULT_MISSING.

    They are facts when a person asks. Whether as many are missing from the whole is an assumption.
    """
    held_out = len(graph.valid) + len(graph.test)
    if graph.is_divided or not held_out:
        return DEFAULT_MISSING
    return min(held_out / (held_out + len(graph.train.triples)), DEFAULT_MISSING)


# ------------------------------------------------------------------------------------------------- confidence


def unseen_by(queries: Ids, networks: int) -> Bools:
    """Which networks do not see a question when they are fitted, and later judge it: about half of them.

    A missing fact is taken for a false one when networks are fitted, in every fold. A network that has seen it
    would recognise it by its features, and call it false.  (question, 2) -> (question, network)
    """
    head, relation = queries.astype(np.uint64).T
    code = (head * np.uint64(7919) + relation * np.uint64(104_729) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (code[:, None] >> (np.uint64(40) + np.arange(networks, dtype=np.uint64))) & np.uint64(1)
    unseen = np.asarray(bits, bool)
    unseen[np.arange(len(queries)), (code >> np.uint64(20)) % np.uint64(networks)] |= ~unseen.any(axis=1)
    return unseen


@dataclass(frozen=True)
class Confidence:
    """Networks that know how plausible a fact is, and the share of facts that are missing."""

    networks: Networks
    knots: Floats  # (2, knot): log odds by the networks, rising, and what they should be
    shares: Shares
    share_missing: float  # of all true facts: an assumption
    recalibration: Recalibration | None = None  # by people's decisions, if there are enough; not kept in files

    def log_odds(
        self, lists: CandidateLists, scores: Floats, index: RelationIndex, rows: Offsets | None = None
    ) -> Floats:
        """z of all candidates, or of some rows.  (row)"""
        queries = lists.queries[lists.query if rows is None else lists.query[rows]]
        columns = fact_columns(lists, scores, index, rows)
        unseen = unseen_by(queries, len(self.networks.networks))
        return corrected(self.networks.scores_by_some(columns, queries[:, 1], unseen), self.knots)

    def of_missing(self, log_odds: Floats, relation: Ids) -> Floats:
        """Probability that facts are true which the graph, with all its splits, does not have (3).  (fact)"""
        share = self.shares.missing(self.share_missing)[relation % len(self.shares.facts)]
        likely = np.asarray(np.minimum(np.exp(log_odds) * share / (1 - share), MOST_LIKELY))
        return self.recalibration(likely) if self.recalibration else likely

    def of_held_out(self, log_odds: Floats, relation: Ids, splits: Sequence[str]) -> Floats:
        """Probability that facts which train does not have are in these splits (2).  (fact)"""
        share = self.shares.absent(splits)[relation % len(self.shares.facts)]
        odds = np.exp(log_odds) * share
        return np.asarray(np.minimum(odds / (1 + odds), MOST_CERTAIN))


def corrected(log_odds: Floats, knots: Floats) -> Floats:
    """Log odds as the knots say: linear in between, shifted below the first, constant above the last."""
    if not knots.size:
        return log_odds
    at, value = knots
    below = log_odds + value[0] - at[0]
    return np.asarray(np.where(log_odds < at[0], below, np.interp(log_odds, at, value)))


def falling(confidence: Floats, lists: CandidateLists, scores: Floats) -> Floats:
    """Confidences that do not rise with the rank: neighbours that do are averaged.  (candidate)"""
    out = confidence.copy()
    order = np.lexsort((lists.positions(scores), lists.query))
    for query in range(len(lists)):
        own = order[lists.rows(query)]
        values = confidence[own]
        if np.all(values[1:] <= values[:-1]):
            continue
        blocks: list[tuple[float, int]] = []  # mean and size
        for value in values.tolist():
            size = 1
            while blocks and blocks[-1][0] < value:
                before, count = blocks.pop()
                value, size = (value * size + before * count) / (size + count), size + count
            blocks.append((value, size))
        out[own] = np.repeat([value for value, _ in blocks], [size for _, size in blocks])
    return out

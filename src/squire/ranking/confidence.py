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

(2) is used to evaluate, where the truth is what was held out, and (3) to answer. All shares are by relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from squire.core.relations import both_directions, inverse, is_inverse
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.ranking._context import RelationIndex
from squire.ranking.context import OrdinaryQuestions, describe_pairs, pair_features, relation_index
from squire.ranking.features import CONTEXT, CandidateFeatures, CandidateLists, Feature, Features
from squire.ranking.folds import can_be_hidden
from squire.ranking.networks import Network, NetworkOptions, Networks, fit_networks

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

DEFAULT_MISSING = 0.1  # share of true facts that a graph is assumed to lack, unless its splits are smaller
MOST_MISSING = 0.9
OPTIONS = NetworkOptions(width=16, relation_width=8, epochs=4, batch_size=1024, learning_rate=3e-3, networks=6)
BATCHES, SMALLEST_BATCH = 200, 32  # of an epoch, unless batches would be smaller than this
HIDDEN_PER_KNOT, MIN_KNOTS = 100, 3  # hidden facts behind each point of the correction of log odds
MOST_SHIFT = 5.0
QUESTIONS = 11_000  # with a hidden answer, and as many without
FIRST, OTHERS = 10, 2  # candidates of a question to learn from: the first, and some of the rest
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


def softmax(lists: CandidateLists, scores: Floats) -> Floats:
    """The softmax of the scores within each list.  (candidate)"""
    query = lists.query
    top = np.full(len(lists), -np.inf)
    np.maximum.at(top, query, scores)
    weight = np.exp(scores - top[query])
    return np.asarray(weight / np.bincount(query, weight, minlength=len(lists))[query])


def positions(lists: CandidateLists, scores: Floats) -> Offsets:
    """0, 1, 2 … by falling score within each list.  (candidate)"""
    best_first = np.lexsort((-scores, lists.query))
    position = np.empty(len(scores), np.int64)
    position[best_first] = np.arange(len(scores)) - lists.offsets[lists.query[best_first]]
    return position


def fact_columns(
    lists: CandidateLists, scores: Floats, index: RelationIndex, rows: Offsets | None = None
) -> Features:
    """The columns of `confidence_table` for all candidates, or for some rows.  (row, column)"""
    num_relations = len(index.holders) // 2
    rank_score, position = softmax(lists, scores), positions(lists, scores)
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
        return np.asarray(np.minimum(np.exp(log_odds) * share / (1 - share), MOST_LIKELY))

    def of_held_out(self, log_odds: Floats, relation: Ids, splits: Sequence[str]) -> Floats:
        """Probability that facts which train does not have are in these splits (2).  (fact)"""
        share = self.shares.absent(splits)[relation % len(self.shares.facts)]
        odds = np.exp(log_odds) * share
        return np.asarray(np.minimum(odds / (1 + odds), MOST_CERTAIN))


def falling(confidence: Floats, lists: CandidateLists, scores: Floats) -> Floats:
    """Confidences that do not rise with the rank: neighbours that do are averaged.  (candidate)"""
    out = confidence.copy()
    order = np.lexsort((positions(lists, scores), lists.query))
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


# ---------------------------------------------------------------------------------------------------- fitting


@dataclass(frozen=True)
class HiddenFold:
    """Candidates and features of a graph without some facts, which were hidden."""

    features: CandidateFeatures
    hidden: Ids  # (triple, 3)

    @cached_property
    def relations(self) -> RelationIndex:
        return relation_index(self.features.adjacency)


@dataclass(frozen=True)
class Examples:
    """Candidates of questions; some are hidden facts."""

    columns: Features  # (candidate, column)
    unseen: Bools  # (candidate, network): which networks do not see it
    relation: Ids  # (candidate): edge type
    is_hidden: Bools  # (candidate)
    weight: Floats  # (candidate): how many candidates of ordinary questions it stands for
    labelled: Floats  # (candidate): l of (1)
    absent: Floats  # (candidate): u of (1)

    @classmethod
    def join(cls, parts: Sequence[Examples]) -> Examples:
        names = [column.name for column in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class ConfidenceFit:
    """What the fit of a confidence rests on."""

    graph: Graph
    ranker: Networks
    shares: Shares
    seed: int
    options: NetworkOptions = OPTIONS
    threads: int | None = None

    def fit(
        self,
        folds: Sequence[HiddenFold],
        share_missing: float,
        progress: Callable[[str, int, int], None],
    ) -> Confidence:
        """Ask ordinary questions about graphs with hidden facts, and learn which candidates were hidden."""
        parts = []
        for number, fold in enumerate(folds):
            shares = self.shares.hidden(fold.hidden)
            parts.append(self._examples(fold, shares, QUESTIONS // len(folds), self.seed + number))
            progress("ordinary questions", number + 1, len(folds))
        table, num_edge_types = confidence_table(folds[0].features.table), 2 * self.graph.num_relations
        stage = partial(progress, "fitting the confidence")
        examples = Examples.join(parts)
        networks = fit_plausibility(examples, table, num_edge_types, self.seed, self.options, stage)
        log_odds = networks.scores_by_some(examples.columns, examples.relation, examples.unseen)
        return Confidence(networks, fit_knots(log_odds, examples), self.shares, share_missing)

    def _examples(
        self,
        fold: HiddenFold,
        shares: tuple[Floats, Floats],  # l and u, (relation) each
        most: int,
        seed: int,
    ) -> Examples:
        """Questions with a hidden answer and others, weighted such that they stand for all ordinary questions."""
        rng = np.random.default_rng([seed, 23])
        queries, weights = _questions(fold.features.adjacency, fold.hidden, most, seed, rng)
        valid, train, parts = self.graph.known("valid"), self.graph.train, []
        first = 0
        for part in fold.features.stream(queries, self.threads):
            lists = without_facts(part, valid)
            scores = self.ranker.scores(lists.features, lists.queries[lists.query, 1])
            kept, stands_for = _chosen(lists, scores, rng)
            head, relation = lists.queries[lists.query[kept]].T
            labelled, absent = (share[relation % self.graph.num_relations] for share in shares)
            parts.append(
                Examples(
                    fact_columns(lists, scores, fold.relations, kept),
                    unseen_by(lists.queries, self.options.networks)[lists.query[kept]],
                    relation,
                    train.contains_each(head, relation, lists.candidates[kept]),
                    stands_for * weights[first : first + len(lists)][lists.query[kept]],
                    labelled,
                    absent,
                )
            )
            first += len(lists)
        return Examples.join(parts)


def fit_plausibility(
    examples: Examples,
    table: Sequence[Feature],
    num_edge_types: int,
    seed: int,
    options: NetworkOptions,
    progress: Callable[[int, int], None],
) -> Networks:
    """Networks that map columns to z, by the likelihood (1) of what was hidden."""
    weight = torch.from_numpy((examples.weight / examples.weight.mean()).astype(np.float32))
    is_hidden = torch.from_numpy(examples.is_hidden)
    labelled, absent = (torch.from_numpy(value) for value in (examples.labelled, examples.absent))

    def loss(networks: Networks, network: Network, chosen: Offsets) -> Tensor:
        rows = torch.from_numpy(chosen)
        relation = torch.from_numpy(examples.relation[chosen].astype(np.int64))
        z = network(networks.columns(examples.columns[chosen]), relation)
        return (weight[rows] * hidden_loss(z, is_hidden[rows], labelled[rows], absent[rows])).mean()

    # An untrained network says the base rate, which is the best guess for a graph with few facts.
    means = [np.average(value, weights=examples.weight) for value in (examples.is_hidden, examples.labelled)]
    bias = float(np.log(max(means[0] / means[1], 1e-6)))
    # Small graphs need steps too.
    size = min(options.batch_size, max(len(examples.weight) // BATCHES, SMALLEST_BATCH))
    return fit_networks(
        examples.columns, len(examples.weight), loss, table, num_edge_types, seed,
        replace(options, batch_size=size), progress, bias=bias, unseen=examples.unseen,
    )  # fmt: skip


def fit_knots(log_odds: Floats, examples: Examples) -> Floats:
    """What log odds should be, in groups of similar ones with as many hidden facts each.  (2, knot)

    The log odds are by networks that have not seen the question, and still the highest of many are too high by
    chance. In each group all are shifted such that by (1) as many facts were hidden as really were.
    """
    from scipy.optimize import isotonic_regression  # slow to import, and not needed to answer

    groups = int(examples.is_hidden.sum()) // HIDDEN_PER_KNOT
    if groups < MIN_KNOTS:
        return np.zeros((2, 0))
    order = np.argsort(log_odds, kind="stable")
    group = np.empty(len(order), np.int64)
    group[order] = np.minimum(np.cumsum(examples.is_hidden[order]) // HIDDEN_PER_KNOT, groups - 1)
    found = np.bincount(group, examples.weight * examples.is_hidden, groups)
    low, high = np.full(groups, -MOST_SHIFT), np.full(groups, MOST_SHIFT)
    for _ in range(30):  # bisection
        middle = (low + high) / 2
        odds = np.exp(log_odds + middle[group])
        hidden = examples.weight * odds * examples.labelled / (odds * examples.absent + 1)
        too_few = np.bincount(group, hidden, groups) < found
        low, high = np.where(too_few, middle, low), np.where(too_few, high, middle)
    # A knot stands where the hidden facts of its group are.
    at = np.bincount(group, examples.is_hidden * log_odds, groups) / np.bincount(group, examples.is_hidden, groups)
    return np.stack([at, isotonic_regression(at + (low + high) / 2).x])


def corrected(log_odds: Floats, knots: Floats) -> Floats:
    """Log odds as the knots say: linear in between, shifted below the first, constant above the last."""
    if not knots.size:
        return log_odds
    at, value = knots
    below = log_odds + value[0] - at[0]
    return np.asarray(np.where(log_odds < at[0], below, np.interp(log_odds, at, value)))


def hidden_loss(z: Tensor, is_hidden: Tensor, labelled: Tensor, absent: Tensor) -> Tensor:
    """Minus the log likelihood of whether triples were hidden, which is (1).  (candidate) each"""
    log_l, log_u, log_rest = (
        share.clamp(min=1e-12).log().to(z.dtype) for share in (labelled, absent, absent - labelled)
    )
    log_hidden = z + log_l
    log_other = softplus(z + log_rest)
    return softplus(z + log_u) - torch.where(is_hidden, log_hidden, log_other)


def without_facts(lists: CandidateLists, facts: Adjacency) -> CandidateLists:
    """Without candidates that are facts."""
    if not facts.num_edges:
        return lists
    head, relation = lists.queries[lists.query].T
    return lists.take(np.flatnonzero(~facts.contains_each(head, relation, lists.candidates)))


def _questions(
    remaining: Adjacency, hidden: Ids, most: int, seed: int, rng: np.random.Generator
) -> tuple[Ids, Floats]:
    """Questions with a hidden answer and others, (question, 2), and how many each stands for, (question).

    All typical questions count equally. Untypical ones are drawn from many more, and together count a tenth.
    """
    ordinary = OrdinaryQuestions(remaining, seed)
    asked = np.unique(both_directions(hidden, remaining.num_relations)[:, :2], axis=0)
    asked = asked[np.isin(asked[:, 1], ordinary.edge_types)]
    others = ordinary.sample(most)
    others = others[~_contains(asked, others, remaining.num_entities)]
    share = min(1.0, most / max(len(asked), 1))
    asked = asked[np.sort(rng.choice(len(asked), int(share * len(asked)), replace=False))]
    queries = np.concatenate([asked, others])
    is_asked = np.arange(len(queries)) < len(asked)
    is_untypical = ordinary.kinds(queries) == 2
    num_untypical = max(len(np.unique(remaining.heads)) * len(ordinary.edge_types) - len(ordinary.typical), 1)
    of_typical = len(ordinary.typical) / max(np.sum(~is_asked & ~is_untypical), 1)
    of_untypical = 0.1 * len(ordinary.typical) / max(np.sum(~is_asked & is_untypical), 1)
    weight = np.where(is_untypical, of_untypical, of_typical)
    weight[is_asked] = np.where(is_untypical, 0.1 * len(ordinary.typical) / num_untypical, 1.0)[is_asked] / share
    order = np.lexsort((queries[:, 0], queries[:, 1]))
    return np.ascontiguousarray(queries[order]), weight[order]


def _contains(pairs: Ids, wanted: Ids, num_entities: int) -> npt.NDArray[np.bool_]:
    """(pair, 2), (wanted, 2) -> (wanted)"""
    codes, own = (each[:, 1].astype(np.int64) * num_entities + each[:, 0] for each in (pairs, wanted))
    return np.isin(own, codes)


def _chosen(lists: CandidateLists, scores: Floats, rng: np.random.Generator) -> tuple[Offsets, Floats]:
    """The first candidates of each list and some others, and how many each stands for.  (chosen) each"""
    position = positions(lists, scores)
    rest = np.maximum(np.diff(lists.offsets) - FIRST, 0)[lists.query]
    probability = np.where(position < FIRST, 1.0, np.minimum(OTHERS / np.maximum(rest, 1), 1.0))
    kept = np.flatnonzero(rng.random(len(position)) < probability)
    return kept, 1 / probability[kept]

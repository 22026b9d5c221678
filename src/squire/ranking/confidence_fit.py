"""Learns which candidates of ordinary questions are hidden facts: the networks behind `confidence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from squire.core.parallel import in_order, thread_count
from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.ranking.confidence import Confidence, Shares, confidence_table, fact_columns, unseen_by
from squire.ranking.context import UNTYPICAL_SHARE, OrdinaryQuestions, relation_index
from squire.ranking.features import FEATURES, CandidateLists, Feature, Features, Floats
from squire.ranking.hidden import HiddenFold
from squire.ranking.networks import Bools, Network, NetworkOptions, Networks, fit_networks

OPTIONS = NetworkOptions(width=16, relation_width=8, epochs=4, batch_size=1024, learning_rate=3e-3, networks=6)
BATCHES, SMALLEST_BATCH = 200, 32  # of an epoch, unless batches would be smaller than this
HIDDEN_PER_KNOT, MIN_KNOTS = 100, 3  # hidden facts behind each point of the correction of log odds
MOST_SHIFT = 5.0
QUESTIONS = 11_000  # with a hidden answer, and as many without
FIRST, OTHERS = 10, 2  # candidates of a question to learn from: the first, and some of the rest


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
        questions: int = QUESTIONS,
    ) -> Confidence:
        """Ask ordinary questions about graphs with hidden facts, and learn which candidates were hidden.

        questions: with a hidden answer, and as many without.
        """
        threads, most = thread_count(self.threads), max(questions // len(folds), 1)
        at_once = threads if len(folds) >= 2 * threads else 1  # folds, or else blocks of a fold, side by side

        def of_fold(number: int) -> Examples:
            fold = folds[number]
            shares = self.shares.hidden(fold.hidden)
            return self._examples(fold, shares, most, self.seed + number, threads // at_once)

        parts = []
        for part in in_order(of_fold, len(folds), at_once):
            parts.append(part)
            progress("ordinary questions", len(parts), len(folds))
        table, num_edge_types = confidence_table(FEATURES), 2 * self.graph.num_relations
        stage = partial(progress, "fitting the confidence")
        examples = Examples.join(parts)
        networks = fit_plausibility(examples, table, num_edge_types, self.seed, self.options, stage, self.threads)
        log_odds = networks.scores_by_some(examples.columns, examples.relation, examples.unseen)
        return Confidence(networks, fit_knots(log_odds, examples), self.shares, share_missing)

    def _examples(
        self,
        fold: HiddenFold,
        shares: tuple[Floats, Floats],  # l and u, (relation) each
        most: int,
        seed: int,
        threads: int,
    ) -> Examples:
        """Questions with a hidden answer and others, weighted such that they stand for all ordinary questions."""
        rng = np.random.default_rng([seed, 23])
        features = fold.features()
        relations = relation_index(features.adjacency)
        queries, weights = _questions(features.adjacency, fold.hidden, most, seed, rng)
        valid, train, parts = self.graph.known("valid"), self.graph.train, []
        first = 0
        for part in features.stream(queries, threads):
            lists = part.without(valid)
            scores = self.ranker.scores(lists.features, lists.queries[lists.query, 1])
            kept, stands_for = _chosen(lists, scores, rng)
            head, relation = lists.queries[lists.query[kept]].T
            labelled, absent = (share[relation % self.graph.num_relations] for share in shares)
            parts.append(
                Examples(
                    fact_columns(lists, scores, relations, kept),
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
    threads: int | None = None,
) -> Networks:
    """Networks that map columns to z, by the likelihood (1) of what was hidden."""
    weight = torch.from_numpy((examples.weight / examples.weight.mean()).astype(np.float32))
    relation, is_hidden = (torch.from_numpy(column) for column in (examples.relation, examples.is_hidden))
    labelled, absent = (torch.from_numpy(share) for share in (examples.labelled, examples.absent))
    log_shares = log_shares_of(labelled, absent).float()

    def loss(columns: Tensor, network: Network, chosen: Offsets) -> Tensor:
        rows = torch.from_numpy(chosen)
        z = network(columns[rows].float(), relation[rows].long())
        return (weight[rows] * hidden_loss(z, is_hidden[rows], log_shares[rows])).mean()

    # An untrained network says the base rate, which is the best guess for a graph with few facts.
    means = [np.average(value, weights=examples.weight) for value in (examples.is_hidden, examples.labelled)]
    bias = float(np.log(max(means[0] / means[1], 1e-6)))
    # Small graphs need steps too.
    size = min(options.batch_size, max(len(examples.weight) // BATCHES, SMALLEST_BATCH))
    return fit_networks(
        examples.columns, len(examples.weight), loss, table, num_edge_types, seed,
        replace(options, batch_size=size), progress, bias=bias, unseen=examples.unseen, threads=threads,
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


def hidden_loss(z: Tensor, is_hidden: Tensor, log_shares: Tensor) -> Tensor:
    """Minus the log likelihood of whether triples were hidden, which is (1).  (candidate), …, (candidate, 3)"""
    log_l, log_u, log_rest = log_shares.unbind(1)
    return softplus(z + log_u) - torch.where(is_hidden, z + log_l, softplus(z + log_rest))


def log_shares_of(labelled: Tensor, absent: Tensor) -> Tensor:
    """The logarithms of l, u and u − l.  (candidate), (candidate) -> (candidate, 3)"""
    return torch.stack([labelled, absent, absent - labelled], dim=1).clamp(min=1e-12).log()


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
    others = others[~np.isin(ordinary.codes(others), ordinary.codes(asked))]
    share = min(1.0, most / max(len(asked), 1))
    asked = asked[np.sort(rng.choice(len(asked), int(share * len(asked)), replace=False))]
    queries = np.concatenate([asked, others])
    is_asked = np.arange(len(queries)) < len(asked)
    is_untypical = ordinary.kinds(queries) == 2
    num_untypical = max(len(np.unique(remaining.heads)) * len(ordinary.edge_types) - len(ordinary.typical), 1)
    typical, untypical = len(ordinary.typical), UNTYPICAL_SHARE * len(ordinary.typical)
    of_typical = typical / max(np.sum(~is_asked & ~is_untypical), 1)
    of_untypical = untypical / max(np.sum(~is_asked & is_untypical), 1)
    weight = np.where(is_untypical, of_untypical, of_typical)
    weight[is_asked] = np.where(is_untypical, untypical / num_untypical, 1.0)[is_asked] / share
    order = np.argsort(ordinary.codes(queries))  # by edge type, which is fastest
    return np.ascontiguousarray(queries[order]), weight[order]


def _chosen(lists: CandidateLists, scores: Floats, rng: np.random.Generator) -> tuple[Offsets, Floats]:
    """The first candidates of each list and some others, and how many each stands for.  (chosen) each"""
    position = lists.positions(scores)
    rest = np.maximum(np.diff(lists.offsets) - FIRST, 0)[lists.query]
    probability = np.where(position < FIRST, 1.0, np.minimum(OTHERS / np.maximum(rest, 1), 1.0))
    kept = np.flatnonzero(rng.random(len(position)) < probability)
    return kept, 1 / probability[kept]

"""The fused ranker: fit it to a graph, rank candidates by all evidence, save and load it.

Folds of train are hidden one after the other, also from the support of the rules. Rules that
have seen the hidden facts would look better than they are: with rules of all of train, the hidden facts of NELL23K
had an MRR of .375 instead of .268, and the ranker relied on rules too much (valid .302 instead of .311). The same
folds teach confidence (`confidence`). Valid decides whether linked pairs are excluded, and how rank scores are
calibrated. Test is never used.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from squire.core.done_tasks import DoneTasks
from squire.core.parallel import agreed, one_ahead, thread_count
from squire.core.ragged import offsets_from
from squire.core.relations import both_directions, is_inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, AnyIds, Ids, Offsets
from squire.graph.folds import FOLDS, held_back, hidden_parts, pairs_look_unlinked
from squire.graph.graph import Graph
from squire.ranking._context import RelationIndex
from squire.ranking._features import Profile
from squire.ranking.attribution import contributions
from squire.ranking.calibration import Calibrations, Ints
from squire.ranking.confidence import MOST_MISSING, Confidence, Shares, falling, missing_share
from squire.ranking.confidence_fit import OPTIONS as CONFIDENCE_OPTIONS
from squire.ranking.confidence_fit import QUESTIONS, ConfidenceFit
from squire.ranking.context import relation_index
from squire.ranking.edge_features import EdgeScorer
from squire.ranking.features import FEATURES, CandidateFeatures, CandidateLists, Features
from squire.ranking.hidden import (
    HiddenFold,
    HiddenLists,
    Stage,
    hidden_lists,
    hidden_queries,
    joined,
    lists_with_answer,
    sample,
)
from squire.ranking.index import name_words, no_words
from squire.ranking.networks import NetworkOptions, Networks, fit_ranker
from squire.ranking.pooling import EdgePool, fit_pool
from squire.ranking.walks import fit_walks
from squire.rules.hiding import RuleSupport
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import Rules
from squire.search.trained import LoadedRun

logger = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]

# What the ranker learns from, in both directions. Three times the questions gain .004 on NELL995 and FB15K237
# (docs/LOG.md). Graphs of millions of facts have fewer again: each question takes longer there.
TRAINING_QUERIES, QUERIES_OF_LARGE, LARGE = 66_000, 22_000, 500_000  # facts
WRONG_CANDIDATES, TRAINING_CANDIDATES = 100, 3_300_000  # of a question, and of all
# The width of the ranker from so many lists on. With fewer it is surer of lists that it has seen than of others,
# which raised the calibration error of confidence on world from .007 to .012.
WIDE, WIDE_LISTS = 64, 30_000
CALIBRATION_QUERIES = 10_000
# With a time limit: mining's share of it, the questions that tell what one costs, what fitting takes for each (CPU
# seconds, on NELL23K), and what is asked however little time there is: a share of all questions, and a number of
# them for the ranker.
MINING_SHARE, PILOT_QUERIES, FITTING_SECONDS, LEAST_EFFORT, LEAST_QUERIES = 0.5, 256, 0.0015, 0.05, 200
POOL_QUERIES = 4000  # to weigh edge embeddings by
KINDS = 4  # of answers to calibrate: tail or head, first of its list or not


@dataclass(frozen=True)
class FusionOptions:
    """How to fit a fusion."""

    seed: int = 0  # of the folds and the ranker
    folds: int = FOLDS
    use_names: bool = True  # are words that names share evidence?
    mining: MiningOptions = field(default_factory=MiningOptions)
    ranker: NetworkOptions | None = None  # by default as wide as the number of questions allows
    missing: float | None = None  # share of true facts that the graph lacks; by default as in its splits
    minutes: float | None = None  # time limit: fewer rules and questions then
    confidence: NetworkOptions = CONFIDENCE_OPTIONS
    # Are linked pairs excluded, from the hidden facts and from the candidates? None: if no pair of valid is.
    # That is a trait of how FB15K237 was made, and methods that learn from train alone cannot know it.
    unlinked: bool | None = None

    def __post_init__(self) -> None:
        if self.missing is not None and not 0 < self.missing <= MOST_MISSING:
            raise SettingError(f"missing={self.missing}: expected a share above 0, at most {MOST_MISSING:g}.")
        if self.minutes is not None and not self.minutes > 0:
            raise SettingError(f"minutes={self.minutes}: expected a positive number of minutes.")


@dataclass(frozen=True)
class FusionInfo:
    """How a fusion was fitted."""

    seed: int
    folds: int
    folds_used: int  # until there were enough queries
    queries: int  # about hidden facts
    lists: int  # queries with the right answer among the candidates, from which the ranker learned
    unlinked: bool  # are linked pairs excluded, from the hidden facts and from the candidates?
    use_names: bool
    mining: dict[str, Any]
    missing: float  # share of true facts that the graph is assumed to lack
    complete: bool = True  # False if a time limit left out rules or questions


@dataclass(frozen=True)
class FusedRanking:
    """The candidates of some queries with their scores."""

    fusion: Fusion
    lists: CandidateLists
    scores: Floats  # (candidate): logits, comparable within a query
    symbolic: Floats  # (candidate): the same without the model
    edge_features: Features | None = None  # (candidate, feature): of the model, if it has a say
    held_out: Sequence[str] = ()  # splits, if confidence is that of being in them, rather than of being true
    judged: tuple[Floats, Floats] | None = None  # (candidate): rank score and confidence, if known already

    @cached_property
    def rank_score(self) -> Floats:
        """Calibrated probability: which answer is right, if one is missing?  (candidate)"""
        if self.judged:
            return self.judged[0]
        kind = _kinds(self.lists, self.scores, self.fusion.features.adjacency.num_relations)
        score = self.fusion.calibration.confidence(self.lists.softmax(self.scores), kind)
        return _at_most_first(score, self.scores, self.lists)

    @cached_property
    def log_odds(self) -> Floats:
        """How plausible each fact is, before looking whether the graph has it.  (candidate)"""
        return self.fusion.confidence.log_odds(self.lists, self.symbolic, self.fusion.relations)

    @cached_property
    def confidence(self) -> Floats:
        """Calibrated probability: is this fact true?  (candidate)"""
        if self.judged:
            return self.judged[1]
        relation, own = self.lists.queries[self.lists.query, 1], self.fusion.confidence
        if self.held_out:
            return falling(own.of_held_out(self.log_odds, relation, self.held_out), self.lists, self.scores)
        return falling(own.of_missing(self.log_odds, relation), self.lists, self.scores)

    def take(self, rows: Offsets) -> FusedRanking:
        """Only the candidates at these sorted positions."""
        model = None if self.edge_features is None else self.edge_features[rows]
        judged = None if self.judged is None else (self.judged[0][rows], self.judged[1][rows])
        scores = self.scores[rows], self.symbolic[rows]
        return FusedRanking(self.fusion, self.lists.take(rows), *scores, model, self.held_out, judged)

    def contributions(self) -> dict[str, Floats]:
        """What each source of evidence adds to the score of each candidate.  source -> (candidate)"""
        fusion, relations = self.fusion, self.lists.queries[self.lists.query, 1]
        table, features, columns = FEATURES, self.lists.features, len(FEATURES)
        if self.edge_features is not None and fusion.pool:
            table = (*FEATURES, *fusion.pool.table)
            features = np.concatenate([features, self.edge_features], axis=1)

        def score(rows: Features) -> Floats:
            tiled = np.tile(relations, len(rows) // max(len(relations), 1))
            own = fusion.ranker.scores(np.ascontiguousarray(rows[:, :columns]), tiled)
            return fusion.pool.pooled(own, rows[:, columns:]) if fusion.pool else own

        return contributions(score, features, table)


@dataclass(frozen=True)
class Fusion:
    """A ranker over the features of a graph's candidates, with calibrated confidences."""

    features: CandidateFeatures
    ranker: Networks
    calibration: Calibrations  # of rank scores
    confidence: Confidence
    info: FusionInfo
    pool: EdgePool | None = None  # the model, if it has a say

    @cached_property
    def relations(self) -> RelationIndex:
        """What is usual for the entities of the graph."""
        return relation_index(self.features.adjacency)

    def rank(
        self,
        queries: Ids,
        threads: int | None = None,
        *,
        without: Adjacency | None = None,  # facts that are no candidates
        wanted: Ids | None = None,  # (query): candidates in any case
        held_out: Sequence[str] = (),  # splits, if confidence is that of being in them
    ) -> Iterator[FusedRanking]:
        """The candidates of all queries, in blocks and in order.  queries: (query, 2)"""
        for found in self.features.stream(np.ascontiguousarray(queries), threads, wanted):
            lists = found.without(without) if without else found
            symbolic = self.ranker.scores(lists.features, lists.queries[lists.query, 1])
            if self.pool is None:
                yield FusedRanking(self, lists, symbolic, symbolic, held_out=held_out)
            else:
                model = self.pool.features(lists)
                yield FusedRanking(self, lists, self.pool.pooled(symbolic, model), symbolic, model, held_out)

    def rank_with(self, query: Ids, entities: AnyIds) -> FusedRanking:
        """The candidates of one query, among which are all these entities.  (2), (entity)"""
        (found,) = self.rank(query[None], threads=1)
        missing = np.setdiff1d(entities, found.lists.candidates).astype(np.int32)
        if not len(missing):
            return found
        parts, kept, done = [found], [np.arange(len(found.scores))], 0
        for judged in self.rank(np.repeat(query[None], len(missing), axis=0), threads=1, wanted=missing):
            own, done = missing[done : done + len(judged.lists)], done + len(judged.lists)
            parts.append(judged)
            kept.append(np.flatnonzero(judged.lists.candidates == own[judged.lists.query]))
        lists = CandidateLists.join([part.lists.take(rows) for part, rows in zip(parts, kept, strict=True)])
        order = np.argsort(lists.candidates)

        def column(name: str) -> Any:
            columns = [getattr(part, name)[rows] for part, rows in zip(parts, kept, strict=True)]
            return np.concatenate(columns)[order]

        one = CandidateLists(
            query[None], offsets_from([len(order)]), lists.candidates[order], lists.features[order],
            np.array([any(map(lists.is_sampled, range(len(lists))))]),
        )  # fmt: skip
        model = None if self.pool is None else column("edge_features")
        # Those of the lists that they come from: further candidates do not change how likely a fact is.
        shares = column("rank_score"), column("confidence")
        return FusedRanking(self, one, column("scores"), column("symbolic"), model, judged=shares)

    def log_odds(self, triples: Ids, threads: int | None = None) -> Floats:
        """How plausible facts are that the graph does not have: the mean of both directions.  (triple, 3)"""
        total = np.zeros(len(triples))
        for direction in np.split(both_directions(triples, self.features.adjacency.num_relations), 2):
            order = np.lexsort((direction[:, 0], direction[:, 1]))  # fastest by relation
            queries, wanted = direction[order, :2], np.ascontiguousarray(direction[order, 2])
            done = 0
            for judged in replace(self, pool=None).rank(queries, threads, wanted=wanted):
                lists, end = judged.lists, done + len(judged.lists)
                rows = np.flatnonzero(lists.candidates == wanted[done:end][lists.query])
                total[order[done:end]] += self.confidence.log_odds(lists, judged.scores, self.relations, rows)
                done = end
        return total / 2

    def on(self, run: LoadedRun) -> Fusion:
        """The same fusion for the facts of a run, some of which may have gone or come since it was fitted.

        Facts that are gone are no support of rules, and the model has no say in questions that they answer.
        """
        old, pool = self.features, self.pool and self.pool.on(run)
        is_same = run.graph.num_entities == old.adjacency.num_entities
        words = old.words if is_same else words_of(run.graph, self.info.use_names)
        features = CandidateFeatures(run.facts, old.rules, self.info.unlinked, words, run.unsupported, old.walks)
        return replace(self, features=features, pool=pool)


# ------------------------------------------------------------------------------------------------------ fitting


def fit_fusion(
    graph: Graph,
    options: FusionOptions | None = None,
    progress: Stage | None = None,
    done: DoneTasks | None = None,
    scorer: EdgeScorer | None = None,
    scorer_seed: int = 0,
) -> Fusion:
    """Fit ranker and calibration; without a time limit the result depends on train, valid and the options only.

    done: what was mined before, and is not mined again. scorer: edge embeddings to weigh, and the seed by which
    facts were held back from them.
    """
    options, stage = options or FusionOptions(), progress or (lambda name, done, total: None)
    mining, seed, began = options.mining, options.seed, time.monotonic()
    if options.minutes is not None:
        mining = replace(mining, minutes=MINING_SHARE * options.minutes)
    unlinked = pairs_look_unlinked(graph) if options.unlinked is None else options.unlinked
    words = words_of(graph, options.use_names)

    rules, has_all = _mine(graph.train, mining, stage, done)
    walks = fit_walks(graph.train, seed, mining.threads)
    features = CandidateFeatures(graph.train, rules, unlinked, words, walks=walks)
    left = math.inf if options.minutes is None else began + 60 * options.minutes - time.monotonic()
    facts = len(graph.train.triples)
    most = min(TRAINING_QUERIES if facts < LARGE else QUERIES_OF_LARGE, 2 * facts)
    effort = _effort(features, left, most, mining.threads, seed)
    support = RuleSupport(features.rules, graph.train, mining)
    asked = max(int(effort * most), min(LEAST_QUERIES, most))
    found = _hidden_lists(graph, features, support, options, asked, stage)
    folds, counts = found.folds, (len(found.folds), found.queries, len(found.lists))
    width = WIDE if len(found.lists) >= WIDE_LISTS else NetworkOptions.width
    ranker = fit_ranker(
        found.lists, found.right, found.stands_for, features.table, 2 * graph.num_relations, seed,
        options.ranker or NetworkOptions(width), lambda done, total: stage("fitting the ranker", done, total),
        mining.threads,
    )  # fmt: skip
    del found  # most of the memory
    missing = missing_share(graph) if options.missing is None else options.missing
    fit = ConfidenceFit(
        graph, ranker, Shares.from_graph(graph, unlinked), seed, options.confidence, mining.threads
    )
    confidence = fit.fit(folds, missing, stage, int(effort * QUESTIONS))
    mined_with = {key: value for key, value in asdict(mining).items() if key != "threads"}  # no effect on rules
    info = FusionInfo(
        seed, options.folds, *counts, unlinked, options.use_names, mined_with, missing, has_all and effort == 1
    )
    fusion = Fusion(features, ranker, Calibrations(()), confidence, info)
    if scorer:
        fusion = _with_edges(fusion, graph, scorer, scorer_seed, support, stage)
    return _calibrated(fusion, graph, stage, int(effort * CALIBRATION_QUERIES))


def _hidden_lists(
    graph: Graph,
    features: CandidateFeatures,
    support: RuleSupport,
    options: FusionOptions,
    most: int,
    stage: Stage,
) -> HiddenLists:
    """What the ranker learns from: at most so many questions about hidden facts."""
    threads, seed = options.mining.threads, options.seed
    wrong = min(WRONG_CANDIDATES, TRAINING_CANDIDATES // max(most, 1))

    def made() -> Iterator[tuple[HiddenFold, CandidateFeatures]]:
        for hidden in hidden_parts(graph.train, options.folds, seed, features.drop_linked):
            fold = HiddenFold.of(features, support, hidden, stage)
            yield fold, fold.features()

    needs_several = 2 * len(graph.train.triples) < most * options.folds
    folds = one_ahead(made()) if needs_several and thread_count(threads) > 1 else made()
    return hidden_lists(graph, folds, seed, threads, stage, most, wrong)


def _effort(features: CandidateFeatures, seconds: float, most: int, threads: int | None, seed: int) -> float:
    """The share of all questions that can be asked in this time, by the cost of a few.

    most: about hidden facts, for the ranker.
    """
    facts = features.adjacency.triples
    if math.isinf(seconds) or not len(facts):
        return 1.0
    asked = sample(facts, PILOT_QUERIES, seed)[:, :2]
    features.describe(asked[:1])  # compiles
    began = time.monotonic()
    for _ in features.stream(np.ascontiguousarray(asked), threads):
        pass
    each = (time.monotonic() - began) / len(asked) + FITTING_SECONDS / thread_count(threads)
    every = most + 2 * QUESTIONS + CALIBRATION_QUERIES
    effort = agreed(float(np.clip(seconds / (each * every), LEAST_EFFORT, 1.0)))
    if effort < 1:
        logger.info("the time is enough for %.0f %% of the questions that are asked otherwise", 100 * effort)
    return effort


def add_edges(
    fusion: Fusion, graph: Graph, scorer: EdgeScorer, seed: int, progress: Stage | None = None
) -> Fusion:
    """Give edge embeddings a say, as far as facts that were held back from them show that they deserve one.

    If too few were, the result is the fusion as it is.
    """
    stage = progress or (lambda name, done, total: None)
    support = RuleSupport(fusion.features.rules, graph.train, MiningOptions(**fusion.info.mining))
    weighed = _with_edges(fusion, graph, scorer, seed, support, stage)
    return fusion if weighed is fusion else _calibrated(weighed, graph, stage)


def _with_edges(
    fusion: Fusion, graph: Graph, scorer: EdgeScorer, seed: int, support: RuleSupport, stage: Stage
) -> Fusion:
    """The same, without calibration."""
    fold = HiddenFold.of(fusion.features, support, held_back(graph, seed)[1], stage)
    queries = hidden_queries(fold, POOL_QUERIES // 2, seed)
    parts, symbolic, edges = [], [], []
    for lists in lists_with_answer(fold.features(), queries, graph.train, None, stage):
        parts.append(lists.without_features())
        symbolic.append(fusion.ranker.scores(lists.features, lists.queries[lists.query, 1]))
        edges.append(scorer.scores(lists))
    try:
        every = joined(parts, graph)
    except SettingError as error:  # too few facts were held back
        logger.warning("%s The fusion does not use the edge embeddings.", error)
        return fusion
    pool = fit_pool(scorer, every, every.facts(graph.train), np.concatenate(symbolic), np.concatenate(edges))
    return replace(fusion, pool=pool)


def words_of(graph: Graph, use_names: bool) -> Profile:
    """The words of the entities' names, or none."""
    if not use_names:
        return no_words(graph.num_entities)
    return Profile._make(graph.kept.get("words", lambda: name_words(graph.labels.entities)))


def _mine(
    adjacency: Adjacency, options: MiningOptions, stage: Stage, done: DoneTasks | None
) -> tuple[Rules, bool]:
    """The rules, and whether they are all."""
    mined = mine_rules(adjacency, options, stage, done)
    if mined.interrupted:
        raise KeyboardInterrupt
    if not mined.complete:
        logger.info("not all rules were found in time")
    if done is not None and options.minutes is not None:
        done.save()  # the next call goes on from here
    return mined.rules, mined.complete


def _calibrated(fusion: Fusion, graph: Graph, stage: Stage, most: int = CALIBRATION_QUERIES) -> Fusion:
    """The fusion with rank scores that are calibrated on the distinct queries of valid."""
    queries = np.unique(both_directions(graph.valid, graph.num_relations)[:, :2], axis=0)
    queries = sample(queries, most, fusion.info.seed)
    valid = graph.known("valid")
    share_of_test = min(len(graph.test) / max(len(graph.valid), 1), 1)
    # Rank score, whether in valid, unseen true answers, kind.
    parts = [(np.empty(0), np.empty(0, bool), np.empty(0), np.empty(0, np.int64))]
    done = 0
    for judged in fusion.rank(queries):
        lists, scores = judged.lists, judged.scores
        head, relation = lists.queries[lists.query].T
        is_true = valid.contains_each(head, relation, lists.candidates)
        number = np.array([len(valid.tails_of(*query)) for query in lists.queries.tolist()])
        unseen = share_of_test * is_true * (1 - 2.0 ** (1 - number))[lists.query]
        parts.append((lists.softmax(scores), is_true, unseen, _kinds(lists, scores, graph.num_relations)))
        done += len(lists)
        stage("calibrating", done, len(queries))
    score, truth, unseen, kind = (np.concatenate(column) for column in zip(*parts, strict=True))
    return replace(fusion, calibration=Calibrations.fit(score, truth, unseen, kind, KINDS))


def _kinds(lists: CandidateLists, scores: Floats, num_relations: int) -> Ints:
    """Which of the KINDS each candidate is.  (candidate)"""
    is_head = is_inverse(lists.queries[lists.query, 1], num_relations)
    return np.asarray(2 * is_head + (lists.positions(scores) > 0), np.int64)


def _at_most_first(confidence: Floats, scores: Floats, lists: CandidateLists) -> Floats:
    """Limit rank scores, which come from different maps, to that of the first answer of the list.  (candidate)"""
    first = confidence[lists.positions(scores) == 0]
    sizes = np.diff(lists.offsets)
    return np.asarray(np.minimum(confidence, np.repeat(first, sizes[sizes > 0])))

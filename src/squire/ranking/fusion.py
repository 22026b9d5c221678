"""Fit a fusion to a graph, and rank answers by it.

Parts of train are hidden one after the other; rules are mined, and models trained, on what remains. Rules that
have seen the hidden facts would look better than they are: with those of all of train, NELL23K's hidden facts had
an MRR of .375 instead of .268, and the ranker trusted rules too much (valid .302 instead of .311). Valid decides
whether linked pairs are left out, and how scores become confidences; test is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from squire.core.relations import both_directions, is_inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.ranking._features import Profile
from squire.ranking.attribution import contributions
from squire.ranking.calibration import Calibrations, Ints
from squire.ranking.features import CandidateFeatures, CandidateLists, MakeScorers, no_scorers
from squire.ranking.folds import FOLDS, hide, pairs_look_unlinked
from squire.ranking.ranker import Ranker, RankerOptions, fit_ranker
from squire.ranking.words import no_words, words_of
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import Rules

Floats = npt.NDArray[np.float64]
Stage = Callable[[str, int, int], None]  # what, done, of how many

ENOUGH = 22_000  # questions to fit on, of both directions: all that NELL23K has
CALIBRATION_QUERIES = 10_000
KINDS = 4  # of answers: tail or head, the first of its list or another


@dataclass(frozen=True)
class About:
    """How a fusion was fitted."""

    seed: int
    folds: int  # into which train was divided
    folds_asked: int  # until there were enough questions
    questions: int  # asked of hidden facts
    lists: int  # of these, with the answer among the candidates: what the ranker learned from
    unlinked: bool  # only pairs without an edge are asked about and proposed
    names: bool  # are words that names share evidence?
    mining: dict[str, object]


@dataclass(frozen=True)
class FusedRanking:
    """Candidates of some queries with their scores."""

    listed: CandidateLists
    scores: Floats  # (candidate): logits, comparable within a query
    chance: Floats  # (candidate): softmax of the scores over a query's candidates
    confidence: Floats  # (candidate): probability of being true, see `calibrate`


@dataclass(frozen=True)
class Fusion:
    """CandidateFeatures of a graph, weighed by a ranker."""

    evidence: CandidateFeatures
    ranker: Ranker
    calibration: Calibrations
    about: About

    def rank(self, queries: Ids, threads: int | None = None) -> Iterator[FusedRanking]:
        """Candidates of all queries, a block of queries at a time and in order.  queries: (query, 2)"""
        for listed in self.evidence.stream(np.ascontiguousarray(queries), threads):
            yield self.judged(listed, _scores(self.ranker, listed))

    def judged(self, listed: CandidateLists, scores: Floats) -> FusedRanking:
        """What the scores of candidates mean, given that these are all there are.  scores: (candidate)"""
        chance = _chances(listed, scores)
        kind = _kinds(listed, scores, self.evidence.adjacency.num_relations)
        confidence = self.calibration.confidence(chance, kind)
        return FusedRanking(listed, scores, chance, _falling(confidence, scores, listed))

    def sources(self, listed: CandidateLists) -> dict[str, Floats]:
        """What each source of evidence adds to the score of each candidate.  source -> (candidate)"""
        relations = listed.queries[listed.query, 1]
        return contributions(lambda x: self.ranker.scores(x, relations), listed.features, self.evidence.table)


def fit_fusion(
    graph: Graph,
    mining: MiningOptions | None = None,
    seed: int = 0,
    folds: int = FOLDS,
    make_scorers: MakeScorers = no_scorers,
    options: RankerOptions | None = None,
    progress: Stage | None = None,
    names: bool = True,
) -> Fusion:
    """Fit ranker and calibration; the same for the same graph and seed, whatever is in its test split."""
    mining, stage = mining or MiningOptions(), progress or (lambda what, done, total: None)
    unlinked = pairs_look_unlinked(graph)
    words = words_for(graph, names)

    def evidence_of(adjacency: Adjacency) -> CandidateFeatures:
        return CandidateFeatures(
            adjacency, _mine(adjacency, mining, stage), unlinked, make_scorers(adjacency), words
        )

    lessons = _lessons(graph, hide(graph.train, folds, seed, unlinked), evidence_of, seed, mining.threads, stage)
    evidence = evidence_of(graph.train)
    ranker = fit_ranker(
        lessons.lists, lessons.right, evidence.table, 2 * graph.num_relations, seed, options,
        lambda done, total: stage("fitting the ranker", done, total),
    )  # fmt: skip
    facts = {key: value for key, value in asdict(mining).items() if key != "threads"}  # which changes nothing
    about = About(seed, folds, lessons.folds, lessons.questions, len(lessons.lists), unlinked, names, facts)
    answers = held_out_answers(evidence, ranker, graph, seed, mining.threads, stage)
    return Fusion(evidence, ranker, Calibrations.fit(*answers, KINDS), about)


def words_for(graph: Graph, names: bool) -> Profile:
    """The words of the entities' names, if they are to be evidence."""
    return words_of(graph.labels.entities) if names else no_words(graph.num_entities)


def _mine(adjacency: Adjacency, options: MiningOptions, stage: Stage) -> Rules:
    mined = mine_rules(adjacency, options, stage)
    if not mined.complete:  # half the rules would weigh otherwise than those of the other folds
        raise KeyboardInterrupt
    return mined.rules


def _some(rows: Ids, most: int, seed: int) -> Ids:
    """At most so many of the rows, in their order."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))]


@dataclass(frozen=True)
class _Lessons:
    """What a ranker learns from: lists of candidates with a right one."""

    lists: CandidateLists
    right: Offsets  # (list): its position among all candidates
    questions: int  # asked; those whose answer is no candidate teach nothing
    folds: int


def _lessons(
    graph: Graph,
    parts: Iterable[tuple[Adjacency, Ids]],
    evidence_of: Callable[[Adjacency], CandidateFeatures],
    seed: int,
    threads: int | None,
    stage: Stage,
) -> _Lessons:
    """Ask about what is hidden, one part after the other until there are enough questions."""
    lists: list[CandidateLists] = []
    questions, folds = 0, 0
    for remaining, hidden in parts:
        if questions >= ENOUGH:
            break
        asked = both_directions(_some(hidden, (ENOUGH - questions) // 2, seed), graph.num_relations)
        lists += _taught(evidence_of(remaining), asked, graph.train, threads, stage)
        questions, folds = questions + len(asked), folds + 1
    if not any(len(some) for some in lists):
        raise SettingError(
            f"{graph.name}: too small for a fusion: no train fact can be hidden and found again. To do: use the "
            "rules, 'squire mine'."
        )
    joined = CandidateLists.join(lists)
    asked_of = joined.queries[joined.query]
    right = np.flatnonzero(graph.train.contains_each(asked_of[:, 0], asked_of[:, 1], joined.candidates))
    return _Lessons(joined, right, questions, folds)


def _taught(
    evidence: CandidateFeatures, asked: Ids, train: Adjacency, threads: int | None, stage: Stage
) -> Iterator[CandidateLists]:
    """Lists of the questions whose answer is a candidate; other answers that are known are left out of them."""
    done = 0
    for listed in evidence.stream(np.ascontiguousarray(asked[:, :2]), threads):
        question = asked[done : done + len(listed)][listed.query]  # (candidate, 3)
        right = listed.candidates == question[:, 2]
        is_known = train.contains_each(question[:, 0], question[:, 1], listed.candidates)
        found = np.bincount(listed.query[right], minlength=len(listed)) > 0
        kept = np.flatnonzero((right | ~is_known) & found[listed.query])
        yield listed.take(kept).only(np.flatnonzero(found))
        done += len(listed)
        stage("evidence for hidden facts", done, len(asked))


def held_out_answers(
    evidence: CandidateFeatures, ranker: Ranker, graph: Graph, seed: int, threads: int | None, stage: Stage
) -> tuple[Floats, npt.NDArray[np.bool_], Floats, Ints]:
    """Of candidates for questions of valid, each question once: chance, whether valid has it, how many others that
    look false it stands for (see `calibrate`), kind.
    """
    both = both_directions(graph.valid, graph.num_relations)
    questions = _some(np.unique(both[:, :2], axis=0), CALIBRATION_QUERIES, seed)
    valid = graph.known("valid")
    chances, truths, elsewhere, kinds = [np.empty(0)], [np.empty(0, bool)], [np.empty(0)], [np.empty(0, np.int64)]
    done = 0
    for listed in evidence.stream(np.ascontiguousarray(questions), threads):
        asked = listed.queries[listed.query]
        scores = _scores(ranker, listed)
        chances.append(_chances(listed, scores))
        kinds.append(_kinds(listed, scores, graph.num_relations))
        truths.append(valid.contains_each(asked[:, 0], asked[:, 1], listed.candidates))
        number = np.array([len(valid.tails_of(*query)) for query in listed.queries.tolist()])
        elsewhere.append(truths[-1] * (1 - 2.0 ** (1 - number))[listed.query])
        done += len(listed)
        stage("calibrating", done, len(questions))
    return np.concatenate(chances), np.concatenate(truths), np.concatenate(elsewhere), np.concatenate(kinds)


def _scores(ranker: Ranker, listed: CandidateLists) -> Floats:
    """(candidate)"""
    return ranker.scores(listed.features, listed.queries[listed.query, 1])


def _chances(listed: CandidateLists, scores: Floats) -> Floats:
    """The softmax of the scores within each list.  (candidate)"""
    query = listed.query
    top = np.full(len(listed), -np.inf)
    np.maximum.at(top, query, scores)
    weight = np.exp(scores - top[query])
    return np.asarray(weight / np.bincount(query, weight, minlength=len(listed))[query])


def _kinds(listed: CandidateLists, scores: Floats, num_relations: int) -> Ints:
    """Which of the KINDS a candidate is.  (candidate)"""
    is_head = is_inverse(listed.queries[listed.query, 1], num_relations)
    return np.asarray(2 * is_head + (_order(listed, scores) > 0), np.int64)


def _order(listed: CandidateLists, scores: Floats) -> Offsets:
    """0, 1, 2 … by falling score within each list.  (candidate)"""
    best_first = np.lexsort((-scores, listed.query))
    place = np.empty(len(scores), np.int64)
    place[best_first] = np.arange(len(scores)) - listed.offsets[listed.query[best_first]]
    return place


def _falling(confidence: Floats, scores: Floats, listed: CandidateLists) -> Floats:
    """No answer is surer than the first of its list, whatever map it comes from.  (candidate)"""
    first = confidence[_order(listed, scores) == 0]
    sizes = np.diff(listed.offsets)
    return np.asarray(np.minimum(confidence, np.repeat(first, sizes[sizes > 0])))

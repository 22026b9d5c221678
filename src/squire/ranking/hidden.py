"""Questions about facts that are hidden from a graph: the graph without them, and lists with the right answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph
from squire.ranking._walks import WalkWeights
from squire.ranking.features import FEATURES, CandidateFeatures, CandidateLists, Floats, used_rules
from squire.ranking.walks import FACTS, refit_walks
from squire.rules.hiding import RuleSupport

Stage = Callable[[str, int, int], None]  # name, done, total
# In graphs with so many times the facts that walks learn from, few of the hidden facts are among these.
MANY_TIMES = 10


@dataclass(frozen=True)
class HiddenFold:
    """Facts of a graph to hide. The indexes of the others take much memory, so they are made when needed."""

    whole: CandidateFeatures  # of the whole graph
    support: RuleSupport  # of its rules
    hidden: Ids  # (triple, 3)
    lost: Offsets  # (rule): the support that hidden facts give
    walks: WalkWeights | None  # without what the hidden facts had counted for

    @classmethod
    def of(cls, whole: CandidateFeatures, support: RuleSupport, hidden: Ids, stage: Stage) -> HiddenFold:
        lost = support.of(hidden, lambda name, done, total: stage("hiding facts", done, total))
        fold = cls(whole, support, hidden, lost.astype(np.int32), None)
        # Walks that have counted the hidden facts would look better than they are.
        if whole.walks and len(whole.adjacency.triples) < MANY_TIMES * FACTS:
            return replace(fold, walks=refit_walks(whole.walks, fold.remaining, threads=support.options.threads))
        return replace(fold, walks=whole.walks)

    @property
    def remaining(self) -> Adjacency:
        """The graph without the hidden facts."""
        graph = self.whole.adjacency
        return graph.without(Adjacency.build(self.hidden, graph.num_entities, graph.num_relations))

    def features(self) -> CandidateFeatures:
        """Candidates and features of the graph without the hidden facts."""
        whole = self.whole
        rules = used_rules(self.support.left(self.lost))  # the others need not stay in memory
        return CandidateFeatures(self.remaining, rules, whole.drop_linked, whole.words, walks=self.walks)


@dataclass(frozen=True)
class HiddenLists:
    """Lists of candidates that contain the right answer, to train the ranker."""

    lists: CandidateLists
    right: Offsets  # (list): position of the right answer among all candidates
    stands_for: Floats  # (list): for how many each of its wrong candidates stands
    queries: int  # including those whose answer is not among the candidates
    folds: tuple[HiddenFold, ...]  # that were used


def hidden_lists(
    graph: Graph,
    folds: Iterable[tuple[HiddenFold, CandidateFeatures]],
    seed: int,
    threads: int | None,
    stage: Stage,
    most: int,  # queries
    wrong: int,  # candidates to keep of each list, besides the right one
) -> HiddenLists:
    """Queries about hidden facts, one fold after the other until there are enough."""
    # Filled part by part; what is not needed is never touched, and costs no memory.
    features = np.empty((most * (wrong + 1), len(FEATURES)), np.float32)
    parts: list[CandidateLists] = []
    weights: list[Floats] = []
    num_queries, filled, used = 0, 0, []
    for number, (fold, of_rest) in enumerate(folds):
        queries = hidden_queries(fold, (most - num_queries) // 2, seed)
        for i, part in enumerate(lists_with_answer(of_rest, queries, graph.train, threads, stage)):
            chosen, stands_for = some_wrong(part, graph.train, wrong, [seed, number, i])
            features[filled : (filled := filled + len(chosen.candidates))] = chosen.features
            parts.append(chosen.without_features())
            weights.append(stands_for)
        num_queries += len(queries)
        used.append(fold)
        if num_queries >= most:
            break
    lists = joined(parts, graph)
    lists = CandidateLists(lists.queries, lists.offsets, lists.candidates, features[:filled])
    return HiddenLists(lists, lists.facts(graph.train), np.concatenate(weights), num_queries, tuple(used))


def hidden_queries(fold: HiddenFold, most: int, seed: int) -> Ids:
    """At most so many hidden facts in both directions, in the order that is fastest.  (query, 3)"""
    queries = both_directions(sample(fold.hidden, most, seed), fold.whole.adjacency.num_relations)
    return queries[np.lexsort((queries[:, 0], queries[:, 1]))]


def joined(parts: Sequence[CandidateLists], graph: Graph) -> CandidateLists:
    """All lists; SettingError if there are none."""
    if not any(len(part) for part in parts):
        raise SettingError(
            f"{graph.name}: too small for a fusion, since no train fact can be hidden and found again. Use rules "
            "alone (`squire mine`)."
        )
    return CandidateLists.join(parts)


def sample(rows: Ids, most: int, seed: int) -> Ids:
    """A random sample of at most `most` rows, in their order."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))]


def some_wrong(
    lists: CandidateLists, facts: Adjacency, most: int, seed: Sequence[int]
) -> tuple[CandidateLists, Floats]:
    """The right candidate of each list with at most so many wrong ones, and for how many each of these stands."""
    wrong = np.diff(lists.offsets) - 1
    if np.all(wrong <= most):
        return lists, np.ones(len(lists))
    draws = np.random.default_rng(seed).random(len(lists.candidates))
    draws[lists.facts(facts)] = 1.0  # above all others
    return lists.take(np.flatnonzero(lists.positions(draws) <= most)), np.maximum(wrong / most, 1.0)


def lists_with_answer(
    features: CandidateFeatures, queries: Ids, train: Adjacency, threads: int | None, stage: Stage
) -> Iterator[CandidateLists]:
    """Lists of the queries whose answer is a candidate, without other known answers.  queries: (query, 3)"""
    done = 0
    for lists in features.stream(np.ascontiguousarray(queries[:, :2]), threads):
        head, relation, answer = queries[done : done + len(lists)][lists.query].T  # (candidate) each
        right = lists.candidates == answer
        is_known = train.contains_each(head, relation, lists.candidates)
        found = np.bincount(lists.query[right], minlength=len(lists)) > 0
        kept = np.flatnonzero((right | ~is_known) & found[lists.query])
        yield lists.take(kept).only(np.flatnonzero(found))
        done += len(lists)
        stage("evidence for hidden facts", done, len(queries))

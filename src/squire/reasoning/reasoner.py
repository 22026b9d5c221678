"""Answers questions: labels in, ranked answers with evidence out.

What the graph says already comes first, as facts, and is never predicted.
If the run has a fusion, answers are ranked by all evidence and have a confidence; otherwise, or on request, they
are ranked by their paths, as in the paper. The search is in `search`, the ranking by all evidence in `ranking`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from squire.core import __version__
from squire.core.relations import is_inverse
from squire.core.run_files import INDEXES, fingerprints
from squire.errors import SettingError
from squire.graph.adjacency import Ids, Offsets
from squire.graph.changes import Action, Changes, check_facts, load_changes
from squire.model.recipe import has_model, load_settings
from squire.ranking.fusion import FusedRanking, Fusion
from squire.ranking.fusion_file import has_fusion, load_fusion, refreshed_file
from squire.ranking.recalibration import Recalibration
from squire.reasoning.answers import (
    FACTS,
    FURTHER,
    Answer,
    Answers,
    Edge,
    Evidence,
    FollowedRule,
    Origin,
    Source,
    basis_of,
)
from squire.reasoning.decisions import recalibrated
from squire.reasoning.restrictions import Restriction
from squire.reasoning.sentences import claim
from squire.rules.anyburl import readable
from squire.rules.rules import ClosedIndex, Rules
from squire.search.decoding import PathRanking, decode
from squire.search.evidence import GRADES, RuleLookup, edges_of, grades, known_edges
from squire.search.known_paths import complete, connect, known_paths
from squire.search.options import Aggregate, DecodingOptions
from squire.search.trained import LoadedRun, TrainedModel

RankedBy = Literal["paths", "fused"]
Query = tuple[int, int]  # entity, edge type
PathsTo = tuple[Evidence, tuple[Evidence, ...], int, float]  # best, further, count, share of the queried edge
MOST_LISTED = 200  # possible answers that are all judged, whatever suggests them
SHOWN_AT_ONCE = 16  # questions whose paths are scored together
CANDIDATES_PER_ANSWER = 5  # examined if only grounded answers are wanted


class Reasoner:
    """A run that is loaded and ready to answer: with a model, a fusion, or both."""

    def __init__(
        self,
        run: LoadedRun,
        fusion: Fusion | None = None,
        fingerprints: Mapping[str, str] | None = None,
        changes: Changes | None = None,
    ) -> None:
        self.run, self.fusion = run, fusion
        self.changes = changes or Changes()  # of the graph, since the training
        self.fingerprints = fingerprints or {}  # of the model and the fusion, to tell them from later ones
        self.graph, self.labels = run.graph, run.graph.labels
        self.rule_lookup = RuleLookup(run.rules)

    @classmethod
    def load(
        cls, folder: str | Path, device: torch.device | str = "cpu", *, hide_held_out: bool = False
    ) -> Reasoner:
        """Load the best model of a run folder and its fusion, or the one that there is.

        Answers rest on the facts of all splits, and on those that were added after training. To measure how good
        they are, `hide_held_out` leaves out valid, test and all that has changed.
        """
        folder = Path(folder)
        made_of = fingerprints(folder)
        if has_model(folder) or not has_fusion(folder):
            run: LoadedRun = TrainedModel.load(folder, device, hide_held_out=hide_held_out)
        else:
            graph, recipe = load_settings(folder)
            facts = graph.train if hide_held_out else graph.facts
            run = LoadedRun(folder, graph, recipe, Rules.empty(graph.num_relations), facts)
        base, changes = run.graph, Changes() if hide_held_out else load_changes(folder)
        if changes:
            graph = changes.apply(base).keeping(folder / INDEXES / "changed", f"{base.kept.key} {changes.key}")
            _, mined_after = refreshed_file(folder)
            mined_from = load_changes(folder, mined_after).apply(base, graph.labels).train if mined_after else None
            run = run.on(graph, mined_from)
        if not has_fusion(folder):
            return cls(run, None, made_of, changes)
        fusion = load_fusion(folder, base, run, run.facts)
        # The rules of all of train: those that a model was trained with may have seen less.
        rules = fusion.features.rules
        found = cls(replace(run, rules=rules.take(rules.is_closed)), fusion, made_of, changes)
        return found if hide_held_out else recalibrated(found)

    @property
    def has_model(self) -> bool:
        """Whether paths can be searched; without a model, evidence is made of known paths only."""
        return isinstance(self.run, TrainedModel)

    @property
    def trained(self) -> TrainedModel:
        """The run with its model; SettingError if it has none."""
        if not isinstance(self.run, TrainedModel):
            folder = self.run.folder
            raise SettingError(f"{folder}: has no model yet. Run `squire train --out {folder} --resume` first.")
        return self.run

    @property
    def fused(self) -> Fusion:
        """The fusion; SettingError if the run has none."""
        if self.fusion is None:
            folder = self.run.folder
            raise SettingError(
                f"{folder}: no fusion here, so there is no confidence. Run `squire fuse {folder}` first."
            )
        return self.fusion

    def without(self, facts: Ids) -> Reasoner:
        """A fused reasoner that does not know these facts, and whose rules do not count them.  facts: (fact, 3)"""
        run = replace(self.run, facts=self.run.facts.without(self.graph.adjacency(facts)))
        return Reasoner(run, self.fused.on(run), changes=self.changes)

    def with_recalibration(self, found: Recalibration | None) -> Reasoner:
        """The same fused reasoner, whose confidence takes people's decisions into account, or none."""
        confidence = replace(self.fused.confidence, recalibration=found)
        return Reasoner(self.run, replace(self.fused, confidence=confidence), self.fingerprints, self.changes)

    def changed(self, changes: Changes) -> Reasoner:
        """The same run with other changes of its graph, all of them counted from the training on."""
        base = self.run.base or self.graph
        graph, refreshed = changes.apply(base), self.run.refreshed
        if refreshed is not None and graph.num_entities != self.graph.num_entities:
            _, mined_after = refreshed_file(self.run.folder)
            refreshed = load_changes(self.run.folder, mined_after).apply(base, graph.labels).train
        run = self.run.on(graph, refreshed)
        return Reasoner(run, self.fusion and self.fusion.on(run), self.fingerprints, changes)

    def supposing(self, facts: Any = (), without: Any = ()) -> Reasoner:
        """The same run if these facts were true, and those were not: rows of labels, frames or files."""
        changes, base = self.changes, self.run.base or self.graph
        steps: tuple[tuple[Action, Any], ...] = (("add", facts), ("remove", without))
        for action, given in steps:
            if not hasattr(given, "__len__") or len(given):  # a file or a generator has no length
                changes = changes.then(action, check_facts(base, changes, action, given).facts)
        return self if changes == self.changes else self.changed(changes)

    @property
    def step(self) -> int:
        """The training step of the model; 0 without one."""
        return self.run.step if isinstance(self.run, TrainedModel) else 0

    @cached_property
    def _closed_rules(self) -> ClosedIndex:
        return ClosedIndex.from_rules(self.run.rules)

    def answer(
        self,
        head: str | None,
        relation: str,
        tail: str | None = None,
        *,
        k: int = 10,
        grounded: bool = False,
        new_only: bool = False,
        beam: int | None = None,
        aggregate: Aggregate | None = None,
        ranking: RankedBy | None = None,
        restriction: Restriction | None = None,
    ) -> Answers:
        """What the graph says about (head, relation, ?), or (?, relation, tail) if `head` is None, and the k best
        answers that are not in it.

        grounded: use known edges only. new_only: leave out the facts. ranking: "fused", the default if the run has
        a fusion, or "paths". restriction: whom the answers may be.
        """
        query = self.query(head, relation, tail)
        decoding = self.decoding(grounded=grounded, beam=beam, aggregate=aggregate)
        queries = np.array([query], np.int32)
        (answers,) = self.stream(
            queries, decoding, k=k, new_only=new_only, ranking=ranking, restriction=restriction
        )
        return answers

    def query(self, head: str | None, relation: str, tail: str | None = None) -> Query:
        """The ids of a question: an entity and an edge type, inverse to ask for heads."""
        for name, label in (("head", head), ("relation", relation), ("tail", tail)):
            if not isinstance(label, str | None) or (name == "relation" and label is None):
                raise SettingError(f"{name}={label!r}: expected a label, as text.")
        if (head is None) == (tail is None):
            raise SettingError("give either head or tail; the other one is asked for.")
        if head is not None:
            return self.labels.entity_id(head), self.labels.relation_id(relation)
        assert tail is not None
        return self.labels.entity_id(tail), self.labels.relation_id(relation) + self.graph.num_relations

    def decoding(
        self, *, grounded: bool = False, beam: int | None = None, aggregate: Aggregate | None = None
    ) -> DecodingOptions:
        """The recipe's search settings, with these changes."""
        constraint = self.run.known_edges if grounded else None
        return self.run.decoding(beam=beam, aggregate=aggregate, constraint=constraint)

    def stream(
        self,
        queries: Ids,
        decoding: DecodingOptions,
        *,
        k: int,
        new_only: bool = False,
        ranking: RankedBy | None = None,
        restriction: Restriction | None = None,
    ) -> Iterator[Answers]:
        """The answers to many questions, in order.  queries: (query, 2) head and edge type"""
        origin = self.origin(decoding, ranking)
        found = self.candidates(queries, decoding, k=k, ranking=ranking, restriction=restriction)
        for query, candidates in zip(queries.tolist(), found, strict=True):
            facts = () if new_only else self.facts(query)
            yield self._answers(query, origin, facts, [answer for _, answer in candidates])

    def facts(self, query: Query, most: int = FACTS) -> tuple[Answer, ...]:
        """The first answers that the graph gives; nothing is searched."""
        return tuple(self.fact(query, entity) for entity in self.run.facts.tails_of(*query)[:most].tolist())

    def fact(self, query: Query, entity: int) -> Answer:
        """An answer that the graph gives."""
        return Answer.from_fact(self.edge([*query, entity], True, 1.0))

    def candidates(
        self,
        queries: Ids,
        decoding: DecodingOptions,
        *,
        k: int,
        ranking: RankedBy | None = None,
        min_confidence: float = 0.0,
        restriction: Restriction | None = None,
    ) -> Iterator[list[tuple[int, Answer]]]:
        """The answers to many questions that are not in the graph, with their entities."""
        if k < 1:
            raise SettingError(f"k={k}: expected 1 or more.")
        if fusion := self._fusion(ranking):
            return self._by_fusion(fusion, queries, decoding, k, min_confidence, restriction)
        return self._by_paths(queries, decoding, k, restriction)

    def _fusion(self, ranking: RankedBy | None) -> Fusion | None:
        """The fusion to rank by, or None to rank by paths."""
        if ranking not in (None, *get_args(RankedBy)):
            raise SettingError(f"ranking={ranking!r}: expected {' or '.join(get_args(RankedBy))}.")
        if ranking == "fused" and not self.fusion:
            folder = self.run.folder
            raise SettingError(f"{folder}: no fusion here. Run `squire fuse {folder}` first.")
        return None if ranking == "paths" else self.fusion

    def confidence_for(self, precision: float, queries: Ids, k: int, ranking: RankedBy | None = None) -> float:
        """The least confidence such that this share of the k best answers to such questions should be true."""
        fusion = self._fusion(ranking)
        if not fusion:
            folder = self.run.folder
            raise SettingError(
                f"precision={precision:g}: answers ranked by paths have no confidence. "
                f"Run `squire fuse {folder}` first."
            )
        found = [judged.confidence[judged.lists.positions(judged.scores) < k] for judged in fusion.rank(queries)]
        confidence = -np.sort(-np.concatenate(found))
        expected = np.cumsum(confidence) / np.arange(1, len(confidence) + 1)  # share of true ones among the first
        enough = np.flatnonzero(expected >= precision - 1e-9)  # a mean of equal confidences is not exact
        if not len(enough):
            best = f"the most confident answer is {confidence[0]:.0%} likely" if len(confidence) else "no answers"
            raise SettingError(f"precision={precision:g}: {best}. Ask for less.")
        return float(confidence[enough[-1]])

    def origin(self, decoding: DecodingOptions, ranking: RankedBy | None = None) -> Origin:
        """The run and the settings, as answers tell them."""
        constraint = decoding.constraint.name if decoding.constraint else ""
        return Origin(
            str(self.run.folder), self.step, self.graph.name,
            decoding.beam, decoding.hops, decoding.aggregate, decoding.prune, decoding.known_share,
            decoding.edge_ends, constraint, __version__,
            "fused" if self._fusion(ranking) else "paths", self.decisions if self._fusion(ranking) else 0,
        )  # fmt: skip

    @property
    def decisions(self) -> int:
        """The number of people's decisions that confidence takes into account."""
        found = self.fusion.confidence.recalibration if self.fusion else None
        return found.decisions if found else 0

    def _answers(
        self, query: Query, origin: Origin, facts: tuple[Answer, ...], candidates: Sequence[Answer]
    ) -> Answers:
        entity, relation = self._entity(query[0]), query[1]
        head, tail = (None, entity) if is_inverse(relation, self.graph.num_relations) else (entity, None)
        num_facts = len(self.run.facts.tails_of(*query))
        return Answers(head, self._relation(relation), tail, origin, facts, num_facts, tuple(candidates))

    # --------------------------------------------------------------------------------------- ranked by paths

    def _by_paths(
        self, queries: Ids, decoding: DecodingOptions, k: int, restriction: Restriction | None
    ) -> Iterator[list[tuple[int, Answer]]]:
        """Answers as the search ranks them."""
        for query, (ranked, number) in zip(queries.tolist(), self._searched(queries, decoding), strict=True):
            own, facts = ranked.rows(number), set(self.run.facts.tails_of(*query).tolist())
            entities = np.asarray(ranked.entity[own])
            keep = (
                restriction.allows(self.run.facts, query[0], entities) if restriction else np.ones(len(entities))
            )
            new = (own.start + i for i in np.flatnonzero(keep).tolist() if int(entities[i]) not in facts)
            answers = []
            for rank, i in enumerate(islice(new, k), 1):
                entity, paths = int(ranked.entity[i]), self._paths(query, ranked, i)
                said = self._claim(query, entity, None)
                answer = Answer(rank, self._entity(entity), ranked.probability(i), False, *paths, claim=said)
                answers.append((entity, answer))
            yield answers

    def _searched(self, queries: Ids, decoding: DecodingOptions) -> Iterator[tuple[PathRanking, int]]:
        """The search result of each question: a block, and the question's number in it."""
        for ranked in decode(self.trained.decoder, queries, decoding):
            yield from ((ranked, number) for number in range(len(ranked)))

    def _paths(self, query: Query, ranked: PathRanking, index: int) -> PathsTo:
        first, end = int(ranked.path_offsets[index]), int(ranked.path_offsets[index + 1])
        best, *further = self.evidence(query, ranked, slice(first, min(end, first + 1 + FURTHER)))
        return best, tuple(further), end - first, float(ranked.asserted[index])

    # ---------------------------------------------------------------------------------- ranked by all evidence

    def _by_fusion(
        self,
        fusion: Fusion,
        queries: Ids,
        decoding: DecodingOptions,
        k: int,
        min_confidence: float,
        restriction: Restriction | None,
    ) -> Iterator[list[tuple[int, Answer]]]:
        """Answers as the fusion ranks them."""
        first = 0
        for judged in self._ranked(fusion, queries, restriction):
            asked = queries[first : first + len(judged.lists)]
            most = k * (CANDIDATES_PER_ANSWER if decoding.constraint else 1)
            for begin in range(0, len(asked), SHOWN_AT_ONCE):
                some = asked[begin : begin + SHOWN_AT_ONCE]
                numbers = range(begin, begin + len(some))
                own = [self._first(judged, number, most, min_confidence, restriction) for number in numbers]
                paths = self._paths_to(some, [judged.lists.candidates[rows].tolist() for rows in own], decoding)
                yield from (answers[:k] for answers in self._weighed(judged, own, paths))
            first += len(asked)

    @staticmethod
    def _ranked(fusion: Fusion, queries: Ids, restriction: Restriction | None) -> Iterator[FusedRanking]:
        """The candidates of all questions; a short list of possible answers is among them."""
        if restriction and restriction.listed is not None and len(restriction.listed) <= MOST_LISTED:
            return (fusion.rank_with(query, restriction.listed) for query in queries)
        return fusion.rank(queries, threads=1)

    def confidences(self, triples: Ids) -> list[float]:
        """How likely facts are that the graph does not have, asked for the tail, as `check` does.  (fact, 3)"""
        found: list[float] = []
        for judged in self.fused.rank(triples[:, :2], threads=1, wanted=np.ascontiguousarray(triples[:, 2])):
            wanted = triples[len(found) : len(found) + len(judged.lists), 2]
            found += judged.confidence[judged.lists.candidates == wanted[judged.lists.query]].tolist()
        return found

    def judge(self, query: Query, wanted: int, decoding: DecodingOptions) -> tuple[FusedRanking, Answer]:
        """The ranking of a question's candidates, and one answer to it, which the graph must not have."""
        fusion = self.fused
        queries = np.array([query], np.int32)
        (judged,) = fusion.rank(queries, threads=1, wanted=np.array([wanted], np.int32))
        at = np.flatnonzero(judged.lists.candidates == wanted)
        paths = self._paths_to(queries, [[wanted]], decoding)
        (((_, answer),),) = self._weighed(judged, [at], paths)
        return judged, replace(answer, rank=1 + int(judged.lists.positions(judged.scores)[at[0]]))

    def _first(
        self, judged: FusedRanking, query: int, most: int, min_confidence: float, restriction: Restriction | None
    ) -> Offsets:
        """Positions of the best candidates of one question that are not in the graph, best first.  (candidate)"""
        own, facts = judged.lists.rows(query), self.run.facts.tails_of(*judged.lists.queries[query])
        order: Offsets = own.start + np.argsort(-judged.scores[own], kind="stable")
        order = order[judged.confidence[order] >= min_confidence]
        if restriction:
            head, candidates = int(judged.lists.queries[query, 0]), judged.lists.candidates[order]
            order = order[restriction.allows(self.run.facts, head, candidates)]
        return order[~np.isin(judged.lists.candidates[order], facts)][:most]

    def _weighed(
        self, judged: FusedRanking, chosen: Sequence[Offsets], paths: Sequence[dict[int, PathsTo]]
    ) -> Iterator[list[tuple[int, Answer]]]:
        """The chosen candidates of some questions that have paths, with their sources."""
        rows = np.sort(np.concatenate(chosen))
        shares = judged.take(rows).contributions() if len(rows) else {}
        query = judged.lists.query  # (candidate)
        for own, found in zip(chosen, paths, strict=True):
            answers: list[tuple[int, Answer]] = []
            for at, i in zip(own.tolist(), np.searchsorted(rows, own).tolist(), strict=True):
                entity = int(judged.lists.candidates[at])
                if entity in found:
                    all_sources = (Source(name, float(share[i])) for name, share in shares.items())
                    sources = tuple(sorted(all_sources, key=lambda source: -abs(source.contribution)))
                    judgement = float(judged.confidence[at]), sources, basis_of(sources)
                    rank, chance = len(answers) + 1, float(judged.rank_score[at])
                    said = self._claim(judged.lists.queries[query[at]], entity, judgement[0])
                    paths_to = found[entity]
                    one = Answer(
                        rank, self._entity(entity), chance, False, *paths_to, *judgement, said,
                        judged.lists.is_sampled(int(query[at])),
                    )  # fmt: skip
                    answers.append((entity, one))
            yield answers

    def _paths_to(
        self, queries: Ids, answers: Sequence[Sequence[int]], decoding: DecodingOptions
    ) -> list[dict[int, PathsTo]]:
        """Known paths to the answers of each question; where there are none, paths with one inferred edge.

        If there are none either, the queried edge itself is shown, unless only known edges are allowed. Without a
        model, nothing is inferred.
        """
        asked: list[Query] = [(head, relation) for head, relation in queries.tolist()]
        if self.has_model:
            found = self._reached(asked, connect(self.trained, self._closed_rules, queries, answers, decoding))
            bare = [[one for one in own if one not in known] for own, known in zip(answers, found, strict=True)]
            if any(bare):
                further = self._reached(asked, complete(self.trained, queries, bare, decoding))
                found = [known | more for known, more in zip(found, further, strict=True)]
        else:
            found = [
                self._known_paths(query, own, decoding.hops) for query, own in zip(asked, answers, strict=True)
            ]
        if not decoding.constraint:
            for query, own, known in zip(asked, answers, found, strict=True):
                for entity in own:
                    known.setdefault(entity, (self._bare_edge(query, entity), (), 0, 1.0))
        return found

    def _reached(self, queries: Sequence[Query], ranked: PathRanking) -> list[dict[int, PathsTo]]:
        """The paths of each question by their answers."""
        own = ((query, range(*ranked.rows(i).indices(len(ranked.entity)))) for i, query in enumerate(queries))
        return [{int(ranked.entity[i]): self._paths(query, ranked, i) for i in rows} for query, rows in own]

    def _known_paths(self, query: Query, answers: Sequence[int], hops: int) -> dict[int, PathsTo]:
        """Paths of known edges to the answers: those along the most confident rules first, then the shortest."""
        paths = known_paths(self.run, self._closed_rules, query, answers, hops)
        found: dict[int, list[tuple[float, int, Evidence]]] = {}
        for entity, relations, entities in paths:
            ends = zip([query[0], *entities], relations, entities, strict=False)
            edges = tuple(self.edge(list(edge), True, 1.0) for edge in ends)
            rule = self._rule(query[1], relations)
            evidence = Evidence(edges, GRADES[0], None, None, rule)
            found.setdefault(entity, []).append((-(rule.confidence if rule else 0.0), len(edges), evidence))
        best_first = {
            entity: [evidence for *_, evidence in sorted(ranked, key=lambda one: one[:2])]
            for entity, ranked in found.items()
        }
        return {
            entity: (ranked[0], tuple(ranked[1 : 1 + FURTHER]), len(ranked), 0.0)
            for entity, ranked in best_first.items()
        }

    def _bare_edge(self, query: Query, entity: int) -> Evidence:
        """The queried edge itself, which the search did not follow."""
        edge = self.edge([query[0], query[1], entity], False, 0.0)
        return Evidence((edge,), GRADES[2], 0.0, 0.0, None)

    # ------------------------------------------------------------------------------------------------ labels

    def evidence(self, query: Query, ranked: PathRanking, paths: slice) -> list[Evidence]:
        """Some paths of one question, with labels."""
        path_ids, hops, tokens = ranked.paths[paths], ranked.hops[paths], ranked.token_log_probability[paths]
        heads = np.full(len(path_ids), query[0])
        known = known_edges(self.run.facts, heads, path_ids)
        grade = grades(known, np.full(len(path_ids), query[1]), path_ids, hops)
        edges = np.stack(edges_of(heads, path_ids), axis=2)  # (path, hop, 3)
        found = []
        for i, length in enumerate(hops.tolist()):
            steps = [
                self.edge(edges[i, hop].tolist(), bool(known[i, hop]), math.exp(tokens[i, 2 * hop + 1]))
                for hop in range(length)
            ]
            total = float(tokens[i].sum())
            rule = self._rule(query[1], edges[i, :length, 1].tolist())
            score = math.exp(total / (2 * length + 1))
            found.append(Evidence(tuple(steps), GRADES[grade[i]], math.exp(total), score, rule))
        return found

    def edge(self, edge: Sequence[int], is_fact: bool = True, probability: float = 1.0) -> Edge:
        """A step of a path with labels.  edge: start, edge type, goal"""
        start, relation, goal = edge
        backwards = is_inverse(relation, self.graph.num_relations)
        head, tail = (goal, start) if backwards else (start, goal)
        ends = self._entity(head), self._relation(relation), self._entity(tail)
        added = self.run.added
        is_added = is_fact and added is not None and added.contains(start, relation, goal)
        return Edge(*ends, backwards, is_fact, probability, is_added)

    def _claim(self, query: Sequence[int] | Ids, entity: int, confidence: float | None) -> str:
        edge = self.edge([int(query[0]), int(query[1]), entity], False, 0.0)
        return claim(edge.head, edge.relation, edge.tail, confidence)

    def _rule(self, relation: int, path: list[int]) -> FollowedRule | None:
        rules, rule = self.run.rules, self.rule_lookup.follows(relation, path)
        if rule is None:
            return None
        text, support = readable(rules, rule, self.labels), int(rules.support[rule])
        confidence = support / max(int(rules.body_count[rule]), 1)
        return FollowedRule(text, confidence, support, sampled=bool(rules.error[rule]))

    def _entity(self, number: int) -> str:
        return self.labels.entity(number)

    def _relation(self, number: int) -> str:
        return self.labels.relation(number)

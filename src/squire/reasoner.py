"""The product's heart: `Reasoner.load(run).answer("Austria", "official language")`, answers with their evidence.

Turns labels into ids, and paths of ids into edges that a person can read: known or inferred, along which rule. How
the search works is in `beam`, what makes evidence good in `evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from squire.answers import FURTHER, Answer, Answers, Edge, Evidence, FollowedRule, Origin
from squire.decode import Aggregate, Decoding, Ranked, decode
from squire.errors import SettingError
from squire.evidence import GRADES, RuleBook, edges_of, grades, known_edges
from squire.graph.store import Ids
from squire.rules.text import readable
from squire.run import Run
from squire.version import __version__


class Reasoner:
    """A trained run, ready to answer."""

    def __init__(self, run: Run) -> None:
        self.run, self.graph, self.names = run, run.graph, run.graph.names
        self._book = RuleBook(run.rules)

    @classmethod
    def load(cls, folder: str | Path) -> Reasoner:
        """The best model of a run folder."""
        return cls(Run.load(Path(folder)))

    def answer(
        self,
        head: str | None,
        relation: str,
        tail: str | None = None,
        *,
        k: int = 10,
        grounded: bool = False,
        known: bool = False,
        beam: int | None = None,
        aggregate: Aggregate | None = None,
    ) -> Answers:
        """The k best answers to (head, relation, ?), or to (?, relation, tail) if `head` is None.

        grounded: walk edges of the graph only; known: also give answers that are facts of the graph already.
        """
        query = self.query(head, relation, tail)
        how = self.decoding(grounded=grounded, beam=beam, aggregate=aggregate)
        (answers,) = self.stream(np.array([query], np.int32), how, k=k, known=known)
        return answers

    def query(self, head: str | None, relation: str, tail: str | None = None) -> tuple[int, int]:
        """The ids of a question: an entity and an edge relation, inverse if heads are asked for."""
        if (head is None) == (tail is None):
            raise SettingError("ask for the head or for the tail: give the other one, and the relation.")
        asked = self.names.relation(relation)
        if head is not None:
            return self.names.entity(head), asked
        assert tail is not None
        return self.names.entity(tail), asked + self.graph.num_relations

    def decoding(
        self, *, grounded: bool = False, beam: int | None = None, aggregate: Aggregate | None = None
    ) -> Decoding:
        """The recipe's way to search, with these changes."""
        known = self.run.known
        constraint = known if grounded else None
        return Decoding.of(self.run.recipe, known, beam=beam, aggregate=aggregate, constraint=constraint)

    def stream(self, queries: Ids, how: Decoding, *, k: int, known: bool = False) -> Iterator[Answers]:
        """The answers to many questions, in order.  queries: (query, 2) head and edge relation"""
        if k < 1:
            raise SettingError(f"-k {k}: expected 1 or more.")
        origin, asked = self._origin(how), iter(queries.tolist())
        for ranked in decode(self.run.steps, queries, how):
            for number in range(len(ranked)):
                entity, relation = next(asked)
                yield self._describe((entity, relation), ranked, number, origin, k=k, known=known)

    def _origin(self, how: Decoding) -> Origin:
        run, constraint = self.run, how.constraint.name if how.constraint else ""
        return Origin(
            str(run.folder), run.step, self.graph.name,
            how.beam, how.hops, how.aggregate, how.prune, how.known_share, how.edge_ends, constraint, __version__,
        )  # fmt: skip

    def _describe(
        self, query: tuple[int, int], ranked: Ranked, number: int, origin: Origin, *, k: int, known: bool
    ) -> Answers:
        """The first answers to one question of a block, in words."""
        facts = set(self.graph.train.tails_of(*query).tolist())
        own = ranked.of(number)
        shown = [i for i in range(own.start, own.stop) if known or int(ranked.entity[i]) not in facts][:k]
        answers = tuple(self._answer(query, ranked, i, rank, facts) for rank, i in enumerate(shown, 1))
        entity, relation = self._entity(query[0]), query[1]
        inverse = relation >= self.graph.num_relations
        ends = (None, entity) if inverse else (entity, None)
        return Answers(ends[0], self._relation(relation), ends[1], origin, answers)

    def _answer(self, query: tuple[int, int], ranked: Ranked, index: int, rank: int, facts: set[int]) -> Answer:
        first, end = int(ranked.path_offsets[index]), int(ranked.path_offsets[index + 1])
        evidence = self.evidence(query, ranked, slice(first, min(end, first + 1 + FURTHER)))
        entity = int(ranked.entity[index])
        return Answer(
            rank,
            self._entity(entity),
            ranked.probability(index),
            entity in facts,
            evidence[0],
            tuple(evidence[1:]),
            end - first,
            float(ranked.asserted[index]),
        )

    def evidence(self, query: tuple[int, int], ranked: Ranked, paths: slice) -> list[Evidence]:
        """Some paths of one question, in words."""
        trail, hops, tokens = ranked.trail[paths], ranked.hops[paths], ranked.token_log_probability[paths]
        heads = np.full(len(trail), query[0])
        known = known_edges(self.graph.train, heads, trail)
        grade = grades(known, np.full(len(trail), query[1]), trail, hops)
        edges = np.stack(edges_of(heads, trail), axis=2)  # (path, hop, 3)
        found = []
        for i, length in enumerate(hops.tolist()):
            steps = [
                self._edge(edges[i, hop].tolist(), bool(known[i, hop]), math.exp(tokens[i, 2 * hop + 1]))
                for hop in range(length)
            ]
            total = float(tokens[i].sum())
            rule = self._rule(query[1], edges[i, :length, 1].tolist())
            score = math.exp(total / (2 * length + 1))
            found.append(Evidence(tuple(steps), GRADES[grade[i]], math.exp(total), score, rule))
        return found

    def _edge(self, edge: list[int], known: bool, probability: float) -> Edge:
        start, relation, goal = edge
        backwards = relation >= self.graph.num_relations
        head, tail = (goal, start) if backwards else (start, goal)
        ends = self._entity(head), self._relation(relation), self._entity(tail)
        return Edge(*ends, backwards, known, probability)

    def _rule(self, relation: int, path: list[int]) -> FollowedRule | None:
        rules, rule = self.run.rules, self._book.follows(relation, path)
        if rule is None:
            return None
        text = readable(rules, rule, self.names)
        return FollowedRule(text, float(rules.confidence[rule]), int(rules.support[rule]))

    def _entity(self, number: int) -> str:
        return self.names.shorten(self.names.entities[number])

    def _relation(self, number: int) -> str:
        return self.names.shorten(self.names.relations[number % self.graph.num_relations])

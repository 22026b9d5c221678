"""Is this fact true? Its confidence, the evidence for it, and what speaks against it.

A fact of the graph is judged as if it were not there: the indexes are built without it, and rules do not count it
as their support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import numpy as np

from squire.core.relations import inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.labels import Labels
from squire.ranking._context import MOST_VALUES, RelationIndex
from squire.ranking.context import PAIR_FEATURES, describe_pairs
from squire.ranking.fusion import FusedRanking
from squire.reasoning.answers import Answer, Origin
from squire.reasoning.reasoner import Reasoner

RARE = 0.2  # below this share, one more value or this relation is unusual
LIKELIER = 3  # answers named that are likelier
NAMED = 3  # values named that the graph has
COLUMN = {name: i for i, (name, _) in enumerate(PAIR_FEATURES)}


@dataclass(frozen=True, repr=False)
class FactCheck:
    """How likely a fact is, and why."""

    head: str
    relation: str
    tail: str
    is_fact: bool  # in the graph; then judged as if it were not there
    confidence: float  # calibrated probability that it is true
    answer: Answer  # with its rank among the answers that the graph does not have, evidence and sources
    against: tuple[str, ...]  # sentences
    origin: Origin

    @property
    def summary(self) -> str:
        """`in the graph; without it, 83% likely`, or `not in the graph, 12% likely`"""
        if self.is_fact:
            return f"in the graph; without it, {self.confidence:.0%} likely"
        return f"not in the graph, {self.confidence:.0%} likely"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = [f"({self.head}, {self.relation}, {self.tail})", f"  {self.summary}"]
        lines += [f"  for: {self.answer.evidence.text}"] if self.answer.evidence.grade != "asserted" else []
        return "\n".join(lines + [f"  against: {sentence}" for sentence in self.against])

    def _repr_html_(self) -> str:
        against = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.against)
        title = f"({self.head}, {self.relation}, {self.tail})"
        return (
            f"<p><b>{escape(title)}</b> {escape(self.summary)}</p><ul>{against}</ul>{self.answer.evidence.svg()}"
        )


def check_fact(reasoner: Reasoner, head: str, relation: str, tail: str, beam: int | None = None) -> FactCheck:
    """Judge one fact by the rest of the graph."""
    if reasoner.fusion is None:
        folder = reasoner.run.folder
        raise SettingError(
            f"{folder}: no fusion here, so there is no confidence. Run `squire fuse {folder}` first."
        )
    query, wanted = reasoner.query(head, relation), reasoner.labels.entity_id(tail)
    is_fact = reasoner.run.facts.contains(*query, wanted)
    if is_fact:
        reasoner = without_facts(reasoner, np.array([[*query, wanted]], np.int32))
    judged, answer = reasoner.judge(query, wanted, reasoner.decoding(beam=beam))
    assert answer.confidence is not None
    assert reasoner.fusion is not None
    objections = Objections(reasoner.run.facts, reasoner.fusion.relations, reasoner.labels)
    return FactCheck(
        reasoner.labels.entity(query[0]), reasoner.labels.relation(query[1]), reasoner.labels.entity(wanted),
        is_fact, answer.confidence, answer,
        (*objections.to_fact(*query, wanted), *objections.likelier(judged, wanted)),
        reasoner.origin(reasoner.decoding(beam=beam)),
    )  # fmt: skip


def without_facts(reasoner: Reasoner, facts: Ids) -> Reasoner:
    """A reasoner that does not know these facts.  facts: (fact, 3)"""
    assert reasoner.fusion is not None
    graph, known = reasoner.graph, reasoner.run.facts
    gone = Adjacency.build(facts, graph.num_entities, graph.num_relations)
    heads, relations, tails = known.triples.T
    left = known.triples[~gone.contains_each(heads, relations, tails)]
    remaining = Adjacency.build(left, graph.num_entities, graph.num_relations)
    run = replace(reasoner.run, facts=remaining)
    in_train = facts[graph.train.contains_each(*facts.T)]
    hidden = Adjacency.build(in_train, graph.num_entities, graph.num_relations)
    return Reasoner(run, reasoner.fusion.on(remaining, hidden))


@dataclass(frozen=True)
class Objections:
    """What speaks against facts: a value that is there already, and ends of another kind."""

    facts: Adjacency
    relations: RelationIndex
    labels: Labels

    def to_fact(self, head: int, relation: int, tail: int) -> list[str]:
        """Sentences against a fact, whether or not it is among these facts."""
        backwards = inverse(relation, self.facts.num_relations)
        return [*self._to_end(head, relation, tail, "a head"), *self._to_end(tail, backwards, head, "a tail")]

    def _to_end(self, entity: int, edge_type: int, other: int, role: str) -> list[str]:
        values = self.facts.tails_of(entity, edge_type)
        others = values[values != other].tolist()
        name, relation = self.labels.entity(entity), self.labels.relation(edge_type)
        if others:
            at_least, n = self.relations.at_least[edge_type], min(len(others), MOST_VALUES)
            more = (at_least[n + 1] - (len(others) < len(values))) / max(at_least[n] - 1, 1)  # without the entity
            if more >= RARE:
                return []
            there = f"it is {role} of “{relation}” with {self._names(others)}"
            return [f"{name} has a value already: {there}. Of such entities, {more:.0%} have another."]
        row = describe_pairs(np.array([entity]), np.array([edge_type]), self.relations)[0]
        share = float(row[COLUMN["best share"]])
        if share >= RARE:
            return []
        return [f"{name} is not known as {role} of “{relation}”, and entities like it rarely are ({share:.0%})."]

    def _names(self, entities: Sequence[int]) -> str:
        shown = ", ".join(self.labels.entity(entity) for entity in entities[:NAMED])
        return f"{shown} and {len(entities) - NAMED} more" if len(entities) > NAMED else shown

    def likelier(self, judged: FusedRanking, wanted: int) -> list[str]:
        """The answers to the first question that are likelier than this one, in one sentence."""
        own = judged.lists.rows(0)
        candidates, scores, confidence = judged.lists.candidates[own], judged.scores[own], judged.confidence[own]
        at = int(np.flatnonzero(candidates == wanted)[0])
        above = np.flatnonzero((scores > scores[at]) & (confidence > confidence[at]))
        above = above[np.argsort(-scores[above], kind="stable")][:LIKELIER]
        if not len(above):
            return []
        named = [f"{self.labels.entity(int(candidates[i]))} ({confidence[i]:.0%})" for i in above.tolist()]
        return [f"Likelier: {', '.join(named)}."]

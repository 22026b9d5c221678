"""Is this fact true? Its confidence, the evidence for it, and what speaks against it.

A fact of the graph is judged as if it were not there: the indexes are built without it, and rules do not count it
as their support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from squire.core.relations import inverse, is_inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.graph.labels import Labels
from squire.ranking._context import MOST_VALUES, PRIOR_HOLDERS, RelationIndex
from squire.ranking.context import PAIR_FEATURES, describe_pairs
from squire.ranking.fusion import FusedRanking
from squire.reasoning.answers import Answer, Origin
from squire.reasoning.drawing import percent
from squire.reasoning.reasoner import Reasoner

RARE = 0.2  # below this share, one more value or this relation is unusual
FEW = 5  # entities with a value from which nothing can be concluded
LIKELY = 0.5  # likelier answers say nothing against one that is as likely as this
WORTH_NAMING = 0.02  # confidence of a likelier answer that is named
LIKELIER = 3  # answers named that are likelier
NAMED = 3  # values named that the graph has
COLUMN = {name: i for i, (name, _) in enumerate(PAIR_FEATURES)}


@dataclass(frozen=True, repr=False)
class FactCheck:
    """How likely a fact is, and why.

    >>> check = squire.Run("runs/world").check("Brazil", "official language", "Spanish")
    >>> check.is_fact
    False
    >>> print(check.summary, check.against)
    """

    head: str
    relation: str
    tail: str
    is_fact: bool  # in the graph; then judged as if it were not there
    confidence: float  # calibrated probability that it is true
    answer: Answer  # with its rank among the answers that the graph does not have, evidence and sources
    against: tuple[str, ...]  # sentences
    origin: Origin

    @property
    def fact(self) -> str:
        """`(France, drives on, right)`"""
        return f"({self.head}, {self.relation}, {self.tail})"

    @property
    def summary(self) -> str:
        """`in the graph; without it, 83% likely`, or `not in the graph, 12% likely`"""
        if self.is_fact:
            return f"in the graph; without it, {percent(self.confidence)} likely"
        return f"not in the graph, {percent(self.confidence)} likely"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = [self.fact, f"  {self.summary}"]
        lines += [f"  for: {self.answer.evidence.text}"] if self.answer.evidence.grade != "asserted" else []
        return "\n".join(lines + [f"  against: {sentence}" for sentence in self.against])

    def _repr_html_(self) -> str:
        against = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.against)
        return (
            f"<p><b>{escape(self.fact)}</b> {escape(self.summary)}</p><ul>{against}</ul>"
            f"{self.answer.evidence.svg()}"
        )


def check_fact(reasoner: Reasoner, head: str, relation: str, tail: str, beam: int | None = None) -> FactCheck:
    """Judge one fact by the rest of the graph."""
    for name, label in (("head", head), ("relation", relation), ("tail", tail)):
        if not isinstance(label, str):
            raise SettingError(f"{name}={label!r}: expected a label, as text.")
    query, wanted = reasoner.query(head, relation), reasoner.labels.entity_id(tail)
    is_fact = reasoner.run.facts.contains(*query, wanted)
    if is_fact:
        reasoner = reasoner.without(np.array([[*query, wanted]], np.int32))
    judged, answer = reasoner.judge(query, wanted, reasoner.decoding(beam=beam))
    assert answer.confidence is not None
    objections = Objections(reasoner.run.facts, reasoner.fused.relations, reasoner.labels)
    return FactCheck(
        reasoner.labels.entity(query[0]), reasoner.labels.relation(query[1]), reasoner.labels.entity(wanted),
        is_fact, answer.confidence, answer,
        (*objections.to_fact(*query, wanted), *objections.likelier(judged, wanted)),
        reasoner.origin(reasoner.decoding(beam=beam)),
    )  # fmt: skip


@dataclass(frozen=True)
class Objections:
    """What speaks against facts: other values that the graph has, ends of another kind, and likelier answers."""

    facts: Adjacency
    relations: RelationIndex
    labels: Labels

    def to_fact(self, head: int, relation: int, tail: int) -> list[str]:
        """Sentences against a fact, whether or not it is among these facts."""
        backwards = inverse(relation, self.facts.num_relations)
        return [*self._to_end(head, relation, tail), *self._to_end(tail, backwards, head)]

    def _to_end(self, entity: int, edge_type: int, other: int) -> list[str]:
        """Sentences against one more value of an edge type; one of an inverse type is a head."""
        values = self.facts.tails_of(entity, edge_type)
        others = values[values != other].tolist()
        if others:
            return self._against_another(entity, edge_type, others, len(values))
        name, relation = self.labels.entity(entity), self.labels.relation(edge_type)
        first, end = self.relations.type_offsets[entity : entity + 2]
        if np.all(self.relations.types[first:end] == edge_type):
            return [f"The graph says nothing else about {name}."]
        row = describe_pairs(np.array([entity]), np.array([edge_type]), self.relations)[0]
        share = float(row[COLUMN["best share"]])
        if share >= RARE:
            return []
        backwards = is_inverse(edge_type, self.facts.num_relations)
        fact = f"… · {relation} · {name}" if backwards else f"{name} · {relation} · …"
        return [f"There is no other fact {fact}, and entities like {name} rarely have one."]

    def _against_another(self, entity: int, edge_type: int, others: Sequence[int], num_values: int) -> list[str]:
        """Whether entities with so many values rarely have another."""
        n = min(len(others), MOST_VALUES)
        at_least, one_more = self.relations.at_least[edge_type], self.relations.one_more[n]
        alike = int(at_least[n]) - 1  # without the entity itself
        more = int(at_least[n + 1]) - (num_values > n)
        if alike < FEW or (more + PRIOR_HOLDERS * one_more) / (alike + PRIOR_HOLDERS) >= RARE:
            return []
        name, relation, shown = self.labels.entity(entity), self.labels.relation(edge_type), self._names(others)
        backwards = is_inverse(edge_type, self.facts.num_relations)
        known = f"{shown} · {relation} · {name}" if backwards else f"{name} · {relation} · {shown}"
        such = "such a fact" if n == 1 else f"{n} such facts"
        rarely = f"Of {alike:,} other entities with {such}, {_have(more)} another."
        return [f"The graph already says: {known}. {rarely}"]

    def _names(self, entities: Sequence[int]) -> str:
        shown = ", ".join(self.labels.entity(entity) for entity in entities[:NAMED])
        return f"{shown} and {len(entities) - NAMED} more" if len(entities) > NAMED else shown

    def likelier(self, judged: FusedRanking, wanted: int) -> list[str]:
        """The answers to the first question that are likelier than this one, in one sentence."""
        own = judged.lists.rows(0)
        candidates, confidence = judged.lists.candidates[own], judged.confidence[own]
        mine = float(confidence[candidates == wanted][0])
        if mine >= LIKELY:  # several answers can be true
            return []
        above = np.flatnonzero((confidence > mine) & (confidence >= WORTH_NAMING))
        above = above[np.lexsort((-judged.scores[own][above], -confidence[above]))][:LIKELIER]
        named = [f"{self.labels.entity(int(candidates[i]))} ({percent(confidence[i])})" for i in above.tolist()]
        return [f"Likelier: {', '.join(named)}."] if named else []


def _have(number: int) -> str:
    return "none has" if number == 0 else f"{number:,} {'has' if number == 1 else 'have'}"

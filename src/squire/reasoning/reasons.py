"""What an answer hangs on: how likely it would be without each fact, and what is behind its sources.

Facts are really left out, of all sources at once, as `squire remove` would do it; so these figures are what one
gets after removing them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import combinations
from typing import Any

from squire.core.relations import is_inverse
from squire.errors import UnknownName
from squire.graph.changes import Fact
from squire.ranking.details import fired_rules, voters
from squire.ranking.index import WORD
from squire.reasoning.answers import Answer, Evidence, FollowedRule
from squire.reasoning.connections import path_counts, paths_between, pattern_text
from squire.reasoning.drawing import percent
from squire.reasoning.reasoner import Query, Reasoner
from squire.rules.anyburl import readable
from squire.search.evidence import GRADES

FACTS = 12  # that are left out one after the other
PAIRED, TRIPLED = 6, 5  # of these, the most important ones that are left out two and three at a time
VOTERS, SHARED, PATTERNS = 5, 4, 10


@dataclass(frozen=True)
class Loss:
    """How likely an answer is without some facts."""

    facts: tuple[Fact, ...]
    confidence: float
    rank: int | None  # None if the question cannot be asked without them


@dataclass(frozen=True)
class SimilarEntity:
    """An entity like the one asked about, which has this answer."""

    entity: str
    similarity: float
    shared: tuple[str, ...]  # `member of · NATO`, rarest first
    words: tuple[str, ...]  # that the two names share


@dataclass(frozen=True)
class GroundedRule(FollowedRule):
    """A rule that predicts the answer, and a path by which it does."""

    path: str


@dataclass(frozen=True, repr=False)
class Reasons:
    """What an answer hangs on.

    >>> reasons = squire.Run("runs/world").why("Niger", "official language", "French")
    >>> print(reasons.losses[0])
    """

    head: str
    relation: str
    tail: str
    is_fact: bool  # in the graph; then judged as if it were not there
    confidence: float
    rank: int  # among the answers that the graph does not have
    answer: Answer  # with its evidence and sources
    losses: tuple[Loss, ...]  # without one fact each, the greatest loss first
    smallest: Loss | None  # the fewest of these facts, at most three, without which it is no longer first
    patterns: tuple[tuple[str, int], ...]  # relation patterns of the paths to it, with their number
    rules: tuple[GroundedRule, ...]
    similar: tuple[SimilarEntity, ...]
    words: tuple[str, ...]  # that the names of both ends share

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = [f"({self.head}, {self.relation}, {self.tail})"]
        lines.append(f"  {percent(self.confidence)} likely, rank {self.rank:,}; based on {self.answer.basis}")
        was = percent(self.confidence)
        losses = ((_names(loss.facts), percent(loss.confidence)) for loss in self.losses)
        lines += [f"  without {names}: {was} → {left}" for names, left in losses if left != was]
        if self.smallest:
            lines.append(f"  no longer first without {_names(self.smallest.facts)}")
        lines += [f"  via {pattern} ({count:,})" for pattern, count in self.patterns]
        lines += [f"  rule: {rule.text}  {rule.share}: {rule.path}" for rule in self.rules]
        for one in self.similar:
            common = [*one.shared, *(f"“{word}”" for word in one.words)]
            lines.append(f"  like {one.entity} ({one.similarity:.2f}), with which it shares {', '.join(common)}")
        lines += [f"  words in both names: {', '.join(self.words)}"] if self.words else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def _names(facts: Sequence[Fact]) -> str:
    return " and ".join(" · ".join(fact) for fact in facts)


def find_reasons(reasoner: Reasoner, head: str, relation: str, tail: str) -> Reasons:
    """What (head, relation, tail) hangs on, as an answer to (head, relation, ?)."""
    query, wanted = reasoner.query(head, relation), reasoner.labels.entity_id(tail)
    is_fact = reasoner.run.facts.contains(*query, wanted)
    if is_fact:
        reasoner = reasoner.supposing(without=[_labels(reasoner, *query, wanted)])
        query, wanted = reasoner.query(head, relation), reasoner.labels.entity_id(tail)
    _, answer = reasoner.judge(query, wanted, reasoner.decoding())
    assert answer.confidence is not None
    found = paths_between(reasoner.run.facts, query[0], wanted)
    losses, smallest = _losses(reasoner, (head, relation, tail), answer, query)
    graph, labels = reasoner.graph, reasoner.labels
    n = graph.num_relations
    counts = path_counts(reasoner.run.facts, query[0], found)
    patterns = sorted(((count, pattern) for pattern, count in counts.items()), key=lambda one: (-one[0], one[1]))
    said = [
        (pattern_text([(labels.relation(r), is_inverse(r, n)) for r in pattern]), count)
        for count, pattern in sorted(patterns, key=lambda one: (len(one[1]), -one[0], one[1]))
    ]
    return Reasons(
        labels.entity(query[0]), labels.relation(query[1]), labels.entity(wanted), is_fact,
        answer.confidence, answer.rank, answer, losses, smallest, tuple(said[:PATTERNS]),
        tuple(_rules(reasoner, query, wanted)), tuple(_similar(reasoner, query, wanted)),
        tuple(_shared_words(labels.entity(query[0]), labels.entity(wanted))),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- without facts


def _losses(reasoner: Reasoner, asked: Fact, answer: Answer, query: Query) -> tuple[tuple[Loss, ...], Loss | None]:
    facts = _facts_behind(reasoner, answer, query)
    single = [_without(reasoner, asked, (fact,)) for fact in facts]
    single.sort(key=lambda loss: (loss.confidence, -(loss.rank or 0)))
    smallest = None
    if answer.rank == 1:
        ordered = [loss.facts[0] for loss in single]
        groups: Iterator[Loss] = (
            _without(reasoner, asked, group)
            for size, most in ((2, PAIRED), (3, TRIPLED))
            for group in combinations(ordered[:most], size)
        )
        candidates = (loss for losses in (single, groups) for loss in losses)
        smallest = next((loss for loss in candidates if loss.rank != 1), None)
    assert answer.confidence is not None
    return tuple(loss for loss in single if loss.confidence < answer.confidence), smallest


def _without(reasoner: Reasoner, asked: Fact, facts: tuple[Fact, ...]) -> Loss:
    """The answer of a run from which these facts are gone."""
    left = reasoner.supposing(without=facts)
    head, relation, tail = asked
    try:
        query, wanted = left.query(head, relation), left.labels.entity_id(tail)
    except UnknownName:  # they were all that the graph said about one that was added
        return Loss(facts, 0.0, None)
    _, answer = left.judge(query, wanted, left.decoding())
    assert answer.confidence is not None
    return Loss(facts, answer.confidence, answer.rank)


def _facts_behind(reasoner: Reasoner, answer: Answer, query: Query) -> list[Fact]:
    """Facts that the answer may hang on: those of its paths, then others about the entity asked about."""
    labels = reasoner.labels
    shown = (edge for path in (answer.evidence, *answer.further) for edge in path.edges if edge.is_fact)
    found: dict[Fact, None] = {}
    for edge in shown:
        ids = (labels.entity_id(edge.head), labels.relation_id(edge.relation), labels.entity_id(edge.tail))
        found[_labels(reasoner, *ids)] = None
    relations, tails = reasoner.run.facts.edges(query[0])
    degree = reasoner.run.facts.offsets[tails + 1] - reasoner.run.facts.offsets[tails]
    for at in degree.argsort(kind="stable").tolist():  # what few others have says the most
        found.setdefault(_labels(reasoner, query[0], int(relations[at]), int(tails[at])), None)
    return list(found)[:FACTS]


def _labels(reasoner: Reasoner, start: int, edge_type: int, goal: int) -> Fact:
    """The fact behind an edge."""
    labels, n = reasoner.labels, reasoner.graph.num_relations
    head, tail = (goal, start) if is_inverse(edge_type, n) else (start, goal)
    return labels.entity(head), labels.relation(edge_type), labels.entity(tail)


# ------------------------------------------------------------------------------------------------- sources


def _rules(reasoner: Reasoner, query: Query, wanted: int) -> Iterator[GroundedRule]:
    features, labels = reasoner.fused.features, reasoner.labels
    rules = features.used_rules
    for fired in fired_rules(features, *query, wanted):
        path = ""
        if fired.grounding:
            ends, types = fired.grounding.entities, fired.grounding.relations
            steps = zip(ends, types, ends[1:], strict=False)
            edges = tuple(reasoner.edge(list(step), True, 1.0) for step in steps)
            path = Evidence(edges, GRADES[0], None, None, None).text
        confidence, support = float(rules.confidence[fired.rule]), int(rules.support[fired.rule])
        sampled = bool(rules.error[fired.rule])
        yield GroundedRule(readable(rules, fired.rule, labels), confidence, support, path, sampled=sampled)


def _similar(reasoner: Reasoner, query: Query, wanted: int) -> Iterator[SimilarEntity]:
    labels, n = reasoner.labels, reasoner.graph.num_relations
    own = labels.entity(query[0])
    for voter in voters(reasoner.fused.features, *query, wanted, VOTERS):
        shared = tuple(
            pattern_text([(labels.relation(r), is_inverse(r, n))]) + f" · {labels.entity(t)}"
            for r, t in voter.shared[:SHARED]
        )
        name = labels.entity(voter.entity)
        yield SimilarEntity(name, voter.similarity, shared, tuple(_shared_words(own, name)))


def _shared_words(first: str, second: str) -> list[str]:
    one, other = (dict.fromkeys(WORD.findall(label.casefold())) for label in (first, second))
    return [word for word in one if word in other and word.isalpha() and len(word) > 1]

"""How are two entities connected? All paths of known facts between them, grouped by relation pattern.

A pattern is telling if there are more of its paths between these two than between entities of their degrees:

    expected = d_a(first) · d_b(last) · W / (m(first) · m(last))

d are the edges of these types that a and b have, m those of the graph, W all walks of the pattern in the graph. So
the ends are drawn at random among the edges of their types. Patterns are ordered by log(count / expected) a step:
the paths of a pattern share their facts, so many of them are not as much evidence as they seem. The relations that
rules conclude from the patterns are suggested, with the confidence of the fusion. Nothing here needs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from squire.core.ragged import ranges
from squire.core.relations import inverse, is_inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.reasoning.answers import Edge, Evidence
from squire.reasoning.drawing import percent
from squire.reasoning.reasoner import Reasoner
from squire.search.evidence import GRADES

Pattern = tuple[int, ...]  # edge types from a to b
MAX_HOPS = 3
MIDDLE_EDGES = 200_000  # looked at in the middle of three hops; beyond it those of every second, third … neighbour
EXAMPLES = 3  # paths kept of a pattern
COMPARED = 300  # patterns with the most paths whose expectation is computed
SUGGESTED = 20  # relations that are judged, by the rules that conclude them
SHOWN, WORTH_NAMING = 10, 0.01  # patterns of a repr, and the confidence of suggestions there


@dataclass(frozen=True)
class PathGroup:
    """The paths of one relation pattern."""

    pattern: str  # `borders → currency`; ⁻¹ marks a relation that is followed backwards
    relations: tuple[str, ...]
    count: int
    expected: float  # between entities of these degrees
    paths: tuple[Evidence, ...]  # some of them
    sampled: bool = False  # near hubs, the count is an estimate from a sample

    @property
    def times(self) -> float:
        """How many times as many paths as expected."""
        return self.count / max(self.expected, 1e-12)


@dataclass(frozen=True)
class Suggestion:
    """A fact about the two entities that the evidence suggests."""

    head: str
    relation: str
    tail: str
    confidence: float  # calibrated if the run has a fusion; otherwise that one of the rules is right


@dataclass(frozen=True, repr=False)
class Connections:
    """How two entities are connected.

    >>> found = squire.Run("runs/world").connect("Austria", "Germany")
    >>> print(found.groups[0].pattern, found.groups[0].count)
    """

    first: str
    second: str
    groups: tuple[PathGroup, ...]  # most telling first
    suggestions: tuple[Suggestion, ...]  # likeliest first; the graph does not have them

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = [f"{self.first} – {self.second}"]
        for group in self.groups[:SHOWN]:
            often = f"{group.count:,} path{'s' * (group.count != 1)}, {_times(group.times)} as many as expected"
            often = f"about {often}" if group.sampled else often
            lines += [f"  via {group.pattern}: {often}", f"       {group.paths[0].text}"]
        if len(self.groups) > SHOWN:
            lines.append(f"  … and {len(self.groups) - SHOWN:,} more patterns")
        if not self.groups:
            lines.append(f"  no path of up to {MAX_HOPS} known facts")
        for one in (one for one in self.suggestions if one.confidence >= WORTH_NAMING):
            lines.append(f"  perhaps: {one.head} · {one.relation} · {one.tail}  {percent(one.confidence)} likely")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def find_connections(reasoner: Reasoner, first: str, second: str, *, hops: int = MAX_HOPS) -> Connections:
    """The paths between two entities, and what they suggest."""
    if not 1 <= hops <= MAX_HOPS:
        raise SettingError(f"hops={hops}: expected 1 to {MAX_HOPS}.")
    labels = reasoner.labels
    a, b = labels.entity_id(first), labels.entity_id(second)
    if a == b:
        raise SettingError(f"{first!r} twice: expected two entities.")
    found = paths_between(reasoner.run.facts, a, b, hops)
    expectation = Expectation(reasoner.run.facts)
    counts = path_counts(reasoner.run.facts, a, found)
    patterns = sorted(found, key=lambda pattern: (-counts[pattern], pattern))[:COMPARED]
    scored = [(pattern, expectation.of(pattern, a, b)) for pattern in patterns]
    scored.sort(key=lambda one: (-_surprise(one[0], counts[one[0]], one[1]), one[0]))
    groups = tuple(
        _group(reasoner, a, b, pattern, found[pattern], counts[pattern], expected) for pattern, expected in scored
    )
    return Connections(labels.entity(a), labels.entity(b), groups, tuple(_suggestions(reasoner, a, b, found)))


def _surprise(pattern: Pattern, count: int, expected: float) -> float:
    return float(np.log(count / max(expected, 1e-12))) / len(pattern)


# ------------------------------------------------------------------------------------------------- paths


def paths_between(facts: Adjacency, a: int, b: int, hops: int = MAX_HOPS) -> dict[Pattern, list[tuple[int, ...]]]:
    """The simple paths from a to b: for each pattern, the entities between them."""
    n = facts.num_relations
    found: dict[Pattern, list[tuple[int, ...]]] = {}
    for relation in facts.relations_between(a, b).tolist():
        found[(relation,)] = [()]
    if hops == 1:
        return found
    firsts, lasts = _by_entity(facts, a, b), _by_entity(facts, b, a)  # entity -> edge types from a, from b
    for middle in sorted(firsts.keys() & lasts.keys()):
        for first in firsts[middle]:
            for last in lasts[middle]:
                found.setdefault((first, inverse(last, n)), []).append((middle,))
    if hops == 2:
        return found
    near = np.array(sorted(lasts), np.int32)
    for x in sorted(firsts)[:: stride(facts, a)]:
        relations, tails = facts.edges(x)
        inside = np.isin(tails, near) & (tails != x)
        for relation, y in zip(relations[inside].tolist(), tails[inside].tolist(), strict=True):
            for first in firsts[x]:
                for last in lasts[y]:
                    found.setdefault((first, relation, inverse(last, n)), []).append((x, y))
    return found


def path_counts(facts: Adjacency, a: int, found: Mapping[Pattern, Sequence[object]]) -> dict[Pattern, int]:
    """How many paths from an entity there are of each pattern; near hubs, estimates from those that were found."""
    each = stride(facts, a)
    return {pattern: len(paths) * (each if len(pattern) == MAX_HOPS else 1) for pattern, paths in found.items()}


def stride(facts: Adjacency, a: int) -> int:
    """How many paths of three hops from an entity each stands for that is looked at; 1 unless it is near hubs."""
    near = np.unique(facts.edges(a)[1])
    return 1 + int((facts.offsets[near + 1] - facts.offsets[near]).sum()) // MIDDLE_EDGES


def _by_entity(facts: Adjacency, start: int, other: int) -> dict[int, list[int]]:
    """The edge types from an entity to each of its neighbours, without itself and the other one."""
    found: dict[int, list[int]] = {}
    for relation, tail in zip(*(column.tolist() for column in facts.edges(start)), strict=True):
        if tail not in (start, other):
            found.setdefault(tail, []).append(relation)
    return found


class Expectation:
    """How many paths of a pattern there are between two entities of given degrees, if their ends are random."""

    def __init__(self, facts: Adjacency) -> None:
        self._facts, self._degrees = facts, lru_cache(maxsize=None)(self._count)

    def of(self, pattern: Pattern, a: int, b: int) -> float:
        n = self._facts.num_relations
        first, last = pattern[0], inverse(pattern[-1], n)
        starts, ends = self._degrees(first), self._degrees(last)  # edges of these types that each entity has
        pairs = float(starts.at(np.array([a]))[0] * ends.at(np.array([b]))[0])
        if len(pattern) == 1:
            return pairs / max(starts.total, 1)
        share = pairs / max(starts.total * ends.total, 1)
        into, out = self._degrees(inverse(first, n)), self._degrees(pattern[-1])
        if len(pattern) == 2:
            return share * float(into.counts @ out.at(into.entities))
        middle = self._degrees(pattern[1])
        tails = self._facts.tails[ranges(middle.firsts, middle.counts)]  # of all edges of this type
        return share * float(np.repeat(into.at(middle.entities), middle.counts) @ out.at(tails))

    def _count(self, edge_type: int) -> _Degrees:
        order, offsets = self._facts.by_type
        own, runs = order[offsets[edge_type] : offsets[edge_type + 1]], self._facts.runs
        return _Degrees(runs.heads[own], runs.starts[own + 1] - runs.starts[own], runs.starts[own])


class _Degrees(NamedTuple):
    """The edges of one type: the entities that have any, how many, and where they are."""

    entities: Ids  # sorted
    counts: Offsets
    firsts: Offsets

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def at(self, entities: Ids | Offsets) -> Offsets:
        """How many edges each of these has.  (entity)"""
        if not len(self.entities):
            return np.zeros(len(entities), np.int64)
        at = np.minimum(np.searchsorted(self.entities, entities), len(self.entities) - 1)
        return np.where(self.entities[at] == entities, self.counts[at], 0)


def pattern_text(steps: Sequence[tuple[str, bool]]) -> str:
    """`borders → currency⁻¹`: relations, and whether they are followed backwards."""
    return " → ".join(f"{relation}⁻¹" if backwards else relation for relation, backwards in steps)


def _group(
    reasoner: Reasoner,
    a: int,
    b: int,
    pattern: Pattern,
    between: Sequence[tuple[int, ...]],
    count: int,
    expected: float,
) -> PathGroup:
    paths = tuple(_path(reasoner, (a, *middle, b), pattern) for middle in between[:EXAMPLES])
    steps = [(edge.relation, edge.backwards) for edge in paths[0].edges]
    relations = tuple(step[0] for step in steps)
    return PathGroup(pattern_text(steps), relations, count, expected, paths, count > len(between))


def _path(reasoner: Reasoner, entities: Sequence[int], pattern: Pattern) -> Evidence:
    edges: tuple[Edge, ...] = tuple(
        reasoner.edge([start, relation, goal], True, 1.0)
        for (start, goal), relation in zip(pairwise(entities), pattern, strict=True)
    )
    return Evidence(edges, GRADES[0], None, None, None)


# ------------------------------------------------------------------------------------------------- suggestions


def _suggestions(reasoner: Reasoner, a: int, b: int, found: dict[Pattern, Any]) -> list[Suggestion]:
    """The facts between the two that rules conclude from these patterns, likeliest first."""
    n, facts = reasoner.graph.num_relations, reasoner.run.facts
    rules, lookup = reasoner.run.rules, reasoner.rule_lookup
    wrong: dict[int, float] = {}  # the probability that all rules are wrong
    for edge_type in range(2 * n):
        followed = (lookup.follows(edge_type, list(pattern)) for pattern in found if pattern != (edge_type,))
        numbers = [rule for rule in followed if rule is not None]
        if numbers and not facts.contains(a, edge_type, b):
            wrong[edge_type] = float(np.prod(1 - rules.smoothed_confidence[numbers]))
    chosen = sorted(wrong, key=lambda edge_type: (wrong[edge_type], edge_type))[:SUGGESTED]
    confidence = {edge_type: 1 - wrong[edge_type] for edge_type in chosen}
    if reasoner.fusion and chosen:
        confidence = dict(zip(chosen, _judged(reasoner, a, b, chosen), strict=True))
    out = []
    for edge_type in sorted(chosen, key=lambda edge_type: (-confidence[edge_type], edge_type)):
        head, tail = (b, a) if is_inverse(edge_type, n) else (a, b)
        labels = reasoner.labels
        ends = labels.entity(head), labels.relation(edge_type), labels.entity(tail)
        out.append(Suggestion(*ends, confidence[edge_type]))
    return out


def _judged(reasoner: Reasoner, a: int, b: int, edge_types: Sequence[int]) -> list[float]:
    """The confidence of (head, relation, tail), always asked for the tail, as `check` does."""
    n = reasoner.graph.num_relations
    asked = [(b, inverse(e, n), a) if is_inverse(e, n) else (a, e, b) for e in edge_types]
    return reasoner.confidences(np.array(asked, np.int32))

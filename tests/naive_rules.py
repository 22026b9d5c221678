"""Slow, obvious twins of rule counting and rule application: dictionaries and sets, no cleverness."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

Triple = tuple[int, int, int]
Closed = tuple[int, tuple[int, ...]]  # head relation, body
Constant = tuple[int, int, int, int | None]  # head relation, c, body relation, d or None for any
Counts = tuple[int, int]  # support, body count


def edges_of(triples: set[Triple], num_relations: int) -> set[Triple]:
    """The triples and their inverses."""
    return triples | {(t, r + num_relations, h) for h, r, t in triples}


def simple_paths(edges: set[Triple], start: int, length: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(relations, entities) of all paths of exactly this length that visit no entity twice."""
    if length == 0:
        yield (), (start,)
        return
    for relations, entities in simple_paths(edges, start, length - 1):
        for h, r, t in edges:
            if h == entities[-1] and t not in entities:
                yield (*relations, r), (*entities, t)


def closed_rules(triples: set[Triple], num_entities: int, num_relations: int, length: int) -> dict[Closed, Counts]:
    """Support and body count of every closed rule that predicts at least one triple rightly."""
    edges = edges_of(triples, num_relations)
    pairs: dict[tuple[int, ...], set[tuple[int, int]]] = defaultdict(set)
    for n in range(1, length + 1):
        for x in range(num_entities):
            for relations, entities in simple_paths(edges, x, n):
                pairs[relations].add((x, entities[-1]))
    rules: dict[Closed, Counts] = {}
    for body, linked in pairs.items():
        for r in range(num_relations):
            support = sum((x, r, y) in triples for x, y in linked)
            if support and body != (r,):
                rules[r, body] = support, len(linked)
    return rules


def bodies_satisfied(edges: set[Triple], x: int, r: int, c: int, b: int, d: int | None) -> bool:
    """Does X = x satisfy the body of r(X,c) ← b(X,d) without using the very edge it predicts?"""
    return x != c and any(
        h == x and relation == b and t != x and d in (None, t) and (relation, t) != (r, c)
        for h, relation, t in edges
    )


def constant_rules(triples: set[Triple], num_entities: int, num_relations: int) -> dict[Constant, Counts]:
    """Support and body count of every constant rule that predicts at least one edge rightly."""
    edges = edges_of(triples, num_relations)
    rules: dict[Constant, Counts] = {}
    for r, c in {(r, t) for h, r, t in edges if h != t}:
        bodies = {(r2, d) for _, r2, t2 in edges for d in (t2, None)} - {(r, c)}
        for b, d in bodies:
            satisfied = [x for x in range(num_entities) if bodies_satisfied(edges, x, r, c, b, d)]
            support = sum((x, r, c) in edges for x in satisfied)
            if support:
                rules[r, c, b, d] = support, len(satisfied)
    return rules


def closed_answers(edges: set[Triple], head: int, body: tuple[int, ...]) -> set[int]:
    """Where a body leads from the head."""
    return {entities[-1] for relations, entities in simple_paths(edges, head, len(body)) if relations == body}

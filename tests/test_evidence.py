"""What a path rests on, against dictionaries; and the rule that it follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_rules import edges_of as all_edges
from training_cases import ENTITIES, RELATIONS, small_graph

from squire.graph.adjacency import Adjacency
from squire.rules.mining import mine_rules
from squire.rules.rules import NONE, Rules
from squire.search.evidence import GRADES, RuleLookup, edges_of, grades, known_edges

HOPS = 3
step = st.tuples(st.integers(0, 2 * RELATIONS - 1), st.integers(0, ENTITIES - 1))
paths = st.tuples(st.integers(0, ENTITIES - 1), st.lists(step, min_size=1, max_size=HOPS))


def padded(walks: list[list[tuple[int, int]]]) -> np.ndarray:
    """(path, 2 · hops), −1 after the end."""
    flat = [[token for pair in walk for token in pair] for walk in walks]
    return np.array([tokens + [-1] * (2 * HOPS - len(tokens)) for tokens in flat])


@given(
    found=st.lists(paths, min_size=1, max_size=8), asked=st.integers(0, 2 * RELATIONS - 1), seed=st.integers(0, 9)
)
def test_edges_and_grades_are_those_of_a_set_of_edges(
    found: list[tuple[int, list[tuple[int, int]]]], asked: int, seed: int
) -> None:
    graph = small_graph(triples=150, seed=seed)  # of 432 possible: both kinds are met
    edges = all_edges({(h, r, t) for h, r, t in graph.triples.tolist()}, RELATIONS)
    heads, paths = np.array([head for head, _ in found]), padded([walk for _, walk in found])
    hops = np.array([len(walk) for _, walk in found])
    known = known_edges(graph, heads, paths)
    grade = grades(known, np.full(len(found), asked), paths, hops)
    columns = np.stack(edges_of(heads, paths), axis=2)
    for i, (head, walk) in enumerate(found):
        here, expected = head, []
        for relation, goal in walk:
            expected.append((here, relation, goal))
            here = goal
        assert [tuple(edge) for edge in columns[i, : len(walk)].tolist()] == expected
        flags = [edge in edges for edge in expected]
        assert known[i].tolist() == flags + [False] * (HOPS - len(walk))
        if all(flags):
            word = "grounded"
        elif len(walk) == 1 and walk[0][0] == asked:
            word = "asserted"
        else:
            word = "completed"
        assert GRADES[grade[i]] == word


def test_grades_by_hand() -> None:
    graph = Adjacency.build(np.array([[0, 0, 1], [1, 1, 2]], np.int32), 4, 2)
    walks = [[(0, 1), (1, 2)], [(0, 1), (0, 3)], [(0, 3)], [(1, 3)], [(0, 1)], [(0, 1), (2, 0)]]
    heads, paths, hops = np.zeros(len(walks), int), padded(walks), np.array([len(walk) for walk in walks])
    found = grades(known_edges(graph, heads, paths), np.zeros(len(walks), int), paths, hops)
    assert [GRADES[g] for g in found] == [
        "grounded",
        "completed",  # its second edge is inferred
        "asserted",  # the queried edge, inferred
        "completed",  # inferred, but another relation than the queried one
        "grounded",  # the queried edge, known
        "grounded",  # 2 is 0 walked backwards
    ]


def test_a_graph_without_edges_knows_nothing() -> None:
    nothing = Adjacency.build(np.empty((0, 3), np.int32), ENTITIES, RELATIONS)
    assert not known_edges(nothing, np.array([0]), padded([[(0, 1)]])).any()


def test_every_closed_rule_is_found_from_either_end() -> None:
    rules = mine_rules(small_graph(triples=80)).rules
    book = RuleLookup(rules)
    assert rules.is_closed.any()
    assert not rules.is_closed.all()
    for rule in np.flatnonzero(rules.is_closed).tolist():
        head, body = int(rules.head[rule]), [b for b in rules.body[rule].tolist() if b != NONE]
        assert book.follows(head, body) == rule
        turned = [b + RELATIONS if b < RELATIONS else b - RELATIONS for b in body[::-1]]
        assert book.follows(head + RELATIONS, turned) == rule


@pytest.mark.parametrize(
    ("relation", "path", "rule"),
    [
        (0, [1, 5], 0),
        (3, [2, 4], 0),  # asked from the other end: r0⁻¹ ⇐ r2 ∧ r1⁻¹
        (0, [5, 1], None),
        (0, [1], None),
        (1, [1, 5], None),
        (3, [1, 5], None),
        (2, [5], 1),  # symmetric
        (5, [2], 1),
    ],
)
def test_the_rule_that_a_path_follows(relation: int, path: list[int], rule: int | None) -> None:
    """r0(X,Y) ⇐ r1(X,A) ∧ r2(Y,A), and r2(X,Y) ⇐ r2(Y,X), of three relations: inverses are 3, 4, 5."""
    body = np.array([[1, 5, NONE], [5, NONE, NONE]], np.int32)
    count = np.array([4, 4], np.int32)
    rules = Rules.closed(3, np.array([0, 2], np.int32), body, count, count)
    assert RuleLookup(rules).follows(relation, path) == rule

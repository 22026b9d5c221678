"""Applied rules give the answers that brute force gives, each with its rules and a path that really is there."""

from __future__ import annotations

from dataclasses import replace

import naive_rules
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mine import random_graph

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.rules.application import Candidates, RuleEngine, maximum, noisy_or
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import NONE, PSEUDO_COUNT, Rules

EVERYTHING = MiningOptions(min_support=1, min_confidence=1e-9, constant_support=1, constant_confidence=1e-9)
ENTITIES, RELATIONS = 6, 2
small_graphs = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    min_size=2,
    max_size=10,
)
QUERIES = np.array([(h, r) for h in range(ENTITIES) for r in range(2 * RELATIONS)], np.int32)


def turned(relation: int) -> int:
    return (relation + RELATIONS) % (2 * RELATIONS)


def naive_answers(rules: Rules, rule: int, edges: set[naive_rules.Triple], head: int, query: int) -> set[int]:
    """The answers of one rule to one query, straight from its definition."""
    r, c, d = int(rules.head[rule]), int(rules.head_constant[rule]), int(rules.body_constant[rule])
    body = tuple(b for b in rules.body[rule].tolist() if b != NONE)
    if c == NONE:
        if query == r:
            return naive_rules.closed_answers(edges, head, body)
        mirror = tuple(turned(b) for b in reversed(body))
        return naive_rules.closed_answers(edges, head, mirror) if query == turned(r) else set()
    satisfied = {
        x
        for x in range(ENTITIES)
        if naive_rules.bodies_satisfied(edges, x, r, c, body[0], None if d == NONE else d)
    }
    if query == r and head in satisfied:
        return {c}
    return satisfied if query == turned(r) and head == c else set()


def test_answers_are_the_same_without_a_table_of_all_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(12, 3, 60)
    found = []
    for entries in (16, 0):
        monkeypatch.setattr("squire.rules.edges.ENTRIES_PER_EDGE", entries)
        rules = mine_rules(graph, EVERYTHING).rules
        queries = np.array([(h, r) for h in range(12) for r in range(6)], np.int32)
        candidates = RuleEngine(rules, graph, best=5).answer(queries)
        found.append((rules.support, candidates.offsets, candidates.answers, candidates.rules))
    assert all(np.array_equal(*arrays) for arrays in zip(*found, strict=True))


@given(small_graphs)
@settings(max_examples=40)
def test_answers_and_their_rules_are_those_of_brute_force(triples: set[naive_rules.Triple]) -> None:
    graph = Adjacency.build(np.array(sorted(triples), np.int32), ENTITIES, RELATIONS)
    rules = mine_rules(graph, EVERYTHING).rules
    edges = naive_rules.edges_of(triples, RELATIONS)
    engine = RuleEngine(rules, graph, best=len(rules) + 1)
    candidates = engine.answer(QUERIES)
    for query, (head, relation) in enumerate(QUERIES.tolist()):
        expected: dict[int, set[int]] = {}
        for rule in range(len(rules)):
            for answer in naive_answers(rules, rule, edges, head, relation):
                expected.setdefault(answer, set()).add(rule)
        own = candidates.rows(query)
        found = {
            int(answer): {int(rule) for rule in used if rule != NONE}
            for answer, used in zip(candidates.answers[own], candidates.rules[own], strict=True)
        }
        assert found == expected


@given(small_graphs)
@settings(max_examples=40)
def test_every_rule_of_an_answer_has_a_grounding_in_the_graph(triples: set[naive_rules.Triple]) -> None:
    graph = Adjacency.build(np.array(sorted(triples), np.int32), ENTITIES, RELATIONS)
    rules = mine_rules(graph, EVERYTHING).rules
    edges = naive_rules.edges_of(triples, RELATIONS)
    engine = RuleEngine(rules, graph)
    candidates = engine.answer(QUERIES)
    for query, (head, relation) in enumerate(QUERIES.tolist()):
        for answer, used in zip(
            candidates.answers[candidates.rows(query)], candidates.rules[candidates.rows(query)], strict=True
        ):
            for rule in used[used != NONE].tolist():
                path = engine.grounding(head, relation, int(answer), rule)
                assert path is not None
                steps = zip(path.entities, path.relations, path.entities[1:], strict=False)
                assert all(step in edges for step in steps)
                assert len(set(path.entities)) == len(path.entities)
                if rules.is_closed[rule]:
                    assert (path.entities[0], path.entities[-1]) == (head, answer)


def test_an_answer_no_rule_gives_has_no_grounding() -> None:
    graph = Adjacency.build(np.array([[0, 0, 1], [1, 1, 2], [0, 1, 3]], np.int32), 4, 2)
    rules = Rules.closed(
        2, np.array([0], np.int32), np.array([[0, 1, -1]], np.int32), np.array([1]), np.array([1])
    )
    engine = RuleEngine(rules, graph)
    assert engine.grounding(0, 0, 2, 0) is not None
    assert engine.grounding(0, 0, 3, 0) is None


def test_rules_and_queries_of_another_graph_are_refused() -> None:
    graph = Adjacency.build(np.array([[0, 0, 1], [1, 1, 2]], np.int32), 3, 2)
    body = np.array([[1, NONE, NONE]], np.int32)
    rules = Rules.closed(2, np.array([0], np.int32), body, np.array([1]), np.array([1]))
    with pytest.raises(SettingError, match=r"the rules belong to another graph"):
        RuleEngine(replace(rules, num_relations=3), graph)
    with pytest.raises(SettingError, match=r"the rules belong to another graph"):
        RuleEngine(replace(rules, head_constant=np.array([3], np.int32)), graph)
    for query in ([3, 0], [0, 4], [-1, 0]):
        with pytest.raises(SettingError, match=r"queries contain ids that are not in the graph"):
            RuleEngine(rules, graph).answer(np.array([query], np.int32))


def test_only_the_best_rules_are_kept_in_order_of_confidence() -> None:
    graph = Adjacency.build(np.array([[0, r, 1] for r in range(4)], np.int32), 2, 4)
    support = np.array([1, 8, 4])
    body = np.array([[1, -1, -1], [2, -1, -1], [3, -1, -1]], np.int32)
    rules = Rules.closed(4, np.zeros(3, np.int32), body, np.full(3, 10), support)
    candidates = RuleEngine(rules, graph, best=2).answer(np.array([[0, 0]], np.int32))
    assert candidates.answers.tolist() == [1]
    assert candidates.rules.tolist() == [[1, 2]]
    assert candidates.smoothed_confidence[0].tolist() == pytest.approx(
        [8 / (10 + PSEUDO_COUNT), 4 / (10 + PSEUDO_COUNT)]
    )


def candidates_with(confidence: list[list[float]]) -> Candidates:
    count = len(confidence)
    return Candidates(
        np.array([0, count]),
        np.arange(count, dtype=np.int32),
        np.zeros((count, 2), np.int32),
        np.array(confidence),
        np.zeros(1, bool),
    )


def test_noisy_or_is_the_chance_that_one_rule_is_right() -> None:
    assert noisy_or(candidates_with([[0.5, 0.5], [0.5, 0.0]])).tolist() == pytest.approx([0.75, 0.5])


def test_max_breaks_ties_by_the_next_rule() -> None:
    scores = maximum(candidates_with([[0.5, 0.1], [0.9, 0.0], [0.5, 0.2], [0.5, 0.1]]))
    assert scores[1] > scores[2] > scores[0] == scores[3]


def test_streaming_gives_the_same_answers_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    triples = np.stack([rng.integers(0, 30, 200), rng.integers(0, 3, 200), rng.integers(0, 30, 200)], axis=1)
    graph = Adjacency.build(triples.astype(np.int32), 30, 3)
    engine = RuleEngine(mine_rules(graph).rules, graph)
    queries = np.stack([rng.integers(0, 30, 50), rng.integers(0, 6, 50)], axis=1).astype(np.int32)
    monkeypatch.setattr("squire.rules.application.QUERIES_AT_ONCE", 7)
    whole, parts = engine.answer(queries), list(engine.stream(queries, threads=3))
    assert len(whole.answers) > 0
    assert np.array_equal(whole.answers, np.concatenate([part.answers for part in parts]))
    assert np.array_equal(whole.rules, np.concatenate([part.rules for part in parts]))
    assert sum(len(part) for part in parts) == len(queries)


def test_answers_in_parts_are_those_of_one_call() -> None:
    adjacency = random_graph(60, 4, 500)
    engine = RuleEngine(mine_rules(adjacency).rules, adjacency)
    queries = np.array([(head, relation) for relation in range(8) for head in range(20)], np.int32)
    whole, parts = engine.answer(queries), list(engine.answer_in_parts(queries, most=100))
    assert 1 < len(parts) < len(queries)
    for name in ("answers", "rules", "smoothed_confidence", "sampled"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
    assert np.array_equal(np.concatenate([np.diff(part.offsets) for part in parts]), np.diff(whole.offsets))
    # A part ends with the query that fills it.
    assert all(part.rows(len(part) - 1).start < 100 <= len(part.answers) for part in parts[:-1])
    assert [len(part) for part in engine.answer_in_parts(queries[:0])] == [0]


def test_a_query_that_is_repeated_has_the_same_answers() -> None:
    adjacency = random_graph(60, 4, 500)
    engine = RuleEngine(mine_rules(adjacency).rules, adjacency)
    once = engine.answer(np.array([[0, 1], [3, 2]], np.int32))
    often = engine.answer(np.array([[0, 1], [0, 1], [3, 2], [3, 2], [0, 1]], np.int32))
    for number, same in enumerate((0, 0, 1, 1, 0)):
        assert np.array_equal(often.answers[often.rows(number)], once.answers[once.rows(same)])
        assert np.array_equal(often.rules[often.rows(number)], once.rules[once.rows(same)])

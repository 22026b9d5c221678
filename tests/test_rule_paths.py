"""Paths along rules: in order of confidence, uniform among the groundings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_paths import Path, paths_of, search
from path_cases import R, assert_uniform, atoms, graph_of, hop_counts, one, rules_of, seeds, tally, triples

from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.paths.paths import RANDOM, RULE
from squire.paths.sampling import sample_paths

rule_lists = st.lists(
    st.tuples(st.integers(0, R - 1), st.lists(atoms, min_size=1, max_size=3), st.integers(1, 99)),
    max_size=12,
    unique_by=lambda rule: (rule[0], tuple(rule[1])),
)


@settings(max_examples=150, deadline=None)
@given(triples, rule_lists, hop_counts, st.integers(1, 6), seeds)
def test_rules_come_first_in_order_of_confidence_one_path_each(
    edges: list[tuple[int, int, int]],
    rules: list[tuple[int, list[int], int]],
    hops: int,
    per_triple: int,
    seed: int,
) -> None:
    graph = graph_of(edges)
    index = rules_of(*rules)
    queries = both_directions(graph.triples, R)
    paths = sample_paths(graph, queries, index, hops=hops, per_triple=per_triple, seed=seed, threads=1)
    for row, query in enumerate(queries.tolist()):
        there = search(graph, tuple(query), hops)
        bodies = {tuple(relation for relation, _ in path) for path in there}
        expected = [
            (int(index.rule[entry]), body)
            for entry in range(index.offsets[query[1]], index.offsets[query[1] + 1])
            if (body := tuple(x for x in index.body[entry].tolist() if x >= 0)) in bodies
        ]
        mine = np.flatnonzero((paths.row == row) & (paths.source == RULE))
        found = [(int(paths.rule[i]), tuple(x for x in paths.relations[i].tolist() if x >= 0)) for i in mine]
        assert found == expected[:per_triple]
        assert paths_of(paths, row).total() == per_triple
        assert set(paths_of(paths, row)) <= (there or {((query[1], query[2]),)})


def test_a_rule_path_is_uniform_among_the_groundings() -> None:
    rng = np.random.default_rng(2)
    edges = [tuple(t) for t in rng.integers(0, (8, 2, 8), (50, 3)).tolist()]
    graph = graph_of([*edges, (0, 0, 1)], 8)
    for query, rule in (((0, 0, 1), [1, 2, 3]), ((1, 2, 0), [1, 2, 3]), ((0, 0, 1), [1, 2]), ((1, 2, 0), [1, 2])):
        index = rules_of((0, rule, 50))
        body = rule if query[1] == 0 else [x ^ 2 for x in reversed(rule)]
        there = {path for path in search(graph, query, 3) if [relation for relation, _ in path] == body}
        assert len(there) > 1
        queries = np.repeat(one(*query), 200 * len(there), axis=0)
        paths = sample_paths(graph, queries, index, per_triple=1, seed=6)
        assert (paths.source == RULE).all()
        assert_uniform(tally(paths), there)


@pytest.mark.parametrize("copies", [1, 4000])
def test_a_rule_over_hubs_is_uniform_too(copies: int) -> None:
    # r0(X,Y) ← r1(X,A), r1⁻¹(A,B), r0(B,Y), hubs on both sides: looked up for one row, spread for many.
    edges = [(hub, 1, leaf) for hub in (0, 1) for leaf in range(2, 82)]
    edges += [(0, 0, 2), (1, 0, 2), (1, 0, 90), (0, 0, 90)]
    graph = graph_of(edges, 91)
    index = rules_of((0, [1, 3, 0], 50))
    for query in ((0, 0, 2), (2, 2, 0), (0, 0, 90), (90, 2, 0)):
        body = [1, 3, 0] if query[1] == 0 else [2, 1, 3]
        there = {path for path in search(graph, query, 3) if [relation for relation, _ in path] == body}
        assert len(there) == (80 if 90 in query else 79)
        queries = np.repeat(one(*query), copies, axis=0)
        paths = sample_paths(graph, queries, index, per_triple=1, seed=9)
        assert (paths.source == RULE).all()
        found = tally(paths)
        if copies == 1:
            assert set(found) <= there
        else:
            assert_uniform(found, there)


@pytest.mark.parametrize("rule", [[1, 0], [0, 1, 0]])
def test_a_rule_through_a_hub_is_looked_up_for_a_few_rows(rule: list[int]) -> None:
    # Two of the 60 leaves of hubs 0 and 1 lead on to 90; 95 leads to both hubs.
    edges = [(hub, 1, leaf) for hub in (0, 1) for leaf in range(2, 62)]
    edges += [(5, 0, 90), (7, 0, 90), (95, 0, 0), (95, 0, 1), (95, 1, 3), (95, 1, 4)]
    graph = graph_of(edges, 96)
    head = 0 if len(rule) == 2 else 95
    there = {path for path in search(graph, (head, 0, 90), 3) if [relation for relation, _ in path] == rule}
    assert len(there) == len(rule) * 2 - 2
    found: Counter[Path] = Counter()
    for seed in range(60 * len(there)):  # one row at a time: many would be worth spreading the hub
        paths = sample_paths(graph, one(head, 0, 90), rules_of((0, rule, 9)), per_triple=1, seed=seed, threads=1)
        assert paths.source.tolist() == [RULE]
        found += tally(paths)
    assert_uniform(found, there)


@pytest.mark.parametrize("first_steps", [3, 12])
def test_a_rule_may_not_step_on_the_tail_before_the_end(first_steps: int) -> None:
    # 0 → 10, 11 or 2 → 5 → 2: not over 2. With 3 first steps they are spread, with 12 met from the other end.
    edges = [(0, 1, a) for a in (2, *range(10, 9 + first_steps))]
    edges += [(a, 0, 5) for a in (2, 10, 11)] + [(5, 1, 2), (0, 0, 2)]
    graph = graph_of(edges, 24)
    found: Counter[Path] = Counter()
    for seed in range(120):
        paths = sample_paths(graph, one(0, 0, 2), rules_of((0, [1, 0, 1], 9)), per_triple=1, seed=seed, threads=1)
        assert paths.source.tolist() == [RULE]
        found += tally(paths)
    assert_uniform(found, {((1, a), (0, 5), (1, 2)) for a in (10, 11)})
    alone = graph_of([(0, 1, 2), (0, 1, 9), (2, 0, 5), (5, 1, 2), (0, 0, 2)], 24)
    paths = sample_paths(alone, one(0, 0, 2), rules_of((0, [1, 0, 1], 9)), seed=0)
    assert (paths.source == RANDOM).all()


def test_a_rule_longer_than_the_hops_is_skipped() -> None:
    graph = graph_of([(0, 0, 1), (0, 1, 2), (2, 1, 1), (2, 0, 3), (3, 0, 1)])
    index = rules_of((0, [1, 0, 0], 90), (0, [1, 1], 50))
    paths = sample_paths(graph, one(0, 0, 1), index, hops=2, per_triple=3, seed=0)
    assert paths_of(paths, 0) == {((1, 2), (1, 1)): 3}
    assert paths.rule.tolist() == [1]  # the random draws of the same path count for the rule


def test_rules_of_another_graph_are_refused() -> None:
    with pytest.raises(SettingError, match=r"they belong to a graph with 3 relations, this one has 2"):
        sample_paths(graph_of([(0, 0, 1)]), one(0, 0, 1), rules_of((0, [1], 9), relations=3), seed=0)

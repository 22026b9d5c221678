"""Hiding facts lowers the support of the rules that predict them, as counted by a slow, obvious twin."""

from __future__ import annotations

import naive_rules
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mine import EVERYTHING, adjacency_of, closed_counts, constant_counts, random_graph, small_graphs

from squire.rules.hiding import RuleSupport
from squire.rules.mining import MiningOptions, mine_rules


@given(small_graphs, st.data())
@settings(max_examples=40, deadline=None)
def test_each_rule_loses_the_hidden_facts_that_it_predicts(
    triples: set[naive_rules.Triple], data: st.DataObject
) -> None:
    hidden = data.draw(st.sets(st.sampled_from(sorted(triples)), min_size=1))
    adjacency, edges = adjacency_of(triples), naive_rules.edges_of(triples, 3)
    support = RuleSupport(mine_rules(adjacency, EVERYTHING).rules, adjacency, EVERYTHING)
    left = support.without(np.array(sorted(hidden), np.int32))

    expected = {}
    for (head, body), (count, size) in closed_counts(support.rules).items():
        lost = sum(r == head and y in naive_rules.closed_answers(edges, x, body) for x, r, y in hidden)
        expected[head, body] = count - lost, size
    assert closed_counts(left) == {rule: counts for rule, counts in expected.items() if counts[0]}

    found = {}
    for (r, c, b, d), (count, size) in constant_counts(support.rules).items():
        lost = sum(
            relation == r and y == c and naive_rules.bodies_satisfied(edges, x, r, c, b, d)
            for x, relation, y in naive_rules.edges_of(hidden, 3)
        )
        found[r, c, b, d] = count - lost, size
    assert constant_counts(left) == {rule: counts for rule, counts in found.items() if counts[0]}


def test_rules_below_the_thresholds_are_gone() -> None:
    adjacency, options = random_graph(60, 4, 500), MiningOptions(min_support=3, constant_support=4)
    rules = mine_rules(adjacency, options).rules
    hidden = adjacency.triples[::7]
    left = RuleSupport(rules, adjacency, options).without(hidden)
    assert 0 < len(left) < len(rules)
    assert left.support[left.is_closed].min() >= 3
    assert left.support[~left.is_closed].min() >= 4
    assert np.all(left.confidence >= np.where(left.is_closed, options.min_confidence, options.constant_confidence))


def test_hiding_nothing_changes_nothing() -> None:
    adjacency, options = random_graph(60, 4, 500), MiningOptions()
    rules = mine_rules(adjacency, options).rules
    same = RuleSupport(rules, adjacency, options).without(np.empty((0, 3), np.int32))
    assert closed_counts(same) == closed_counts(rules)
    assert constant_counts(same) == constant_counts(rules)

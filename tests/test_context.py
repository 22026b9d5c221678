"""What is usual for an entity, against counting by hand, and the kinds of ordinary questions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveAdjacency, Triple

from squire.graph.adjacency import Adjacency
from squire.ranking._context import MOST_VALUES, PRIOR_HOLDERS, PRIOR_SHARE, PRIOR_SIZE
from squire.ranking.context import OrdinaryQuestions, describe_pairs, heads_of, relation_index

ENTITIES, RELATIONS = 7, 3
TYPES = 2 * RELATIONS
TRIPLES = st.sets(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    min_size=1,
    max_size=20,
)
PAIRS = np.array([(h, r) for r in range(TYPES) for h in range(ENTITIES)], np.int32)


def adjacency_of(triples: set[Triple], entities: int = ENTITIES, relations: int = RELATIONS) -> Adjacency:
    return Adjacency.build(np.array(sorted(triples), np.int32), entities, relations)


def naive_pair(graph: NaiveAdjacency, entity: int, r: int, num_types: int = TYPES) -> list[float]:
    """The columns of PAIR_FEATURES; the entity itself is not counted among the others."""
    values = {pair: min(len(tails), MOST_VALUES + 1) for pair, tails in graph.by_head_relation.items()}
    having = {e: {h for h, own in values if own == e} for e in range(num_types)}
    own = len(graph.by_head_relation.get((entity, r), ()))
    shares = sorted(
        (
            (len((having[e] & having[r]) - {entity}) + PRIOR_SHARE) / (len(having[e] - {entity}) + PRIOR_SIZE)
            for e in range(num_types)
            if e != r and entity in having[e]
        ),
        reverse=True,
    )
    more = shares[0] if shares else 0.0
    if own:
        n = min(own, MOST_VALUES)
        of_all = [sum(count >= least for count in values.values()) for least in (n, n + 1)]
        prior = PRIOR_HOLDERS * (of_all[1] + 0.5) / (of_all[0] + 1)
        others = [values[h, r] for h in having[r]]
        more = (sum(count > n for count in others) + prior) / (
            sum(count >= n for count in others) - 1 + PRIOR_HOLDERS
        )
    holders = max(len(having[r]), 1)
    facts = sum(edge[1] == r for edge in graph.edges)
    return [
        math.log1p(own),
        more,
        shares[0] if shares else 0.0,
        shares[1] if len(shares) > 1 else 0.0,
        sum(shares) / max(len(shares), 1),
        math.log1p(facts / holders),
        sum(values[h, r] >= 2 for h in having[r]) / holders,
        math.log1p(len(having[r])),
    ]


@settings(max_examples=60)
@given(TRIPLES)
def test_pairs_are_described_as_by_counting(triples: set[Triple]) -> None:
    index, graph = relation_index(adjacency_of(triples)), NaiveAdjacency(triples, RELATIONS)
    found = describe_pairs(PAIRS[:, 0], PAIRS[:, 1], index)
    expected = np.array([naive_pair(graph, h, r) for h, r in PAIRS.tolist()])
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    shuffled = np.random.default_rng(0).permutation(len(PAIRS))
    assert np.array_equal(describe_pairs(PAIRS[shuffled, 0], PAIRS[shuffled, 1], index), found[shuffled])


def test_more_values_than_are_counted_are_taken_for_the_most_that_are() -> None:
    hub, many = 0, 2 * MOST_VALUES
    triples = {(hub, 0, tail) for tail in range(1, many)} | {(1, 0, tail) for tail in range(2, MOST_VALUES + 2)}
    index = relation_index(adjacency_of(triples, many, 1))
    assert index.at_least[0, MOST_VALUES] == 2
    assert index.at_least[0, MOST_VALUES + 1] == 1
    found = describe_pairs(np.array([hub, 1]), np.array([0, 0]), index)
    graph = NaiveAdjacency(triples, 1)
    expected = np.array([naive_pair(graph, entity, 0, 2) for entity in (hub, 1)])
    assert found == pytest.approx(expected, rel=1e-5)


# ------------------------------------------------------------------------------------------- ordinary questions


@settings(max_examples=40)
@given(TRIPLES)
def test_kinds_of_questions(triples: set[Triple]) -> None:
    graph = adjacency_of(triples)
    kinds = OrdinaryQuestions(graph, seed=0).kinds(PAIRS)
    for (head, relation), kind in zip(PAIRS.tolist(), kinds.tolist(), strict=True):
        typical = head in heads_of(graph, relation, "typical").tolist()
        if len(graph.tails_of(head, relation)):
            assert kind == 0
        else:
            assert kind == (1 if typical else 2)


@settings(max_examples=40)
@given(TRIPLES, st.integers(1, 60))
def test_a_sample_is_distinct_sorted_mostly_typical_and_about_entities_with_edges(
    triples: set[Triple], count: int
) -> None:
    graph = adjacency_of(triples)
    questions = OrdinaryQuestions(graph, seed=0)
    found = questions.sample(count)
    pairs = [(relation, head) for head, relation in found.tolist()]
    assert pairs == sorted(set(pairs))
    kinds = questions.kinds(found)
    assert np.sum(kinds < 2) == min(count, len(questions.typical))
    assert np.sum(kinds == 2) <= 0.1 * np.sum(kinds < 2)
    assert set(found[:, 0].tolist()) <= set(graph.heads.tolist())
    assert np.array_equal(found, OrdinaryQuestions(graph, seed=0).sample(count))


def test_a_question_that_makes_no_sense_is_untypical() -> None:
    # People live in towns, and all but one like somebody; towns like nobody.
    people, towns = range(10), (10, 11)
    triples = {(person, 0, towns[person % 2]) for person in people}
    triples |= {(person, 1, (person + 1) % 10) for person in people if person}
    questions = OrdinaryQuestions(adjacency_of(triples, 12, 2), seed=0)
    asked = np.array([(1, 1), (0, 1), (10, 1), (10, 0)], np.int32)
    assert questions.kinds(asked).tolist() == [0, 1, 2, 2]
    assert all(questions.kinds(questions.untypical(50)) == 2)

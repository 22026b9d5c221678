"""Learned walks: their counts against an enumeration of all walks, and what they learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_walks import NaiveWalks

from squire.core.relations import both_directions
from squire.graph.adjacency import Adjacency
from squire.ranking import walks
from squire.ranking._walks import WalkWeights
from squire.ranking.features import COLUMN, NOWHERE, CandidateFeatures
from squire.ranking.walks import count_choices, fit_walks, initial_weights, some_facts
from squire.rules.rules import Rules

ENTITIES, RELATIONS = 6, 2


def random_weights(seed: int, num_relations: int = RELATIONS) -> WalkWeights:
    rng = np.random.default_rng(seed)
    return WalkWeights(*(rng.random(one.shape) + 0.01 for one in initial_weights(num_relations)))


@settings(max_examples=40)
@given(
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=9),
    st.integers(0, 1000),
    st.data(),
)
def test_choices_are_counted_as_if_every_walk_were_looked_at(
    triples: set[tuple[int, int, int]], seed: int, data: st.DataObject
) -> None:
    weights, fact = random_weights(seed), data.draw(st.sampled_from(sorted(triples)))
    adjacency = Adjacency.build(np.array(sorted(triples), np.int32), ENTITIES, RELATIONS)
    twin = NaiveWalks(triples - {fact}, RELATIONS, weights, steps=3)
    for asked in both_directions(np.array([fact], np.int32), RELATIONS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(walks, "STEPS", 3)
            patch.setattr(walks, "LEAST_SHARE", 1e-12)
            found = count_choices(asked[None], adjacency, weights, threads=1)
        expected = [np.zeros_like(one) for one in found]
        h, q, t = asked.tolist()
        for number, counts in enumerate(twin.counts(h, q, t)):
            for (what, a, b), count in counts.items():
                if what == "start":
                    expected[number][q, b] += count
                elif what == "stop":
                    expected[6 + number][q, a, b] += count
                else:
                    expected[2 + number][q, b] += count * (weights.after[a, b] if number else 1)
                    expected[4 + number][a, b] += count * (weights.step[q, b] if number else 1)
        for own, other in zip(found, expected, strict=True):
            assert own == pytest.approx(other, rel=1e-6, abs=1e-9)


def chains(length: int = 5, number: int = 40) -> Adjacency:
    """Chains by one relation whose ends are linked by another, and edges that lead nowhere."""
    rng, size = np.random.default_rng(0), length + 1
    steps = [(size * i + j, 0, size * i + j + 1) for i in range(number) for j in range(length)]
    links = [(size * i, 1, size * i + length) for i in range(number)]
    noise = [(int(a), 2, int(b)) for a, b in rng.integers(0, size * number, (300, 2))]
    return Adjacency.build(np.array(steps + links + noise, np.int32), size * number, 3)


def test_an_answer_five_steps_away_is_found_and_the_way_back_too() -> None:
    train = chains()
    gone = Adjacency.build(np.array([(0, 1, 5)], np.int32), train.num_entities, 3)
    remaining = train.without(gone)
    evidence = CandidateFeatures(remaining, Rules.empty(3), walks=fit_walks(remaining, threads=1))
    for query, answer in (((0, 1), 5), ((5, 4), 0)):
        found = evidence.describe(np.array([query], np.int32))
        assert found.candidates[found.features[:, COLUMN["walk"]].argmax()] == answer


def test_weights_do_not_depend_on_threads_and_learning_makes_answers_more_probable() -> None:
    train = chains()
    alone, together = fit_walks(train, 1, threads=1), fit_walks(train, 1, threads=2)
    assert alone
    assert together
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))
    every = set(map(tuple, train.triples.tolist()))
    for h, q, t in train.triples[train.triples[:, 1] == 1][:10].tolist():
        before, after = (
            NaiveWalks(every - {(h, q, t)}, 3, weights).ends(h, q)[t] for weights in (initial_weights(3), alone)
        )
        assert after > 2 * before


def test_relations_with_few_facts_are_learned_from_all_of_them() -> None:
    train = chains()
    chosen = some_facts(train, 160, seed=0)
    assert np.bincount(chosen[:, 1]).tolist() == [60, 40, 60]
    assert len(np.unique(chosen, axis=0)) == 160


def test_a_graph_without_facts_that_can_be_hidden_has_no_walks_to_learn() -> None:
    lonely = Adjacency.build(np.array([(0, 0, 1)], np.int32), 2, 1)
    assert all(np.all(one == 1) for one in fit_walks(lonely) or ())


def test_graphs_with_too_many_relations_have_no_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squire.ranking.walks.MOST_RELATIONS", 2)
    triples = np.array([(0, 0, 1), (1, 1, 2), (2, 2, 0), (0, 1, 2), (1, 2, 0)], np.int32)
    graph = Adjacency.build(triples, 3, 3)
    assert fit_walks(graph) is None
    lists = CandidateFeatures(graph, Rules.empty(3)).describe(np.array([(0, 0), (1, 4)], np.int32))
    assert np.unique(lists.features[:, COLUMN["walk"]]).tolist() == [pytest.approx(NOWHERE)]

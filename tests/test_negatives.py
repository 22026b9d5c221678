"""Sums over the drawn entities are those over all: without bias, ever closer, exact where everybody is drawn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from squire.graph.adjacency import Adjacency
from squire.model.negative_sampling import NegativeSampler, Reals, inclusion_probability

ENTITIES, RELATIONS = 60, 4
TARGETS, BATCH_RELATIONS = np.array([3, 3, 17, 40]), np.array([0, 0, 5, 2])
LOGITS = np.random.default_rng(1).normal(0, 1.5, ENTITIES)


def a_graph() -> Adjacency:
    rng = np.random.default_rng(0)
    columns = (rng.integers(0, size, 300) for size in (ENTITIES, RELATIONS, ENTITIES))
    return Adjacency.build(np.stack(list(columns), axis=1).astype(np.int32), ENTITIES, RELATIONS)


def drawn(number: int, seed: int = 0) -> tuple[npt.NDArray[np.int64], Reals]:
    sampled = NegativeSampler(a_graph(), number).sample(TARGETS, BATCH_RELATIONS, np.random.default_rng(seed))
    return sampled.entities.numpy(), sampled.counts.double().numpy()


def estimates(number: int, of: Reals, draws: int) -> Reals:
    """Of the sum over all entities, from many draws."""
    negatives, rng = NegativeSampler(a_graph(), number), np.random.default_rng(0)
    found = (negatives.sample(TARGETS, BATCH_RELATIONS, rng) for _ in range(draws))
    return np.array([of[one.entities.numpy()] @ one.counts.double().numpy() for one in found])


@pytest.mark.parametrize("number", [1, 5, 20, 55])
def test_chances_are_proportional_below_1_and_add_up_to_the_number(number: int) -> None:
    weights = np.random.default_rng(0).pareto(1.0, ENTITIES) + 0.01
    weights[TARGETS] = 0
    chances = inclusion_probability(weights, number)
    assert chances.sum() == pytest.approx(number)
    assert chances.max() <= 1
    ratio = (chances / np.where(weights > 0, weights, 1))[(chances < 1) & (weights > 0)]
    assert np.allclose(ratio, ratio[0])
    assert (weights[chances == 1] * ratio[0] >= 1).all()


def test_targets_are_certain_and_entities_ascend() -> None:
    for seed in range(20):
        entities, counts = drawn(4, seed)
        assert (np.diff(entities) > 0).all()
        assert set(TARGETS) <= set(entities)
        assert (counts[np.isin(entities, TARGETS)] == 1).all()
        assert (counts >= 1).all()


@pytest.mark.parametrize("number", [ENTITIES - 3, ENTITIES, 10 * ENTITIES])
def test_who_draws_all_that_are_no_targets_has_everybody_once(number: int) -> None:
    entities, counts = drawn(number)
    assert entities.tolist() == list(range(ENTITIES))
    assert (counts == 1).all()


@pytest.mark.parametrize("number", [4, 16])
@pytest.mark.parametrize("of", [np.exp(LOGITS), LOGITS, np.ones(ENTITIES)], ids=["normaliser", "sum", "entities"])
def test_estimates_are_without_bias(number: int, of: Reals) -> None:
    found = estimates(number, of, 4000)
    error = found.std() / len(found) ** 0.5
    assert abs(found.mean() - of.sum()) < 4 * error
    assert error < 0.02 * np.abs(of).sum()  # so the line above says something


def test_the_error_of_the_log_normaliser_falls_with_the_number() -> None:
    exact = np.log(np.exp(LOGITS).sum())
    errors = [np.abs(np.log(estimates(n, np.exp(LOGITS), 500)) - exact).mean() for n in (4, 8, 16, 32, 57)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(0, abs=1e-6)


def test_the_number_drawn_is_the_number_asked_for() -> None:
    sizes = [len(drawn(16, seed)[0]) - len(set(TARGETS)) for seed in range(400)]
    assert np.mean(sizes) == pytest.approx(16, abs=0.5)


def test_the_few_tails_of_a_rare_relation_are_certain() -> None:
    # 99 facts of relation 0, each with a tail of its own; two of relation 1, in a graph of 1000 entities.
    many = [(0, 0, tail) for tail in range(1, 100)]
    graph = Adjacency.build(np.array([*many, (0, 1, 500), (0, 1, 501)], np.int32), 1000, 2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        sampled = NegativeSampler(graph, 20).sample(np.array([7]), np.array([0] * 50 + [1]), rng)
        entities = sampled.entities.tolist()
        for tail in (500, 501):
            assert sampled.counts[entities.index(tail)] == 1


def test_relations_without_facts_and_batches_without_targets_do_no_harm() -> None:
    graph = Adjacency.build(np.array([[0, 1, 2]], np.int32), 50, 3)
    nothing = np.array([], np.int64)
    sampled = NegativeSampler(graph, 10).sample(nothing, nothing, np.random.default_rng(0))
    assert 0 < len(sampled.entities) < 25
    assert 2 in NegativeSampler(graph, 10).sample(nothing, np.array([0, 1, 2]), np.random.default_rng(0)).entities


@pytest.mark.parametrize(
    ("number", "needed"), [(0, False), (10, True), (ENTITIES - 1, True), (ENTITIES, False), (8192, False)]
)
def test_all_compete_where_none_or_as_many_as_there_are_would_be_drawn(number: int, needed: bool) -> None:
    assert (NegativeSampler.from_adjacency(a_graph(), number) is not None) == needed

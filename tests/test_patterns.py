"""The search over relation patterns against all walks there are."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import naive_beam
import numpy as np
import pytest
import torch
from fakes import FakeSteps
from graphs import make_graph
from hypothesis import given
from hypothesis import strategies as st
from training_cases import ENTITIES, RELATIONS, VOCAB, small_graph

from squire.evaluation.paths import paths_signature
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Adjacency
from squire.model.decoder import TransformerDecoder
from squire.model.prior import Prior
from squire.model.recipe import ModelConfig, load_recipe
from squire.model.transformer import Transformer
from squire.model.vocabulary import Vocabulary
from squire.rules.rules import NONE, PSEUDO_COUNT, PatternConfidence, Rules
from squire.search import patterns
from squire.search.decoding import PathRanking, decode, rank_answers
from squire.search.options import DecodingOptions, SearchEdges
from squire.search.patterns import search_patterns

E, R = 7, 2  # entities, relations without inverses
MASK = E


def random_graph(seed: int) -> Adjacency:
    triples = np.random.default_rng(seed).integers(0, [E, R, E], (12, 3)).astype(np.int32)
    return Adjacency.build(triples, E, R)


def walks(graph: Adjacency, head: int, pattern: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All ways to follow a pattern without visiting an entity twice: the entities after the head."""
    found: list[tuple[int, ...]] = [()]
    for relation in pattern:
        found = [
            (*path, tail)
            for path in found
            for tail in graph.tails_of((head, *path)[-1], relation).tolist()
            if tail not in (head, *path)
        ]
    return found


def some_rules(seed: int) -> tuple[Rules, dict[tuple[int, tuple[int, ...]], float]]:
    """Random closed rules, and the confidence of each head and pattern, from either end."""
    rng = np.random.default_rng(seed)
    bodies = {tuple(rng.integers(0, 2 * R, rng.integers(1, 4)).tolist()) for _ in range(12)}
    rows = [(int(rng.integers(R)), body, int(rng.integers(1, 30))) for body in sorted(bodies)]
    confidence = {}
    for relation, body, support in rows:
        turned = tuple((r + R) % (2 * R) for r in reversed(body))
        confidence[relation, body] = confidence[relation + R, turned] = support / (30 + PSEUDO_COUNT)
    padded = np.array([(*body, *[NONE] * (3 - len(body))) for _, body, _ in rows], np.int32)
    heads, supports = (np.array([row[i] for row in rows], np.int32) for i in (0, 2))
    return Rules.closed(R, heads, padded, np.full(len(rows), 30, np.int64), supports), confidence


def ranked(follow: naive_beam.Follow, graph: Adjacency, head: int, relation: int, **options: Any) -> PathRanking:
    decoding = DecodingOptions(aggregate="pool", known=graph, **{"beam": 1000, "hops": 3} | options)
    heads, relations = torch.tensor([head]), torch.tensor([relation])
    found = search_patterns(FakeSteps(follow, E), heads, relations, graph, decoding)
    return rank_answers(found, relations, decoding)


@given(
    seed=st.integers(0, 999),
    head=st.integers(0, E - 1),
    relation=st.integers(0, 2 * R - 1),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    hops=st.integers(1, 3),
    unlinked=st.booleans(),
)
def test_a_pool_weighs_the_queried_edge_against_all_patterns(
    seed: int, head: int, relation: int, weight: float, hops: int, unlinked: bool
) -> None:
    follow, graph = naive_beam.random_follow(seed, E, 2 * R), random_graph(seed)
    rules, confidence = some_rules(seed)
    by_rule = PatternConfidence.from_rules(rules)
    options = {"edge_weight": weight, "hops": hops, "patterns": by_rule, "unlinked": unlinked}
    found = ranked(follow, graph, head, relation, **options)
    all_wrong = np.ones(E)
    for length in range(1, hops + 1):
        for pattern in itertools.product(range(2 * R), repeat=length):
            ends = sorted({path[-1] for path in walks(graph, head, pattern)})
            if not ends or pattern == (relation,):
                continue
            masked = [token for step in pattern for token in (step, MASK)]
            score = sum(follow(0, tuple(masked[: 2 * i]))[step] for i, step in enumerate(pattern))
            chance = math.exp(score + follow(0, tuple(masked))[-1]) ** patterns.POWER
            all_wrong[ends] *= 1 - chance * confidence.get((relation, pattern), patterns.LEAST)
    pooled = np.exp(follow(0, (relation,))) ** weight * (1 - all_wrong + patterns.LEAST) ** (1 - weight)
    known = [t for r, t in zip(*graph.edges(head), strict=True) if r == relation or unlinked]
    new = [entity for entity in range(E) if entity not in known]
    expected = {entity: pooled[entity] / pooled[new].sum() for entity in new}
    assert dict(zip(found.entity.tolist(), found.score.tolist(), strict=True)) == pytest.approx(expected, rel=1e-4)


def test_patterns_that_are_no_rules_have_no_confidence() -> None:
    rules, confidence = some_rules(0)
    by_rule = PatternConfidence.from_rules(rules)
    for relation in range(2 * R):
        for length in range(1, 5):
            every = np.array(list(itertools.product(range(2 * R), repeat=length)))
            padded = np.pad(every, ((0, 0), (0, 4 - length)), constant_values=NONE)
            expected = [confidence.get((relation, tuple(body)), 0) for body in every.tolist()]
            assert by_rule.look_up(np.full(len(every), relation), padded).tolist() == expected
            assert by_rule.look_up(np.full(len(every), relation), every).tolist() == expected
    none = PatternConfidence.from_rules(Rules.empty(R))
    assert none.look_up(np.array([0]), np.array([[1, 2, NONE]])).tolist() == [0]


@given(seed=st.integers(0, 999), head=st.integers(0, E - 1), hops=st.integers(1, 4))
def test_every_path_is_a_walk_in_the_graph_and_the_queried_edge_comes_last(
    seed: int, head: int, hops: int
) -> None:
    follow, graph = naive_beam.random_follow(seed, E, 2 * R), random_graph(seed)
    found = ranked(follow, graph, head, 0, hops=hops)
    for answer, entity in enumerate(found.entity.tolist()):
        *paths, edge = found.paths[found.path_offsets[answer] : found.path_offsets[answer + 1]].tolist()
        assert [token for token in edge if token >= 0] == [0, entity]
        for path in paths:
            tokens = [token for token in path if token >= 0]
            assert tokens[-1] == entity
            assert tuple(tokens[1::2]) in walks(graph, head, tuple(tokens[0::2]))
        assert len({tuple(path[0::2]) for path in paths}) == len(paths)  # one for each pattern


@given(seed=st.integers(0, 99), width=st.integers(1, 6))
def test_a_narrow_beam_keeps_the_most_probable_patterns_that_lead_somewhere(seed: int, width: int) -> None:
    follow, graph = naive_beam.random_follow(seed, E, 2 * R), random_graph(seed)
    found = ranked(follow, graph, 0, 0, beam=width, hops=2)
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    kept: set[tuple[int, ...]] = set()
    for _ in range(2):
        grown = []
        for score, pattern in live:
            ends = {(0, *path)[-1] for path in walks(graph, 0, pattern)}
            after = follow(0, tuple(token for step in pattern for token in (step, MASK)))
            leaving = {r for end in ends for r in graph.edges(end)[0].tolist()}
            grown += [(score + after[relation], (*pattern, relation)) for relation in leaving]
        best = sorted(grown, reverse=True)[:width]
        live = [(score, pattern) for score, pattern in best if walks(graph, 0, pattern)]
        kept |= {pattern for _, pattern in live}
    shown = {tuple(r for r in path[0::2] if r >= 0) for path in found.paths.tolist()}
    assert shown - {(0,)} <= kept
    new = set(range(E)) - set(graph.tails_of(0, 0).tolist())
    leading = {pattern for pattern in kept - {(0,)} if {path[-1] for path in walks(graph, 0, pattern)} & new}
    if width >= E:  # otherwise not all answers are listed
        assert shown - {(0,)} == leading


def test_beyond_the_budget_ends_are_sampled_and_count_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 41
    graph = Adjacency.build(np.array([(0, 0, i) for i in range(1, size)], np.int32), size, 1)
    follow = naive_beam.random_follow(0, size, 2)
    decoding = DecodingOptions(beam=50, hops=1, aggregate="pool", known=graph)
    heads, relations = torch.tensor([0]), torch.tensor([1])

    def ends() -> tuple[int, float]:
        found = search_patterns(FakeSteps(follow, size), heads, relations, graph, decoding)
        rows = found.paths[:, 0] == 0
        return int(rows.sum()), float(found.token_log_probability[rows, 1].max())

    number, chance = ends()
    assert number == 40
    assert chance == pytest.approx(-math.log(40))
    monkeypatch.setattr(patterns, "MOST_ENDS", 10)
    number, chance = ends()
    assert number == 10
    assert chance == pytest.approx(-math.log(40))


@torch.no_grad()
def test_the_queried_edge_is_judged_by_the_model_and_by_its_edge_embeddings_alike() -> None:
    torch.manual_seed(0)
    model = Transformer(VOCAB, ModelConfig(layers=1, dim=8, heads=2, feedforward=16, edge_rank=3))
    assert model.edges is not None
    model.edges.entity.normal_()
    heads, relations = torch.tensor([1, 4]), torch.tensor([0, 3])
    decoder = TransformerDecoder(model)
    decoder.begin(heads, relations)
    logits, _ = decoder.entities(1, torch.arange(2), relations)
    mean = (logits.log_softmax(1) + model.edges.logits(heads, relations).log_softmax(1)) / 2
    decoder.begin(heads, relations)
    torch.testing.assert_close(decoder.queried_edge(relations), mean.log_softmax(1))


@torch.no_grad()
def test_where_every_tail_has_one_fact_the_prior_has_no_say() -> None:
    capitals = [(i, 0, i + 3) for i in range(3)] + [(i, 1, 6) for i in range(3)]
    graph = Adjacency.build(np.array(capitals, np.int32), 7, 2)
    prior = Prior.from_adjacency(graph)
    assert prior.facts_per_tail.tolist() == [1, 3, 1, 1]
    torch.manual_seed(0)
    config = ModelConfig(layers=1, dim=8, heads=2, feedforward=16, edge_rank=3)
    with_prior, without = (Transformer(Vocabulary(7, 2), config, own) for own in (prior, None))
    without.load_state_dict(with_prior.state_dict(), strict=False)
    found = []
    for decoder in map(TransformerDecoder, (with_prior, without)):
        decoder.begin(torch.tensor([0, 0, 6]), torch.tensor([0, 1, 3]))
        found.append(decoder.queried_edge(torch.tensor([0, 1, 3])))
    torch.testing.assert_close(found[0][[0, 2]], found[1][[0, 2]])
    assert found[0][1, 6] > found[1][1, 6] + 0.5


def test_a_block_of_queries_is_ranked_like_each_of_them() -> None:
    torch.manual_seed(0)
    model = Transformer(VOCAB, ModelConfig(layers=1, dim=8, heads=2, feedforward=16))
    graph = small_graph()
    decoding = DecodingOptions(beam=8, hops=3, aggregate="pool", known=graph)
    queries = np.array([(h, r) for h in range(ENTITIES) for r in range(2 * RELATIONS)], np.int32)
    (whole,) = decode(TransformerDecoder(model), queries, decoding)
    for i in range(len(queries)):
        (alone,) = decode(TransformerDecoder(model), queries[i : i + 1], decoding)
        own = whole.rows(i)
        assert dict(zip(whole.entity[own], whole.score[own], strict=True)) == pytest.approx(
            dict(zip(alone.entity, alone.score, strict=True)), rel=1e-4
        )


def test_signatures_say_whether_names_are_known_and_linked_pairs_excluded() -> None:
    queries = QuerySet.from_graph(make_graph({"train": [("a", "r", "b")], "test": [("b", "r", "a")]}), "test")
    pool, best_path = ("small", "pool+names", "pool+names+unlinked"), ("paper-nell23k", "max", "max")
    for recipe, name, unlinked in (pool, best_path):
        decoding = DecodingOptions.from_recipe(load_recipe(recipe), SearchEdges(small_graph()))
        assert paths_signature(queries, decoding, 0).aggregation == name
        assert paths_signature(queries, replace(decoding, unlinked=True), 0).aggregation == unlinked

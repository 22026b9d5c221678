"""A walker finds the walks that enumeration finds, is rewarded as it should be, and learns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_run import family

from squire.core.relations import both_directions
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.queries import QuerySet
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.rules.mining import MiningOptions, mine_rules
from squire.search.evidence import RuleLookup
from squire.studies.walker import VARIANTS, RuleReward, WalkEdges, Walker, WalkerOptions

SMALL = WalkerOptions(dim=16, batch=32, rollouts=8, beam=100_000)


class Oracle:
    """An embedding model that knows the answers of valid and test, and nothing else."""

    def __init__(self, graph: Graph) -> None:
        self.known, self.num_entities = graph.known("valid", "test"), graph.num_entities

    def scores(self, queries: Ids) -> np.ndarray:
        found = np.zeros((len(queries), self.num_entities), np.float32)
        for row, (head, relation) in zip(found, queries.tolist(), strict=True):
            row[self.known.tails_of(head, relation)] = 9.0
        return found


def a_walker(options: WalkerOptions = SMALL, graph: Graph | None = None) -> Walker:
    graph = graph or family()
    oracle = Oracle(graph) if options.uses_embedding else None
    return Walker(graph, options, 0, oracle)  # type: ignore[arg-type]


Walk = tuple[tuple[int, ...], float]


def every_walk(walker: Walker, head: int, asked: int) -> Iterator[Walk]:
    """Tokens and probability of all walks, one after the other."""
    policy, edges = walker.policy, walker.edges
    queries = np.array([[head, asked]], np.int32)
    guessed = walker._guesses(walker.probabilities(queries))

    def go_on(tokens: tuple[int, ...], current: int, taken: int, state: Any, probability: float) -> Iterator[Walk]:
        if len(tokens) == 2 * walker.options.hops:
            moves = [tokens[i : i + 2] for i in range(0, len(tokens), 2) if tokens[i] != edges.stay]
            yield tuple(token for move in moves for token in move), probability
            return
        here = torch.tensor([current])
        after = policy.read(torch.tensor([taken]), here, state)
        row, edge = edges.of(here)
        logs = policy.log_probabilities(after[0], here, torch.tensor([asked]), guessed, edges, row, edge)
        assert float(logs.exp().sum()) == pytest.approx(1, abs=1e-5)
        for number, log in zip(edge.tolist(), logs.tolist(), strict=True):
            relation, tail = int(edges.relations[number]), int(edges.tails[number])
            yield from go_on((*tokens, relation, tail), tail, relation, after, probability * float(np.exp(log)))

    yield from go_on((), head, edges.stay, None, 1.0)


@pytest.mark.parametrize("variant", ["MINERVA", "DacKGR"])
def test_a_wide_beam_finds_all_walks_with_their_probabilities(variant: str) -> None:
    switches = VARIANTS[variant]
    walker = a_walker(replace(SMALL, guesses=switches.guesses, added_edges=switches.added_edges, hops=2))
    queries = both_directions(walker.graph.test, walker.graph.num_relations)[:, :2]
    (ranking,) = walker.answer(queries)
    for query, (head, asked) in enumerate(queries.tolist()):
        with torch.no_grad():
            walks = list(every_walk(walker, head, asked))
        totals: dict[int, float] = defaultdict(float)
        for tokens, probability in walks:
            if tokens:
                totals[tokens[-1]] += probability
        own = ranking.rows(query)
        found = dict(zip(ranking.entity[own].tolist(), ranking.score[own].tolist(), strict=True))
        assert found.keys() == totals.keys()
        for entity, total in totals.items():
            assert found[entity] == pytest.approx(total, rel=1e-3)
        assert ranking.score[own].tolist() == sorted(ranking.score[own].tolist(), reverse=True)


def test_an_entity_has_its_edges_and_may_stay_and_hubs_have_some() -> None:
    graph = family()
    for most in (100, 2):
        edges = WalkEdges(graph.train, most, np.random.default_rng(0))
        row, edge = edges.of(torch.arange(graph.num_entities))
        found = set(zip(row.tolist(), edges.relations[edge].tolist(), edges.tails[edge].tolist(), strict=True))
        for entity in range(graph.num_entities):
            own = set(zip(*(x.tolist() for x in graph.train.edges(entity)), strict=True))
            walked = {(r, t) for e, r, t in found if e == entity}
            assert (edges.stay, entity) in walked
            assert walked - {(edges.stay, entity)} <= own
            assert len(walked) == 1 + min(len(own), most)


def test_a_walk_along_a_rule_is_rewarded_by_its_confidence() -> None:
    graph = family()
    reward = RuleReward(graph, minutes=1, hops=3)
    rules = mine_rules(graph.train, MiningOptions(constants=False)).rules
    lookup, stay = RuleLookup(rules), 2 * graph.num_relations
    rng = np.random.default_rng(0)
    walks = rng.integers(0, stay + 1, (4000, 3))
    asked = rng.integers(0, stay, 4000)
    found = reward(torch.from_numpy(asked), torch.from_numpy(walks)).tolist()
    assert sum(value > 0 for value in found) > 20
    for relation, walk, value in zip(asked.tolist(), walks.tolist(), found, strict=True):
        rule = lookup.follows(relation, [step for step in walk if step != stay])
        assert value == pytest.approx(0 if rule is None else rules.smoothed_confidence[rule])


def test_a_right_end_has_the_whole_reward_and_a_wrong_one_what_the_embedding_says() -> None:
    walker = a_walker(replace(SMALL, shaping=True, rollouts=3))
    believed = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    ends, answers = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([1, 1, 1, 2, 2, 2])
    assert walker._reward(ends, answers, believed).tolist() == pytest.approx([1, 1, 0.5, 0.125, 0.125, 1])


def test_the_fact_in_question_is_not_walked_in_training() -> None:
    """Where it is the only edge, all walks stay, so none is rewarded and nothing can be learned."""
    from graphs import make_graph

    graph = make_graph({"train": [("a", "r", "b")]})
    walker = Walker(graph, replace(SMALL, entropy=0.0))
    loss = walker.loss(graph.train.triples, None)
    assert float(loss.detach()) == 0


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_variant_learns(variant: str) -> None:
    graph = family()
    switches = VARIANTS[variant]
    walker = a_walker(replace(switches, dim=32, batch=64, rollouts=12, beam=32), graph)
    rule_reward = RuleReward(graph, 1, 3) if switches.rule_weight else None
    facts = both_directions(graph.train.triples, graph.num_relations)
    optimizer = torch.optim.Adam(walker.policy.parameters(), lr=5e-3)
    for _ in range(80):
        optimizer.zero_grad()
        torch.autograd.backward(walker.loss(facts, rule_reward))
        optimizer.step()
    query_set = QuerySet.from_graph(graph, "test", "both")
    ranks = walker.rank(query_set, variant)
    assert ranks.metrics().mrr > rank_by_frequency(graph, query_set).metrics().mrr
    shares = ranks.grade_shares()
    assert shares["grounded"] > 0.3
    assert (shares["completed"] + shares["asserted"] > 0) == switches.added_edges


def test_a_choice_is_judged_among_the_edges_that_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = family()
    monkeypatch.setattr(Walker, "_reward", lambda self, end, answer, believed: torch.rand(len(end)))
    for dropout, learns in ((1.0, False), (0.5, True)):  # if no edge is seen, there is no choice
        walker = a_walker(WalkerOptions(edge_dropout=dropout, entropy=0.0, dim=8), graph)
        torch.autograd.backward(walker.loss(graph.train.triples[:16], None))
        moved = sum(float(p.grad.abs().sum()) for p in walker.policy.parameters() if p.grad is not None)
        assert (moved > 1e-6) == learns

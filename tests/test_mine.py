"""Mined counts are those of a dictionary; estimates are unbiased and marked; nothing depends on threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import naive_rules
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency
from squire.graph.graph import Graph
from squire.graph.loading import load_graph
from squire.rules import mining as mine
from squire.rules.mining import MiningOptions, mine_rules, sorted_rules
from squire.rules.rules import NONE, Rules

SHARED = Path(__file__).resolve().parents[2] / "shared" / "kg"
EVERYTHING = MiningOptions(min_support=1, min_confidence=1e-9, constant_support=1, constant_confidence=1e-9)

small_graphs = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=14)


def adjacency_of(triples: set[naive_rules.Triple], entities: int = 7, relations: int = 3) -> Adjacency:
    return Adjacency.build(np.array(sorted(triples), np.int32), entities, relations)


def closed_counts(rules: Rules) -> dict[naive_rules.Closed, naive_rules.Counts]:
    return {
        (int(rules.head[i]), tuple(b for b in rules.body[i].tolist() if b != NONE)): (
            int(rules.support[i]),
            int(rules.body_count[i]),
        )
        for i in np.flatnonzero(rules.is_closed)
    }


def constant_counts(rules: Rules) -> dict[naive_rules.Constant, naive_rules.Counts]:
    found = {}
    for i in np.flatnonzero(~rules.is_closed):
        d = int(rules.body_constant[i])
        key = (int(rules.head[i]), int(rules.head_constant[i]), int(rules.body[i, 0]), None if d == NONE else d)
        found[key] = int(rules.support[i]), int(rules.body_count[i])
    return found


def random_graph(entities: int, relations: int, triples: int, seed: int = 0) -> Adjacency:
    """A few hubs and many others."""
    rng = np.random.default_rng(seed)
    head, tail = ((rng.random(triples) ** 3 * entities).astype(np.int32) for _ in range(2))
    relation = rng.integers(0, relations, triples, dtype=np.int32)
    return Adjacency.build(np.stack([head, relation, tail], axis=1), entities, relations)


@given(small_graphs)
@settings(max_examples=60, deadline=None)
def test_closed_counts_are_those_of_a_dictionary(triples: set[naive_rules.Triple]) -> None:
    found = mine_rules(adjacency_of(triples), EVERYTHING).rules
    assert closed_counts(found) == naive_rules.closed_rules(triples, 7, 3, 3)
    assert not found.error.any()


@given(small_graphs)
@settings(max_examples=60, deadline=None)
def test_constant_counts_are_those_of_a_dictionary(triples: set[naive_rules.Triple]) -> None:
    found = mine_rules(adjacency_of(triples), EVERYTHING).rules
    assert constant_counts(found) == naive_rules.constant_rules(triples, 7, 3)


def test_counts_hold_on_a_graph_with_hubs_where_lists_are_searched_not_scanned() -> None:
    # Entity 0 is so large a hub that the miner looks its neighbours up instead of walking them.
    triples = {(0, 0, i) for i in range(1, 40)} | {(i, 1, i + 1) for i in range(1, 8)} | {(2, 2, 40), (3, 2, 40)}
    found = mine_rules(adjacency_of(triples, 41), EVERYTHING).rules
    assert closed_counts(found) == naive_rules.closed_rules(triples, 41, 3, 3)


def test_thresholds_leave_out_what_is_below_them_and_nothing_else() -> None:
    graph = random_graph(40, 4, 300)
    strict = MiningOptions(min_support=4, min_confidence=0.2, constant_support=4, constant_confidence=0.3)
    everything, some = mine_rules(graph, EVERYTHING).rules, mine_rules(graph, strict).rules
    closed, constant = closed_counts(everything), constant_counts(everything)
    assert closed_counts(some) == {k: (s, n) for k, (s, n) in closed.items() if s >= 4 and s >= 0.2 * n}
    assert constant_counts(some) == {k: (s, n) for k, (s, n) in constant.items() if s >= 4 and s >= 0.3 * n}
    assert 0 < len(some) < len(everything)


def test_of_too_many_constant_rules_the_most_trusted_are_kept() -> None:
    graph = random_graph(40, 4, 300)
    every, some = mine_rules(graph).rules, mine_rules(graph, MiningOptions(max_constants=5)).rules
    confidence = sorted(every.smoothed_confidence[~every.is_closed].tolist(), reverse=True)
    assert len(confidence) > 5
    assert sorted(some.smoothed_confidence[~some.is_closed].tolist(), reverse=True) == confidence[:5]
    assert np.count_nonzero(some.is_closed) == np.count_nonzero(every.is_closed)


def test_shorter_length_and_no_constants_are_subsets() -> None:
    graph = random_graph(40, 4, 300)
    found = mine_rules(graph, MiningOptions(length=2, constants=False)).rules
    assert found.is_closed.all()
    assert set(found.length.tolist()) == {1, 2}


@pytest.mark.parametrize("budget", [5e10, 2000.0], ids=["exact", "estimated"])
def test_the_number_of_threads_does_not_matter(budget: float) -> None:
    graph = random_graph(200, 4, 1500)
    one, three = (mine_rules(graph, MiningOptions(threads=threads, budget=budget)).rules for threads in (1, 3))
    for column in ("head", "body", "head_constant", "body_constant", "body_count", "support", "error"):
        assert np.array_equal(getattr(one, column), getattr(three, column)), column


def test_estimates_are_marked_and_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mine, "PILOT_STARTS", 4)
    graph = random_graph(300, 2, 1500)
    options = MiningOptions(length=2, constants=False, min_support=1, min_confidence=1e-9)
    exact = closed_counts(mine_rules(graph, options).rules)
    seeds = 300
    support, body_count = dict.fromkeys(exact, 0.0), dict.fromkeys(exact, 0.0)
    squares, marked = dict.fromkeys(exact, 0.0), 0
    for seed in range(seeds):
        rules = mine_rules(graph, replace(options, seed=seed, budget=3000.0)).rules
        marked += int(np.count_nonzero(rules.error > 0))
        for rule, (s, n) in closed_counts(rules).items():
            support[rule] += s / seeds
            body_count[rule] += n / seeds
            squares[rule] += n * n / seeds
    assert marked > 0
    for rule, (s, n) in exact.items():
        if s >= 30:
            assert support[rule] == pytest.approx(s, rel=0.15), rule
            spread = np.sqrt(max(squares[rule] - body_count[rule] ** 2, 1) / seeds)
            assert abs(body_count[rule] - n) < 5 * spread + 1, rule


def test_an_estimate_is_marked_even_where_the_sample_saw_nothing() -> None:
    # Relations 2 and 3 have two edges each, in bodies that begin with one of thousands.
    rng = np.random.default_rng(0)
    many = np.stack([rng.integers(0, 2000, 4000), rng.integers(0, 2, 4000), rng.integers(0, 2000, 4000)], axis=1)
    rare = [[many[i, 0], 3, i] for i in range(2)] + [[many[i, 2], 2, i] for i in range(2)]
    graph = Adjacency.build(np.concatenate([many, rare]).astype(np.int32), 2000, 4)
    options = MiningOptions(length=2, constants=False, min_support=1, min_confidence=1e-6)
    exact = closed_counts(mine_rules(graph, options).rules)
    for seed in range(3):
        found = mine_rules(graph, replace(options, budget=2e4, seed=seed)).rules
        sure = found.take(found.error == 0)
        assert 0 < len(sure) < len(found)
        assert all(exact[rule] == counts for rule, counts in closed_counts(sure).items())


def test_two_entities_may_be_linked_by_more_relations_than_the_table_first_holds() -> None:
    triples = np.array([(x, r, x + 1) for r in range(4200) for x in (0, 2)], np.int32)
    options = MiningOptions(length=1, constants=False, min_support=3)
    assert len(mine_rules(Adjacency.build(triples, 4, 4200), options).rules) == 0


def test_a_star_of_a_hundred_thousand_edges_is_mined_within_the_budget() -> None:
    edges = 100_000
    triples = np.zeros((edges, 3), np.int32)
    triples[:, 2] = np.arange(1, edges + 1)
    triples[:, 1] = np.arange(edges) % 2
    found = mine_rules(Adjacency.build(triples, edges + 1, 2), MiningOptions(budget=1e7)).rules
    assert not np.any(found.is_closed)  # no two leaves are linked by more than the hub


def test_interrupting_keeps_the_rules_found_so_far() -> None:
    graph = random_graph(40, 4, 300)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "bodies of length 3":
            raise KeyboardInterrupt

    mined = mine_rules(graph, MiningOptions(), interrupt)
    assert not mined.complete
    assert set(mined.rules.length[mined.rules.is_closed].tolist()) == {1, 2}
    assert not mined.rules.is_closed.all()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("length", 4, r"length=4: expected 1 to 3"),
        ("min_support", 0, r"min_support=0: expected 1 or more"),
        ("constant_support", 0, r"constant_support=0"),
        ("min_confidence", 0.0, r"min_confidence=0.0: expected a share above 0"),
        ("constant_confidence", 1.5, r"constant_confidence=1.5"),
        ("max_constants", -1, r"max_constants=-1: expected 0 or more"),
        ("budget", -1.0, r"budget=-1.0: expected a positive number"),
        ("budget", float("nan"), r"budget=nan: expected a positive number"),
        ("seed", -1, r"seed=-1: expected 0 or more"),
    ],
)
def test_senseless_options_are_refused_by_name(option: str, value: float, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        MiningOptions(**{option: value})  # type: ignore[arg-type]


def test_an_empty_graph_has_no_rules() -> None:
    assert len(mine_rules(Adjacency.build(np.empty((0, 3), np.int32), 0, 0)).rules) == 0


def published_rules(graph: Graph) -> list[naive_rules.Closed]:
    """The authors' rules, inverse heads turned round as we store them."""
    n = graph.num_relations

    def relation(text: str) -> int:
        return graph.labels.relation_id(text.removesuffix("^-1")) + (n if text.endswith("^-1") else 0)

    rules = []
    for line in (SHARED / "NELL23K" / "published_rules.tsv").read_text().splitlines()[1:]:
        _, head_text, body_text = line.split("\t")
        head, body = relation(head_text), tuple(map(relation, body_text.split()))
        if head >= n:
            head, body = head - n, tuple(b + n if b < n else b - n for b in reversed(body))
        rules.append((head, body))
    return rules


def test_the_rules_that_the_authors_published_are_found() -> None:
    folders = [folder for folder in [SHARED / "NELL23K"] if folder.exists()]
    for folder in folders:
        graph = load_graph(folder)
        options = MiningOptions(min_support=1, min_confidence=1e-4, constants=False)
        found = closed_counts(mine_rules(graph.train, options).rules)
        published = published_rules(graph)
        missing = [rule for rule in published if rule not in found]
        assert len(published) == 775
        assert len(missing) <= 0.05 * len(published)
        # Those that are not found predict no fact but by walks that visit an entity twice, or by none.
        for head, body in missing:
            pairs = graph.train.triples[graph.train.triples[:, 1] == head][:, [0, 2]]
            assert not any(is_linked(graph.train, [x], body, y) for x, y in pairs.tolist())
    assert closed_counts(mine_rules(adjacency_of({(0, 0, 1), (0, 1, 1)}), EVERYTHING).rules)[0, (1,)] == (1, 1)


def is_linked(graph: Adjacency, visited: list[int], body: tuple[int, ...], end: int) -> bool:
    """Does a simple path along the body lead from where we stand to the end?"""
    if not body:
        return visited[-1] == end
    steps = graph.tails_of(visited[-1], body[0]).tolist()
    return any(is_linked(graph, [*visited, y], body[1:], end) for y in steps if y not in visited)


def test_only_the_best_rules_with_constants_are_kept() -> None:
    adjacency = random_graph(40, 3, 400)
    every = mine_rules(adjacency, MiningOptions(length=1, constant_support=1, constant_confidence=1e-6)).rules
    constant = sorted_rules(every.take(~every.is_closed), by_confidence=True)
    for most in (0, 1, 7, 50):
        options = MiningOptions(length=1, constant_support=1, constant_confidence=1e-6, max_constants=most)
        some = mine_rules(adjacency, options).rules
        found = sorted_rules(some.take(~some.is_closed), by_confidence=True)
        assert len(constant) > 4 * most  # so that some are left out on the way
        for name in ("head", "body", "head_constant", "body_constant", "support", "body_count"):
            assert np.array_equal(getattr(found, name), getattr(constant, name)[:most])

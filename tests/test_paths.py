"""Sampled paths are valid, simple, complete and uniform, whatever the hubs and the threads."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_paths import Path, paths_of, search
from path_cases import R, assert_uniform, graph_of, hop_counts, of_length, one, rules_of, seeds, tally, triples

from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids
from squire.paths.paths import EDGE, RANDOM, Paths
from squire.paths.sampling import sample_paths


@settings(max_examples=150, deadline=None)
@given(triples, hop_counts, st.integers(1, 7), seeds)
def test_every_path_is_one_that_the_twin_finds(
    edges: list[tuple[int, int, int]], hops: int, per_triple: int, seed: int
) -> None:
    graph = graph_of(edges)
    queries = both_directions(graph.triples, R)
    paths = sample_paths(graph, queries, hops=hops, per_triple=per_triple, seed=seed, threads=1)
    for row, query in enumerate(queries.tolist()):
        there = search(graph, tuple(query), hops)
        found = paths_of(paths, row)
        assert found.total() == per_triple
        assert len(found) == np.count_nonzero(paths.row == row)  # what is the same was merged
        if there:
            assert set(found) <= there
            assert (paths.source[paths.row == row] == RANDOM).all()
        else:
            assert set(found) == {((query[1], query[2]),)}
            assert (paths.source[paths.row == row] == EDGE).all()


@settings(max_examples=60, deadline=None)
@given(triples, hop_counts, st.data())
def test_with_many_draws_every_path_appears_and_lengths_take_equal_shares(
    edges: list[tuple[int, int, int]], hops: int, data: st.DataObject
) -> None:
    graph = graph_of(edges)
    queries = both_directions(graph.triples, R)
    query = data.draw(st.sampled_from(queries.tolist()))
    there = search(graph, tuple(query), hops)
    if not there:
        return
    sizes = Counter(len(path) for path in there)
    draws = 40 * max(sizes.values())  # a path is missed with probability e^-40
    paths = sample_paths(
        graph, one(*query), hops=hops, per_triple=draws * len(sizes), seed=data.draw(seeds), threads=1
    )
    found = paths_of(paths, 0)
    assert set(found) == there
    for length in sizes:
        assert of_length(found, length).total() == draws


DENSE = sorted(
    {(h, r, (3 * h * h + 5 * h + 2 * r + 1 + k) % 9) for h in range(9) for r in range(3) for k in (0, 2)}
)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_draws_are_uniform_within_a_length(length: int, turned: bool) -> None:
    graph = graph_of(DENSE, 9, 3)
    between = [(h, r, t) for h, r, t in DENSE if len(graph.relations_between(h, t)) > 2 and h != t]
    query = (between[0][2], between[0][1] + 3, between[0][0]) if turned else between[0]
    there = {path for path in search(graph, query, 4) if len(path) == length}
    assert len(there) > 1
    draws = 60 * len(there)
    paths = sample_paths(graph, one(*query), hops=4, per_triple=4 * draws, seed=20, threads=1)
    assert_uniform(of_length(paths_of(paths, 0), length), there)


def test_rows_have_independent_streams() -> None:
    graph = graph_of(DENSE, 9, 3)
    query = next((h, r, t) for h, r, t in DENSE if h != t)
    queries = np.repeat(one(*query), 6000, axis=0)
    paths = sample_paths(graph, queries, hops=2, per_triple=1, seed=3)
    found = tally(paths)
    there = search(graph, query, 2)
    for length in (1, 2):
        support = {path for path in there if len(path) == length}
        if support:
            assert_uniform(of_length(found, length), support)
    # With one place a row, chance decides which length gets it: each of them half the time.
    lengths = Counter(len(path) for path in there)
    assert len(lengths) == 2
    assert abs(of_length(found, 2).total() - 3000) < 3.7 * (6000 / 4) ** 0.5


def test_places_that_do_not_divide_evenly_differ_by_one() -> None:
    graph = graph_of([(0, 0, 1), (0, 1, 1), (0, 0, 2), (2, 0, 1), (2, 1, 3), (3, 0, 1)])
    queries = np.repeat(one(0, 0, 1), 200, axis=0)
    paths = sample_paths(graph, queries, hops=3, per_triple=7, seed=0)
    extra: Counter[int] = Counter()
    for row in range(200):
        found = paths_of(paths, row)
        shares = {length: of_length(found, length).total() for length in (1, 2, 3)}
        assert sorted(shares.values()) == [2, 2, 3]
        extra[max(shares, key=lambda length: shares[length])] += 1
    assert all(count > 40 for count in extra.values())
    assert len(extra) == 3


def test_the_query_edge_and_its_twin_are_never_used() -> None:
    graph = graph_of([(0, 0, 1), (0, 1, 1), (1, 0, 0)])
    queries = np.concatenate([one(0, 0, 1), one(1, 2, 0), one(1, 0, 0)])
    paths = sample_paths(graph, queries, per_triple=60, seed=0)
    assert set(paths_of(paths, 0)) == {((1, 1),), ((2, 1),)}  # r1, and r0⁻¹ of the triple (1, r0, 0)
    assert set(paths_of(paths, 1)) == {((3, 0),), ((0, 0),)}
    assert set(paths_of(paths, 2)) == {((2, 0),), ((3, 0),)}


def test_without_any_path_the_edge_itself_takes_all_the_weight() -> None:
    paths = sample_paths(graph_of([(0, 0, 1)]), one(0, 0, 1), per_triple=6, seed=0)
    assert (paths.relations.tolist(), paths.entities.tolist()) == ([[0, -1, -1]], [[1, -1, -1]])
    assert (paths.weight.tolist(), paths.source.tolist(), paths.rule.tolist()) == ([6], [EDGE], [-1])


def test_the_edge_itself_may_weigh_less() -> None:
    graph = graph_of([(0, 0, 1), (1, 1, 2), (0, 1, 2), (3, 0, 4)])  # 0 and 1 have another way, 3 and 4 none
    queries = np.array([(0, 0, 1), (3, 0, 4)], np.int32)
    paths = sample_paths(graph, queries, per_triple=6, edge_weight=2, seed=0)
    assert [paths_of(paths, row).total() for row in (0, 1)] == [6, 2]


def test_a_self_loop_is_remembered_as_an_edge_and_walked_by_none() -> None:
    graph = graph_of([(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 1, 1)])
    paths = sample_paths(graph, np.concatenate([one(0, 0, 0), one(0, 1, 2)]), hops=4, per_triple=30, seed=0)
    assert paths_of(paths, 0) == {((0, 0),): 30}
    assert paths_of(paths, 1) == {((0, 1), (0, 2)): 30}


def test_a_query_need_not_be_an_edge_of_the_graph() -> None:
    paths = sample_paths(graph_of([(0, 0, 1), (1, 0, 2)]), one(0, 1, 2), seed=0)
    assert paths_of(paths, 0) == {((0, 1), (0, 2)): 6}
    paths = sample_paths(graph_of([(0, 0, 1), (1, 1, 0)]), one(0, 1, 1), per_triple=40, seed=0)
    assert set(paths_of(paths, 0)) == {((0, 1),), ((3, 1),)}


def test_no_queries_give_no_paths() -> None:
    paths = sample_paths(graph_of([(0, 0, 1)]), np.empty((0, 3), np.int32), seed=0)
    assert len(paths) == 0
    assert paths.relations.shape == (0, 3)


@pytest.mark.parametrize("hops", [3, 4])
def test_threads_change_nothing_and_the_seed_does(hops: int) -> None:
    rng = np.random.default_rng(5)
    graph = graph_of([tuple(t) for t in rng.integers(0, (40, 3, 40), (160, 3)).tolist()], 40, 3)
    queries = both_directions(graph.triples, 3)
    rules = rules_of((0, [1, 2], 50), (1, [0, 3, 2], 40), (2, [4], 30), relations=3)
    runs = [
        sample_paths(graph, queries, rules, hops=hops, seed=seed, threads=threads)
        for seed, threads in ((1, 1), (1, 2), (1, 3), (2, 2))
    ]
    for other in runs[1:3]:
        assert np.array_equal(runs[0].relations, other.relations)
        assert np.array_equal(runs[0].entities, other.entities)
        assert np.array_equal(runs[0].weight, other.weight)
        assert np.array_equal(runs[0].rule, other.rule)
    random = (paths.relations[paths.source == RANDOM].tolist() for paths in (runs[0], runs[3]))
    assert next(random) != next(random)


def test_progress_is_told_up_to_the_end() -> None:
    graph = graph_of([(h, 0, (h + 1) % 6) for h in range(6)])
    told: list[tuple[int, int]] = []
    sample_paths(graph, graph.triples, seed=0, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (6, 6)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_an_interruption_ends_all_threads() -> None:
    graph = graph_of([(h, 0, (h + 1) % 6) for h in range(6)])

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_paths(graph, graph.triples, seed=0, threads=2, progress=interrupt)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": 0}, r"hops=0: expected 1 to 4"),
        ({"hops": 5}, r"hops=5"),
        ({"per_triple": 0}, r"per_triple=0"),
        ({"threads": 0}, r"threads=0"),
        ({"seed": -1}, r"seed=-1"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        sample_paths(graph_of([(0, 0, 1)]), one(0, 0, 1), **{"seed": 0, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("query", [(6, 0, 1), (0, 4, 1), (0, 0, -1)])
def test_queries_of_unknown_ids_are_refused(query: tuple[int, int, int]) -> None:
    with pytest.raises(SettingError, match=r"queries contain ids that are not in the graph.*\(6, 4, 6\)"):
        sample_paths(graph_of([(0, 0, 1)]), one(*query), seed=0)


def peak_of_sampling(graph: Adjacency, queries: Ids, hops: int) -> tuple[Paths, float]:
    tracemalloc.start()
    paths = sample_paths(graph, queries, hops=hops, seed=0)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return paths, peak


@pytest.mark.parametrize("hops", [3, 4])
def test_a_star_of_100_000_edges(hops: int) -> None:
    n = 100_000
    star = np.stack([np.zeros(n), np.zeros(n), np.arange(1, n + 1)], axis=1).astype(np.int32)
    graph = Adjacency.build(star, n + 1, 1)
    paths, peak = peak_of_sampling(graph, both_directions(star, 1), hops)
    assert (paths.source == EDGE).all()
    assert peak < 300


def test_two_hubs_with_100_000_leaves_in_common() -> None:
    n = 100_000
    leaves = np.arange(2, n + 2)
    sides = [np.stack([np.full(n, hub), np.full(n, hub), leaves], axis=1) for hub in (0, 1)]
    triples = np.concatenate(sides).astype(np.int32)
    graph = Adjacency.build(triples, n + 2, 2)
    queries = both_directions(triples[:n], 2)
    paths, peak = peak_of_sampling(graph, queries, 3)
    assert peak < 300
    assert (paths.length == 3).all()
    assert (paths.source == RANDOM).all()
    # hub → another leaf → other hub → the leaf: all other leaves are as likely
    middle = paths.entities[paths.row < n, 0]
    assert (middle != paths.queries[paths.row[paths.row < n], 2]).all()
    tenths = np.bincount((middle - 2) * 10 // n, minlength=10)
    expected = len(middle) / 10
    assert ((tenths - expected) ** 2 / expected).sum() < 33.7  # 9 degrees of freedom, once in 10,000


def test_leaves_of_a_hub_that_know_each_other() -> None:
    n = 100_000
    leaves = np.arange(1, n + 1)
    star = np.stack([np.zeros(n), np.zeros(n), leaves], axis=1)
    friends = np.stack([leaves[::2], np.ones(n // 2), leaves[1::2]], axis=1)
    triples = np.concatenate([star, friends]).astype(np.int32)
    graph = Adjacency.build(triples, n + 1, 2)
    paths, peak = peak_of_sampling(graph, both_directions(friends.astype(np.int32), 2), 3)
    assert peak < 300
    assert paths.weight.tolist() == [6] * n  # one path each: leaf → hub → friend
    assert (paths.entities[:, 0] == 0).all()


@pytest.mark.parametrize("hops", [2, 3, 4])
def test_what_is_looked_up_at_a_hub_is_counted_like_what_is_spread(hops: int) -> None:
    # Two leaves of two hubs with 60 leaves each: for one query the hubs are looked up, not spread.
    edges = [(hub, hub % 2, leaf) for hub in (0, 1) for leaf in range(2, 62)]
    edges += [(2, 0, 3), (3, 1, 4), (4, 0, 2), (0, 1, 2), (1, 0, 3), (0, 0, 1)]
    graph = graph_of(edges, 62)
    there = search(graph, (2, 0, 3), hops)
    sizes = Counter(len(path) for path in there)
    for length in sizes:
        support = {path for path in there if len(path) == length}
        draws = 50 * len(support) * len(sizes)
        if draws < 100_000:
            paths = sample_paths(graph, one(2, 0, 3), hops=hops, per_triple=draws, seed=8, threads=1)
            assert_uniform(of_length(paths_of(paths, 0), length), support)


def test_random_tries_for_a_first_step_are_uniform() -> None:
    # 100 leaves of two hubs, some by two edges: three hops from hub to leaf go over all the others.
    edges = [(hub, 0, leaf) for hub in (0, 1) for leaf in range(2, 102)]
    edges += [(hub, 1, leaf) for hub in (0, 1) for leaf in range(2, 102, 3 + hub)]
    graph = graph_of(edges, 102)
    for query in ((0, 0, 7), (7, 2, 0)):
        there: set[Path] = {path for path in search(graph, query, 3) if len(path) == 3}
        paths = sample_paths(graph, one(*query), per_triple=50 * len(there), seed=4, threads=1)
        assert_uniform(of_length(paths_of(paths, 0), 3), there)

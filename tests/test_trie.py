from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from itertools import pairwise
from pathlib import Path as File

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_paths import Path, multiset, prefixes

from squire.core.relations import both_directions
from squire.errors import DataError, SettingError
from squire.graph.adjacency import Adjacency
from squire.paths.paths import RANDOM, Paths
from squire.paths.sampling import sample_paths
from squire.paths.tries import Tries, add_paths, build_tries, unfold

Row = tuple[int, int, list[tuple[tuple[tuple[int, int], ...], int]]]  # head, relation, (path, weight)


def paths_from(rows: list[Row], hops: int = 3) -> Paths:
    """Paths as they are given: not merged, in any order within a row."""
    flat = [(i, path, weight) for i, (_, _, paths) in enumerate(rows) for path, weight in paths]
    relations, entities = (np.full((len(flat), hops), -1, np.int32) for _ in range(2))
    for at, (_, path, _) in enumerate(flat):
        for hop, (relation, entity) in enumerate(path):
            relations[at, hop], entities[at, hop] = relation, entity
    return Paths(
        queries=np.array([(head, relation, 0) for head, relation, _ in rows], np.int32).reshape(-1, 3),
        row=np.array([i for i, _, _ in flat], np.int64),
        length=np.array([len(path) for _, path, _ in flat], np.int32),
        relations=relations,
        entities=entities,
        weight=np.array([weight for _, _, weight in flat], np.int32),
        source=np.full(len(flat), RANDOM, np.int8),
        rule=np.full(len(flat), -1, np.int64),
    )


def unfolded(tries: Tries) -> Counter[tuple[int, int, Path]]:
    counted: Counter[tuple[int, int, Path]] = Counter()
    out = unfold(tries)
    for query, relations, entities, weight in zip(*(column.tolist() for column in out), strict=True):
        path = tuple((r, e) for r, e in zip(relations, entities, strict=True) if r >= 0)
        key = (*tries.queries[query].tolist(), path)
        assert key not in counted
        counted[key] = weight
    return counted


def weights(tries: Tries) -> npt.NDArray[np.int64]:
    """The weight of the paths through each node: those that end at it or below.  (node)"""
    total = tries.end.astype(np.int64)
    for first, last in pairwise(tries.offsets.tolist()):
        for node in range(last - 1, first - 1, -1):
            if tries.parent[node] >= 0:
                total[first + tries.parent[node]] += total[node]
    return total


def node_prefixes(tries: Tries) -> Counter[tuple[int, ...]]:
    """The tokens from the root to every node, and its weight, by following the parents."""
    counted: Counter[tuple[int, ...]] = Counter()
    weight = weights(tries)
    for query, (first, last) in enumerate(pairwise(tries.offsets)):
        for node in range(first, last):
            tokens: list[int] = []
            here = node - first
            while here != -1:
                tokens.insert(0, int(tries.token[first + here]))
                assert tries.parent[first + here] < here
                here = int(tries.parent[first + here])
            assert len(tokens) == tries.depth[node]
            key = (*tries.queries[query].tolist(), *tokens)
            assert key not in counted
            counted[key] = int(weight[node])
    return counted


hop = st.tuples(st.integers(0, 2), st.integers(0, 3))
weighted = st.lists(st.tuples(st.lists(hop, min_size=1, max_size=3).map(tuple), st.integers(1, 6)), max_size=12)
row_lists = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), weighted), max_size=6)


@settings(max_examples=200, deadline=None)
@given(row_lists, st.integers(1, 3))
def test_unfolding_gives_back_the_multiset(rows: list[Row], threads: int) -> None:
    paths = paths_from(rows)
    tries = build_tries(paths, threads=threads)
    assert unfolded(tries) == multiset(paths)
    assert node_prefixes(tries) == prefixes(multiset(paths))
    queries = {(head, relation) for head, relation, paths in rows if paths}
    assert tries.queries.tolist() == sorted(map(list, queries))


@settings(max_examples=100, deadline=None)
@given(row_lists, row_lists, st.integers(3, 4))
def test_paths_added_to_trees_are_as_if_built_with_them(before: list[Row], more: list[Row], hops: int) -> None:
    old, new = paths_from(before), paths_from(more, hops)
    grown, whole = add_paths(build_tries(old), new), build_tries(Paths.concatenate([old, new]))
    for column in fields(Tries):
        ours, theirs = getattr(grown, column.name), getattr(whole, column.name)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs), column.name


@settings(max_examples=100, deadline=None)
@given(row_lists)
def test_a_path_ends_at_an_entity(rows: list[Row]) -> None:
    tries = build_tries(paths_from(rows), threads=1)
    assert (weights(tries) > 0).all()
    assert (tries.end[tries.depth % 2 == 1] == 0).all()


def test_a_small_tree() -> None:
    rows: list[Row] = [
        (0, 1, [(((5, 6),), 2), (((5, 6), (7, 8)), 4)]),
        (0, 1, [(((5, 9),), 6)]),  # the same query, another tail
    ]
    tries = build_tries(paths_from(rows))
    assert tries.queries.tolist() == [[0, 1]]
    assert tries.token.tolist() == [5, 6, 7, 8, 9]
    assert tries.parent.tolist() == [-1, 0, 1, 2, 0]
    assert tries.depth.tolist() == [1, 2, 3, 4, 2]
    assert weights(tries).tolist() == [12, 6, 4, 4, 6]
    assert tries.end.tolist() == [0, 2, 0, 4, 6]


def sampled() -> Paths:
    rng = np.random.default_rng(0)
    graph = Adjacency.build(rng.integers(0, (30, 3, 30), (120, 3)).astype(np.int32), 30, 3)
    return sample_paths(graph, both_directions(graph.triples, 3), hops=3, per_triple=6, seed=1)


def test_sampled_paths_lose_nothing_and_threads_change_nothing() -> None:
    paths = sampled()
    tries = [build_tries(paths, threads=threads) for threads in (1, 2, 3)]
    assert unfolded(tries[0]) == multiset(paths)
    assert tries[0].end.sum() == 6 * len(paths.queries)
    assert tries[0].num_nodes == len(prefixes(multiset(paths)))
    for other in tries[1:]:
        for name in ("queries", "offsets", "token", "parent", "depth", "end"):
            assert np.array_equal(getattr(tries[0], name), getattr(other, name))


def test_paths_gathered_in_rounds_merge_with_their_weights() -> None:
    first = paths_from([(0, 1, [(((1, 2),), 3)]), (2, 0, [(((1, 1),), 1)])], hops=2)
    second = paths_from([(0, 1, [(((1, 2),), 1), (((1, 2), (0, 3), (2, 4)), 2)])], hops=3)
    together = Paths.concatenate([first, second])
    assert multiset(together) == multiset(first) + multiset(second)
    assert unfolded(build_tries(together)) == {
        (0, 1, ((1, 2),)): 4,
        (0, 1, ((1, 2), (0, 3), (2, 4))): 2,
        (2, 0, ((1, 1),)): 1,
    }


def test_saved_tries_are_read_where_they_lie(tmp_path: File) -> None:
    tries = build_tries(sampled())
    file = tmp_path / "some" / "tries.safetensors"
    tries.save(file)
    loaded = Tries.load(file)
    for name in ("queries", "offsets", "token", "parent", "depth", "end"):
        assert isinstance(getattr(loaded, name), np.memmap)
        assert getattr(loaded, name).dtype == getattr(tries, name).dtype
        assert np.array_equal(getattr(tries, name), getattr(loaded, name))
    assert unfolded(loaded) == unfolded(tries)
    assert [file.name for file in file.parent.iterdir()] == ["tries.safetensors"]


def test_no_paths_make_no_tries(tmp_path: File) -> None:
    tries = build_tries(paths_from([]))
    tries.save(tmp_path / "empty")
    for empty in (tries, Tries.load(tmp_path / "empty")):
        assert (len(empty), empty.num_nodes, empty.offsets.tolist()) == (0, 0, [0])
        assert unfolded(empty) == {}


def test_a_file_that_holds_no_tries_is_refused(tmp_path: File) -> None:
    file = tmp_path / "tries"
    build_tries(sampled()).save(file)
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")

    file.write_bytes(whole[:-10])
    with pytest.raises(
        DataError, match=r"tries: damaged or cut short \(the data ends too early\)\. Sample the paths again"
    ):
        Tries.load(file)
    file.write_bytes(b"head\trelation\ttail\n" * 100)
    with pytest.raises(DataError, match=r"tries: damaged or cut short"):
        Tries.load(file)
    file.write_bytes((5).to_bytes(8, "little") + b"{{{{{")
    with pytest.raises(DataError, match=r"tries: damaged or cut short"):
        Tries.load(file)
    header = json.loads(whole[8 : 8 + length])
    for change, message in (
        (
            {"__metadata__": {"squire_tries": "99"}},
            r"newer squire \(file of prefix trees version 99, this squire reads version 1",
        ),
        ({"token": None}, r"not prefix trees saved by squire: token missing"),
    ):
        kept = {name: about for name, about in {**header, **change}.items() if about is not None}
        text = json.dumps(kept).encode().ljust(length)
        file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
        with pytest.raises(DataError, match=message):
            Tries.load(file)


def test_threads_must_make_sense() -> None:
    with pytest.raises(SettingError, match=r"threads=0"):
        build_tries(sampled(), threads=0)

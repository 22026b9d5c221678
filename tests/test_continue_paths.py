"""Paths that go on from a prefix, and the table that people open."""

from __future__ import annotations

from collections import Counter
from pathlib import Path as File

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_paths import Path, paths_of, search_on
from path_cases import E, R, assert_uniform, atoms, graph_of, hop_counts, of_length, one, seeds, tally, triples

from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels
from squire.paths.paths import RANDOM, Paths
from squire.paths.sampling import continue_paths, sample_paths
from squire.paths.table import write_table
from squire.rules.rules import ClosedIndex, Rules

DENSE = sorted(
    {(h, r, (3 * h * h + 5 * h + 2 * r + 1 + k) % 9) for h in range(9) for r in range(3) for k in (0, 2)}
)


def continued(paths: Paths, rows: int) -> list[Counter[Path]]:
    return [paths_of(paths, row) for row in range(rows)]


@settings(max_examples=200, deadline=None)
@given(triples, hop_counts, st.data())
def test_continuations_are_those_of_the_twin(
    edges: list[tuple[int, int, int]], hops: int, data: st.DataObject
) -> None:
    graph = graph_of(edges)
    queries = both_directions(graph.triples, R)
    entities = st.integers(0, E - 1)
    prefix = st.lists(st.tuples(atoms, entities), max_size=hops).map(tuple)
    prefixes = [data.draw(prefix) for _ in queries]
    relations, stops = (np.full((len(queries), hops), -1, np.int32) for _ in range(2))
    for row, path in enumerate(prefixes):
        for hop, (relation, entity) in enumerate(path):
            relations[row, hop], stops[row, hop] = relation, entity
    paths = continue_paths(graph, queries, relations, stops, hops=hops, seed=data.draw(seeds), threads=1)
    for row, found in enumerate(continued(paths, len(queries))):
        query = tuple(queries[row].tolist())
        there = search_on(graph, query, prefixes[row], hops)
        assert found.total() == (1 if there else 0)
        assert set(found) <= there


@pytest.mark.parametrize("prefix_hops", [1, 2])
def test_continuations_are_uniform_within_a_length(prefix_hops: int) -> None:
    graph = graph_of(DENSE, 9, 3)
    query = next((h, r, t) for h, r, t in DENSE if h != t)
    others = sorted(set(graph.edges(query[2])[1].tolist()) - {query[0]})
    prefix = tuple((5, entity) for entity in others[:prefix_hops])
    there = search_on(graph, query, prefix, 4)
    lengths = {len(path) for path in there}
    assert len(lengths) > 1
    rows = 60 * len(there)
    relations, stops = (np.tile(np.array(column, np.int32), (rows, 1)) for column in zip(*prefix, strict=True))
    paths = continue_paths(graph, np.repeat(one(*query), rows, axis=0), relations, stops, hops=4, seed=5)
    assert len(paths) == rows
    found = tally(paths)
    for length in lengths:
        assert_uniform(of_length(found, length), {path for path in there if len(path) == length})
        share = of_length(found, length).total() / rows
        assert abs(share - 1 / len(lengths)) < 3.7 * (0.25 / rows) ** 0.5


def test_a_prefix_is_continued_only_to_a_simple_path_off_the_query_edge() -> None:
    graph = graph_of([(0, 0, 1), (0, 1, 2), (2, 1, 1), (2, 0, 3), (3, 0, 1)])
    queries = np.repeat(one(0, 0, 1), 5, axis=0)
    relations = np.array([[1, -1], [0, -1], [1, 3], [1, 1], [1, 0]], np.int32)
    stops = np.array([[2, -1], [1, -1], [2, 0], [2, 1], [4, 5]], np.int32)
    paths = continue_paths(graph, queries, relations, stops, hops=2, seed=0)
    assert continued(paths, 5) == [
        {((1, 2), (1, 1)): 1},  # on to the tail
        {},  # walks the query edge
        {},  # is back at the head
        {((1, 2), (1, 1)): 1},  # is already whole
        {},  # has no hop left
    ]
    assert paths.row.tolist() == [0, 3]
    assert (paths.source == RANDOM).all()


@pytest.mark.parametrize(
    ("relations", "stops", "message"),
    [
        (
            [[0]],
            [[1, 2]],
            r"of shape \(1, 1\), prefix_entities of shape \(1, 2\): expected \(1, hops\)",
        ),
        ([[0, -1]], [[1, 2]], r"expected the same hops, padded with -1 at the end"),
        ([[-1, 0]], [[-1, 2]], r"expected the same hops, padded with -1 at the end"),
        ([[4]], [[2]], r"prefix_relations contain ids .* less than 4"),
        ([[0]], [[6]], r"prefix_entities contain ids .* less than 6"),
        ([[0, 0, 0, 0]], [[2, 3, 4, 5]], r"hops=3: a prefix has 4 hops"),
    ],
)
def test_prefixes_that_make_no_sense_are_refused(
    relations: list[list[int]], stops: list[list[int]], message: str
) -> None:
    arrays = (np.array(ids, np.int32) for ids in (relations, stops))
    with pytest.raises(SettingError, match=message):
        continue_paths(graph_of([(0, 0, 1)]), one(0, 0, 1), *arrays, seed=0)


def test_the_table_holds_labels_sources_and_confidences(tmp_path: File) -> None:
    names = Labels(LabelIndex(["a", "b", "c", "d"], "entity"), LabelIndex(["likes", "meets"], "relation"))
    train = np.array([(0, 0, 1), (0, 1, 2), (1, 0, 2), (0, 0, 3)], np.int32)
    graph = Graph.build("tiny", names, {"train": train})
    rules = Rules.closed(2, *(np.array(x, np.int32) for x in ([0], [[1, 2, -1]], [40], [10])))
    queries = np.concatenate([one(0, 0, 1), one(1, 2, 0), one(2, 3, 0), one(3, 2, 0)])
    paths = sample_paths(graph.train, queries, ClosedIndex.from_rules(rules), seed=0)
    write_table(paths, graph, rules, tmp_path / "paths.parquet")
    columns = ("head", "relation", "tail", "path", "source", "confidence", "weight")
    rows = pq.read_table(tmp_path / "paths.parquet").to_pylist()
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("a", "likes", "b", ["meets", "c", "likes⁻¹", "b"], "rule", 0.25, 6),
        ("b", "likes⁻¹", "a", ["likes", "c", "meets⁻¹", "a"], "rule", 0.25, 6),
        ("c", "meets⁻¹", "a", ["likes⁻¹", "b", "likes⁻¹", "a"], "random", None, 6),
        ("d", "likes⁻¹", "a", ["likes⁻¹", "a"], "edge", None, 6),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["paths.parquet"]

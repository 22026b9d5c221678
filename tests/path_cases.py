"""Small graphs, tallies and the test of uniformity that the tests of paths share."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import strategies as st
from naive_paths import Path

from squire.graph.adjacency import Adjacency, Ids
from squire.paths.paths import Paths
from squire.rules.rules import ClosedIndex, Rules

R = 2  # relations of the random graphs
E = 6  # entities


def graph_of(triples: list[tuple[int, int, int]], entities: int = E, relations: int = R) -> Adjacency:
    return Adjacency.build(np.array(triples, np.int32).reshape(-1, 3), entities, relations)


def one(*query: int) -> Ids:
    return np.array([query], np.int32)


def rules_of(*rules: tuple[int, list[int], int], relations: int = R) -> ClosedIndex:
    """Closed rules (head, body, support of 100)."""
    head = np.array([rule[0] for rule in rules], np.int32)
    body = np.array([rule[1] + [-1] * (3 - len(rule[1])) for rule in rules], np.int32).reshape(-1, 3)
    support = np.array([rule[2] for rule in rules])
    return ClosedIndex.from_rules(Rules.closed(relations, head, body, np.full(len(rules), 100), support))


def assert_uniform(counts: Counter[Path], support: set[Path]) -> None:
    """Chi-square, made normal by Wilson and Hilferty: beyond 3.7 once in 10,000 seeds."""
    assert set(counts) == support
    degrees = len(support) - 1
    if degrees == 0:
        return
    expected = counts.total() / len(support)
    statistic = sum((counts[path] - expected) ** 2 / expected for path in support)
    spread = 2 / (9 * degrees)
    deviation = ((statistic / degrees) ** (1 / 3) - (1 - spread)) / spread**0.5
    assert abs(deviation) < 3.7, (statistic, degrees)


def tally(paths: Paths) -> Counter[Path]:
    """The paths of all rows together."""
    columns = (column.tolist() for column in (paths.relations, paths.entities, paths.length))
    return Counter(
        tuple(zip(relations[:n], stops[:n], strict=True)) for relations, stops, n in zip(*columns, strict=True)
    )


def of_length(paths: Counter[Path], length: int) -> Counter[Path]:
    return Counter({path: weight for path, weight in paths.items() if len(path) == length})


triples = st.lists(
    st.tuples(st.integers(0, E - 1), st.integers(0, R - 1), st.integers(0, E - 1)), min_size=1, max_size=14
)
hop_counts = st.integers(1, 4)
seeds = st.integers(0, 2**64 - 1)
atoms = st.integers(0, 2 * R - 1)

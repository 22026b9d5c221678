"""The slow obvious twins of path search and prefix trees: recursion over sets, dictionaries of prefixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from squire.graph.adjacency import Adjacency
from squire.paths.paths import Paths

Edge = tuple[int, int, int]
Path = tuple[tuple[int, int], ...]  # ((relation, entity), …)


def edges_of(adjacency: Adjacency) -> set[Edge]:
    """Every edge, inverses included."""
    columns = (adjacency.heads, adjacency.relations, adjacency.tails)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def without_query(edges: set[Edge], query: Edge, num_relations: int) -> set[Edge]:
    """The edges less the query edge and its inverse twin."""
    head, relation, tail = query
    twin = relation + num_relations if relation < num_relations else relation - num_relations
    return edges - {(head, relation, tail), (tail, twin, head)}


def simple_paths(
    edges: Iterable[Edge], here: int, tail: int, hops: int, visited: frozenset[int] = frozenset()
) -> Iterator[Path]:
    """Every way on from `here` to `tail` that visits no entity twice."""
    visited = visited | {here}
    for head, relation, there in edges:
        if hops and head == here and there not in visited:
            if there == tail:
                yield ((relation, there),)
            else:
                for rest in simple_paths(edges, there, tail, hops - 1, visited):
                    yield ((relation, there), *rest)


def search(adjacency: Adjacency, query: Edge, hops: int) -> set[Path]:
    """All evidence paths of a query; none for a self-loop."""
    head, _, tail = query
    if head == tail:
        return set()
    edges = without_query(edges_of(adjacency), query, adjacency.num_relations)
    return set(simple_paths(edges, head, tail, hops))


def search_on(adjacency: Adjacency, query: Edge, prefix: Path, hops: int) -> set[Path]:
    """All whole paths that begin with the prefix, whose own edges need not exist."""
    head, relation, tail = query
    stops = [head, *(entity for _, entity in prefix)]
    if head == tail or len(set(stops)) < len(stops) or tail in stops[:-1] or prefix[:1] == ((relation, tail),):
        return set()
    if stops[-1] == tail:
        return {prefix}
    edges = without_query(edges_of(adjacency), query, adjacency.num_relations)
    rest = simple_paths(edges, stops[-1], tail, hops - len(prefix), frozenset(stops))
    return {prefix + path for path in rest}


def paths_of(paths: Paths, row: int) -> Counter[Path]:
    """The paths of one query row and their weights, as tuples."""
    counted: Counter[Path] = Counter()
    for at in (paths.row == row).nonzero()[0]:
        n = paths.length[at]
        hops = zip(paths.relations[at, :n].tolist(), paths.entities[at, :n].tolist(), strict=True)
        counted[tuple(hops)] += int(paths.weight[at])
        assert (paths.relations[at, n:] == -1).all()
        assert (paths.entities[at, n:] == -1).all()
    return counted


def multiset(paths: Paths) -> Counter[tuple[int, int, Path]]:
    """(head, relation, path) and its weight, over all rows."""
    counted: Counter[tuple[int, int, Path]] = Counter()
    for row, (head, relation, _) in enumerate(paths.queries.tolist()):
        for path, weight in paths_of(paths, row).items():
            counted[head, relation, path] += weight
    return counted


def prefixes(counted: Counter[tuple[int, int, Path]]) -> Counter[tuple[int, ...]]:
    """Every prefix (head, relation, token, …) of one token or more and the weight of the paths through it."""
    through: Counter[tuple[int, ...]] = Counter()
    for (head, relation, path), weight in counted.items():
        tokens = [token for hop in path for token in hop]
        for n in range(1, len(tokens) + 1):
            through[head, relation, *tokens[:n]] += weight
    return through

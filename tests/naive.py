"""Slow, obvious twins of what squire computes with arrays, in sets, dictionaries and loops: the specification."""

from collections import defaultdict
from collections.abc import Iterable

Triple = tuple[int, int, int]


class NaiveAdjacency:
    """Twin of `squire.graph.adjacency.Adjacency`: three dictionaries of sets over edges of both directions."""

    def __init__(self, triples: Iterable[Triple], num_relations: int) -> None:
        self.edges: set[Triple] = set()
        for head, relation, tail in triples:
            self.edges.add((head, relation, tail))
            self.edges.add((tail, relation + num_relations, head))
        self.by_head: dict[int, set[tuple[int, int]]] = defaultdict(set)
        self.by_head_relation: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.by_head_tail: dict[tuple[int, int], set[int]] = defaultdict(set)
        for head, relation, tail in self.edges:
            self.by_head[head].add((relation, tail))
            self.by_head_relation[head, relation].add(tail)
            self.by_head_tail[head, tail].add(relation)

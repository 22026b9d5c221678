"""Growing samples of a graph that look like it: each holds the smaller ones, and hangs together as the graph does.

Facts drawn at random would leave entities with a fraction of their edges, and entities drawn at random with the
square of it: then a small sample would be a sparser graph, not a smaller one, with few paths to learn from. So
entities are discovered from one of them along edges, each time by an edge drawn at random from all that lead out
of what is known (large graphs are explored this way, too), and a sample is all facts among the first so many.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import SPLITS, Graph
from squire.graph.labels import LabelIndex, Labels


def grown_sample(graph: Graph, share: float, seed: int = 0) -> Graph:
    """The first so many entities that have this share of the train facts among them, with all their facts.

    Valid and test keep the facts whose entities and relation are still in train. Larger shares of the same seed
    hold smaller ones; a share of 1 is the graph, without entities that train does not know.
    """
    if not 0 < share <= 1:
        raise SettingError(f"--sizes {share:g}: expected shares above 0, at most 1.")
    place = discovery(graph.train, np.random.default_rng(seed))
    joins = np.maximum(*place[graph.train.triples[:, ::2].T])  # the place at which a fact has both its ends
    last = np.sort(joins)[max(1, round(share * len(joins))) - 1]
    return _restricted(graph, place <= last, f"{graph.name}-{share:.0%}" if share < 1 else graph.name)


def discovery(edges: Adjacency, rng: np.random.Generator) -> Offsets:
    """The place of each entity in the order in which they are discovered; those without edges last.  (entity)"""
    place = np.full(edges.num_entities, -1)
    found = 0
    frontier: list[int] = []  # tails of edges that lead out of what is known, known by now or not
    for start in rng.permutation(np.flatnonzero(np.diff(edges.offsets))).tolist():
        frontier.append(start)  # of another part of the graph, once one is known whole
        while frontier:
            at = int(rng.random() * len(frontier))
            frontier[at], entity = frontier[-1], frontier[at]
            frontier.pop()
            if place[entity] < 0:
                place[entity] = found
                found += 1
                frontier.extend(edges.edges(entity)[1].tolist())
    place[place < 0] = np.arange(found, edges.num_entities)
    return place


def _restricted(graph: Graph, kept: npt.NDArray[np.bool_], name: str) -> Graph:
    """The graph among these entities.  kept: (entity)"""
    heads, _, tails = graph.train.triples.T
    train = graph.train.triples[kept[heads] & kept[tails]]
    entities, relations = np.unique(train[:, ::2]), np.unique(train[:, 1])
    new_entity, new_relation = (
        _renumbered(ids, size) for ids, size in ((entities, graph.num_entities), (relations, graph.num_relations))
    )
    splits = {}
    for split in SPLITS:
        heads, edges, tails = graph.triples(split).T
        triples = np.stack([new_entity[heads], new_relation[edges], new_entity[tails]], axis=1)
        splits[split] = triples[(triples >= 0).all(axis=1)]
    labels = Labels(
        LabelIndex(graph.labels.entities.array.take(entities), "entity"),
        LabelIndex(graph.labels.relations.array.take(relations), "relation"),
        graph.labels.prefixes,
    )
    return Graph.build(name, labels, splits)


def _renumbered(ids: Ids, size: int) -> Ids:
    """The new number of each id; −1 for those that are no more.  (id)"""
    new = np.full(size, -1, np.int32)
    new[ids] = np.arange(len(ids))
    return new

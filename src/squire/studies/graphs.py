"""Graphs for studies: growing samples of a graph, synthetic graphs with planted rules, and families."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import SPLITS, Graph
from squire.graph.labels import LabelIndex, Labels
from squire.graph.loading import load_graph
from squire.graph.triples import HOLDOUT

GraphSource = Graph | str | Path


def open_graph(graph: GraphSource, holdout: tuple[float, float] = HOLDOUT) -> Graph:
    """A graph as it is, or loaded from a file, a folder or a dataset's name."""
    return graph if isinstance(graph, Graph) else load_graph(graph, holdout=holdout)


# -------------------------------------------------------------------------------------------------- samples


def sample_graph(graph: Graph, share: float, seed: int = 0) -> Graph:
    """A connected sample with this share of the train facts, and the facts of valid and test about it.

    Random facts would leave every entity with a fraction of its edges, so a small sample would be a sparser graph
    rather than a smaller one. Instead entities are discovered along random edges, and a sample has all facts among
    the first of them. With the same seed, larger samples contain smaller ones; a share of 1 is the whole graph,
    without entities that have no train fact.
    """
    if not 0 < share <= 1:
        raise SettingError(f"sizes={share:g}: expected shares above 0 and at most 1.")
    position = discovery_order(graph.train, np.random.default_rng(seed))
    complete = np.maximum(*position[graph.train.triples[:, ::2].T])  # (fact): position of its later entity
    last = np.sort(complete)[max(1, round(share * len(complete))) - 1]
    return _subgraph(graph, position <= last, f"{graph.name}-{share:.0%}" if share < 1 else graph.name)


def discovery_order(edges: Adjacency, rng: np.random.Generator) -> Offsets:
    """The position of each entity in the order of discovery; entities without edges come last.  (entity)

    Each step follows an edge drawn at random from all that lead out of the entities discovered so far.
    """
    position = np.full(edges.num_entities, -1)
    found = 0
    frontier: list[int] = []  # tails of edges out of discovered entities; some are discovered themselves
    for start in rng.permutation(np.flatnonzero(np.diff(edges.offsets))).tolist():
        frontier.append(start)  # begins the next component once the previous one is exhausted
        while frontier:
            at = int(rng.random() * len(frontier))
            frontier[at], entity = frontier[-1], frontier[at]
            frontier.pop()
            if position[entity] < 0:
                position[entity] = found
                found += 1
                frontier.extend(edges.edges(entity)[1].tolist())
    position[position < 0] = np.arange(found, edges.num_entities)
    return position


def _subgraph(graph: Graph, keep: npt.NDArray[np.bool_], name: str) -> Graph:
    """The graph among the entities to keep.  keep: (entity)"""
    heads, _, tails = graph.train.triples.T
    train = graph.train.triples[keep[heads] & keep[tails]]
    entities, relations = np.unique(train[:, ::2]), np.unique(train[:, 1])
    new_entity = _renumbering(entities, graph.num_entities)
    new_relation = _renumbering(relations, graph.num_relations)
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


def _renumbering(ids: Ids, size: int) -> Ids:
    """The new number of each id; −1 for ids that are dropped.  (id)"""
    new = np.full(size, -1, np.int32)
    new[ids] = np.arange(len(ids))
    return new


# ------------------------------------------------------------------------------------------ synthetic graphs

FACTS_PER_ENTITY = 10
RELATIONS = 100  # of random facts and of rule bodies
LENGTHS = (1, 2, 3)  # of rule bodies
RULES_PER_LENGTH = 10
RANDOM_SHARE = 0.5
HELD_OUT = 1000  # facts of valid and of test, at most: enough to see a difference of .03 in MRR
HELD_OUT_SHARE = 0.1  # of the facts that follow from rules, at most
SMALLEST = 200


def synthetic_graph(edges: int, seed: int = 0) -> Graph:
    """A graph of about `edges` train facts, in which there are rules to learn.

    Half of the facts are random, with hubs and rare entities. The other half are instances of rules: a chain of
    body edges, and the fact that follows from it. Rule heads have relations of their own, and some of their facts
    are held out, so a model can find these only by the rules or by the frequency of tails. Bodies share their
    relations with the random facts, so a rule also makes wrong predictions.
    """
    if edges < SMALLEST:
        raise SettingError(f"synthetic={edges}: expected {SMALLEST} facts or more, to have enough for the rules.")
    rng = np.random.default_rng([seed, edges])
    entities = edges // FACTS_PER_ENTITY
    random = random_facts(rng, round(edges * RANDOM_SHARE), entities, RELATIONS)
    bodies, heads = _rule_instances(rng, edges - len(random), entities)
    heads = np.unique(heads, axis=0)
    count = min(HELD_OUT, int(len(heads) * HELD_OUT_SHARE / 2))
    order = rng.permutation(len(heads))
    splits = {
        "valid": heads[order[:count]],
        "test": heads[order[count : 2 * count]],
        "train": np.concatenate([random, bodies, heads[order[2 * count :]]]),
    }
    relations = RELATIONS + len(LENGTHS) * RULES_PER_LENGTH
    labels = Labels(
        LabelIndex(_numbered("e", entities), "entity"), LabelIndex(_numbered("r", relations), "relation")
    )
    return Graph.build(f"synthetic-{edges}", labels, splits)


def family_graph(families: int = 18, seed: int = 0) -> Graph:
    """Families of three generations, in which every fact follows from births and marriages.

    father, mother and spouse have one value; child, sibling and grandparent may have several. All is in train.
    """
    rng = np.random.default_rng(seed)
    facts: list[tuple[str, str, str]] = []
    number = 0

    def person() -> str:
        nonlocal number
        number += 1
        return f"p{number:05}"

    def children(father: str, mother: str) -> list[str]:
        born = [person() for _ in range(int(rng.integers(2, 5)))]
        facts.extend([(father, "spouse", mother), (mother, "spouse", father)])
        for child in born:
            facts.extend([(child, "father", father), (child, "mother", mother)])
            facts.extend((parent, "child", child) for parent in (father, mother))
            facts.extend((child, "sibling", other) for other in born if other != child)
        return born

    for _ in range(families):
        grandparents = person(), person()
        for child in children(*grandparents):
            couple = (child, person()) if rng.random() < 0.5 else (person(), child)
            for grandchild in children(*couple):
                facts.extend((grandchild, "grandparent", old) for old in grandparents)
    return Graph.from_triples(facts, name="family", holdout=(0.0, 0.0))


def random_facts(rng: np.random.Generator, count: int, entities: int, relations: int) -> Ids:
    """Random facts, more often between hubs; some may be drawn twice.  (count, 3)"""
    heads, tails = (_skewed(rng, count, entities) for _ in range(2))
    return np.stack([heads, _skewed(rng, count, relations), tails], axis=1)


def _skewed(rng: np.random.Generator, count: int, limit: int) -> Ids:
    """Ids below `limit`, small ones more often: u² is denser near 0.  (count)"""
    return (rng.random(count) ** 2 * limit).astype(np.int32)


def _rule_instances(rng: np.random.Generator, edges: int, entities: int) -> tuple[Ids, Ids]:
    """Body edges and the facts that follow, in equal shares for every rule.  (n, 3), (m, 3)"""
    bodies, heads = [], []
    each = edges // (len(LENGTHS) * RULES_PER_LENGTH)
    for rule in range(len(LENGTHS) * RULES_PER_LENGTH):
        length = LENGTHS[rule % len(LENGTHS)]
        count = max(1, each // (length + 1))
        body = rng.choice(RELATIONS, length, replace=False)
        chain = np.stack(
            [_skewed(rng, count, entities) for _ in range(length + 1)], axis=1
        )  # (instance, position)
        for position, relation in enumerate(body.tolist()):
            bodies.append(_facts(chain[:, position], relation, chain[:, position + 1]))
        heads.append(_facts(chain[:, 0], RELATIONS + rule, chain[:, -1]))
    return np.concatenate(bodies), np.concatenate(heads)


def _facts(heads: Ids, relation: int, tails: Ids) -> Ids:
    return np.stack([heads, np.full_like(heads, relation), tails], axis=1)


def _numbered(letter: str, count: int) -> pa.Array:
    """Labels in the order of their numbers, so that each number is also the id."""
    digits = len(str(count))
    return pa.array([f"{letter}{number:0{digits}}" for number in range(count)], pa.large_string())

"""Made graphs of any size that have something to learn: rules are planted among facts of chance.

Half of the facts are chance, with hubs and rare entities. The other half are instances of rules: a chain of body
edges, and the fact that follows from it. Heads of rules have relations of their own, and some of their facts are
held out; so what a model finds of these it has by the rules, or by the tails' frequency, which is skewed too.
Bodies share their relations with the facts of chance, so a rule also leads astray.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from squire.errors import SettingError
from squire.graph.adjacency import Ids
from squire.graph.graph import Graph
from squire.graph.labels import LabelIndex, Labels

FACTS_PER_ENTITY = 10
RELATIONS = 100  # of chance, and of bodies
LENGTHS = (1, 2, 3)  # of bodies
RULES_PER_LENGTH = 10
CHANCE_SHARE = 0.5
HELD_OUT = 1000  # facts of valid and of test, at most: enough to see .03 of MRR, and the same for large graphs
HELD_OUT_SHARE = 0.1  # of the facts that rules give, at most
SMALLEST = 200


def skewed(rng: np.random.Generator, count: int, limit: int) -> Ids:
    """Ids below `limit`, small ones more often: u² crowds towards 0, so few are busy and many rare.  (count)"""
    return (rng.random(count) ** 2 * limit).astype(np.int32)


def random_facts(rng: np.random.Generator, count: int, entities: int, relations: int) -> Ids:
    """Facts of chance, between hubs more often than not; some may be drawn twice.  (count, 3)"""
    heads, tails = (skewed(rng, count, entities) for _ in range(2))
    return np.stack([heads, skewed(rng, count, relations), tails], axis=1)


def planted_graph(edges: int, seed: int = 0) -> Graph:
    """About so many train facts: those that are drawn twice, and those held out, are fewer."""
    if edges < SMALLEST:
        raise SettingError(f"--synthetic {edges}: expected {SMALLEST} or more, to have room for rules.")
    rng = np.random.default_rng([seed, edges])
    entities = edges // FACTS_PER_ENTITY
    chance = random_facts(rng, round(edges * CHANCE_SHARE), entities, RELATIONS)
    bodies, heads = _instances(rng, edges - len(chance), entities)
    heads = np.unique(heads, axis=0)
    count = min(HELD_OUT, int(len(heads) * HELD_OUT_SHARE / 2))
    order = rng.permutation(len(heads))
    splits = {
        "valid": heads[order[:count]],
        "test": heads[order[count : 2 * count]],
        "train": np.concatenate([chance, bodies, heads[order[2 * count :]]]),
    }
    relations = RELATIONS + len(LENGTHS) * RULES_PER_LENGTH
    labels = Labels(
        LabelIndex(_numbered("e", entities), "entity"), LabelIndex(_numbered("r", relations), "relation")
    )
    return Graph.build(f"synthetic-{edges}", labels, splits)


def _instances(rng: np.random.Generator, edges: int, entities: int) -> tuple[Ids, Ids]:
    """So many facts, as many to each rule: the edges of bodies, and what follows from them.  (n, 3), (m, 3)"""
    bodies, heads = [], []
    each = edges // (len(LENGTHS) * RULES_PER_LENGTH)
    for rule in range(len(LENGTHS) * RULES_PER_LENGTH):
        length = LENGTHS[rule % len(LENGTHS)]
        count = max(1, each // (length + 1))
        body = rng.choice(RELATIONS, length, replace=False)
        chain = np.stack([skewed(rng, count, entities) for _ in range(length + 1)], axis=1)  # (instance, place)
        for place, relation in enumerate(body.tolist()):
            bodies.append(_facts(chain[:, place], relation, chain[:, place + 1]))
        heads.append(_facts(chain[:, 0], RELATIONS + rule, chain[:, -1]))
    return np.concatenate(bodies), np.concatenate(heads)


def _facts(heads: Ids, relation: int, tails: Ids) -> Ids:
    return np.stack([heads, np.full_like(heads, relation), tails], axis=1)


def _numbered(letter: str, count: int) -> pa.Array:
    """LabelIndex that sort as their numbers do, so that these are their ids."""
    digits = len(str(count))
    return pa.array([f"{letter}{number:0{digits}}" for number in range(count)], pa.large_string())

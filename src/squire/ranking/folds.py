"""Parts of train to hide, so that a ranker can learn from questions whose answers the graph does not give away.

A hidden part must look like valid. Valid only asks about entities that still have edges, so both ends of a hidden
triple keep one: on NELL23K a plain random fifth made 41 % of the answers unreachable, valid has 19 %. And where no
valid pair has an edge in train, as in FB15K237 by construction, only such pairs are hidden.

Knows edges; what is asked of the remaining graph, and who answers, is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from squire.core.relations import is_inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph

UNLIKELY = 0.001  # chance below which "no valid pair is linked" is taken for the way the graph was made
# The less is hidden, the more what remains looks like all of train; each part takes a mining. Twentieths gain
# about .002 over fifths on valid of the sparse graphs, sixtieths no more (docs/LOG.md).
FOLDS = 20
FEW_FOLDS = 5  # where each part also takes the training of a model


def hide(
    adjacency: Adjacency, folds: int, seed: int = 0, unlinked: bool = False
) -> Iterator[tuple[Adjacency, Ids]]:
    """For each fold the graph that remains, and the triples hidden from it, (triple, 3); one graph at a time.

    With `unlinked`, only triples are hidden whose two ends no other edge links.
    """
    if folds < 2:
        raise SettingError(f"--folds {folds}: expected 2 or more.")
    triples = adjacency.triples
    order = np.random.default_rng([seed, folds]).permutation(len(triples))
    if unlinked:
        order = order[~is_linked(adjacency)[order]]
    for fold in range(folds):
        hidden = np.zeros(len(triples), bool)
        hidden[_spare(adjacency, order[fold::folds])] = True
        size = adjacency.num_entities, adjacency.num_relations
        yield Adjacency.build(triples[~hidden], *size), triples[hidden]


def _spare(adjacency: Adjacency, wanted: Offsets) -> list[int]:
    """Those of the wanted triples that can go, one after the other, while both ends keep an edge."""
    degree = np.diff(adjacency.offsets).tolist()
    gone = []
    for i, (head, _, tail) in zip(wanted.tolist(), adjacency.triples[wanted].tolist(), strict=True):
        degree[head] -= 1
        degree[tail] -= 1  # a loop takes both of its edges from one entity
        if degree[head] and degree[tail]:
            gone.append(i)
        else:
            degree[head] += 1
            degree[tail] += 1
    return gone


def is_linked(adjacency: Adjacency) -> npt.NDArray[np.bool_]:
    """Does another edge lead from the triple's head to its tail?  (triple)"""
    code = adjacency.heads.astype(np.int64) * adjacency.num_entities + adjacency.tails
    _, which, edges = np.unique(code, return_inverse=True, return_counts=True)
    forward = ~is_inverse(adjacency.relations, adjacency.num_relations)
    # A loop's own inverse edge has the same two ends.
    own = 1 + (adjacency.heads == adjacency.tails)
    return np.asarray((edges[which] > own)[forward])


def pairs_look_unlinked(graph: Graph) -> bool:
    """Was the graph made so that no valid pair has an edge in train?

    True if none has, though so many train triples are linked by another edge that this would hardly be chance.
    """
    linked_in_train = is_linked(graph.train)
    if not len(linked_in_train):
        return False
    chance = (1 - float(linked_in_train.mean())) ** len(graph.valid)
    return chance < UNLIKELY and not any(
        len(graph.train.relations_between(head, tail)) for head, _, tail in graph.valid.tolist()
    )

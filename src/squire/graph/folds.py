"""Folds of train to hide, so that a ranker learns from queries whose answers are not in the graph.

A hidden fold must look like valid. Valid only has queries about entities that still have edges, so both ends of a
hidden triple keep at least one: on NELL23K, hiding a random fifth made 41 % of the answers unreachable, while
valid has 19 %. If no pair of valid has an edge in train, as in FB15K237 by construction, only such pairs are
hidden.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from squire.core.relations import is_inverse
from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, Ids, Offsets
from squire.graph.graph import Graph

UNLIKELY = 0.001  # probability below which "no valid pair is linked" is no coincidence
# The less is hidden, the more the rest resembles all of train, but each fold has its own indexes. Twentieths gain
# about .002 over fifths on valid of the sparse graphs, sixtieths no more (docs/LOG.md).
FOLDS = 20
MAX_FOLDS = 100  # each has indexes of its own, which take time


def hidden_parts(adjacency: Adjacency, folds: int, seed: int = 0, unlinked: bool = False) -> Iterator[Ids]:
    """The triples of each fold that can be hidden.  (triple, 3) each

    With `unlinked`, only triples whose two ends have no other edge are hidden.
    """
    if folds < 2:
        raise SettingError(f"folds={folds}: expected 2 or more.")
    triples = adjacency.triples
    order = np.random.default_rng([seed, folds]).permutation(len(triples))
    if unlinked:
        order = order[~is_linked(adjacency)[order]]
    for fold in range(folds):
        yield triples[np.sort(np.array(removable(adjacency, order[fold::folds]), np.int64))]


def hide(
    adjacency: Adjacency, folds: int, seed: int = 0, unlinked: bool = False
) -> Iterator[tuple[Adjacency, Ids]]:
    """For each fold the remaining graph and the triples hidden from it, (triple, 3); one graph at a time."""
    for hidden in hidden_parts(adjacency, folds, seed, unlinked):
        gone = Adjacency.build(hidden, adjacency.num_entities, adjacency.num_relations)
        yield adjacency.without(gone), hidden


def held_back(graph: Graph, seed: int = 0) -> tuple[Adjacency, Ids]:
    """Train without its first fold, and that fold: what a model sees, and what a fusion judges it by."""
    return next(hide(graph.train, FOLDS, seed, pairs_look_unlinked(graph)))


def can_be_hidden(adjacency: Adjacency, unlinked: bool) -> npt.NDArray[np.bool_]:
    """Whether a triple can be hidden: both ends have other edges; if `unlinked`, not with each other.  (triple)"""
    degree = np.diff(adjacency.offsets)
    head, _, tail = adjacency.triples.T
    own = 1 + (head == tail)  # a loop is two edges of one entity
    possible = (degree[head] > own) & (degree[tail] > own)
    return np.asarray(possible & ~is_linked(adjacency) if unlinked else possible)


def removable(adjacency: Adjacency, wanted: Offsets) -> list[int]:
    """The wanted triples that can be removed, one after the other, such that both ends keep an edge."""
    degree = np.diff(adjacency.offsets).tolist()
    removed = []
    for i, (head, _, tail) in zip(wanted.tolist(), adjacency.triples[wanted].tolist(), strict=True):
        degree[head] -= 1
        degree[tail] -= 1  # a loop takes both of its edges from one entity
        if degree[head] and degree[tail]:
            removed.append(i)
        else:
            degree[head] += 1
            degree[tail] += 1
    return removed


def is_linked(adjacency: Adjacency) -> npt.NDArray[np.bool_]:
    """Whether another edge links a triple's head and tail.  (triple)"""
    code = adjacency.heads.astype(np.int64) * adjacency.num_entities + adjacency.tails
    _, which, edges = np.unique(code, return_inverse=True, return_counts=True)
    forward = ~is_inverse(adjacency.relations, adjacency.num_relations)
    # The inverse edge of a loop has the same two ends.
    own = 1 + (adjacency.heads == adjacency.tails)
    return np.asarray((edges[which] > own)[forward])


def pairs_look_unlinked(graph: Graph) -> bool:
    """Whether the graph seems to be constructed such that no valid pair has an edge in train.

    True if none has one, although so many train triples have another edge that this is unlikely by chance.
    """
    (found,) = graph.kept.get("unlinked", lambda: (int(_valid_avoids_linked_pairs(graph)),))
    return bool(found)


def _valid_avoids_linked_pairs(graph: Graph) -> bool:
    linked_in_train = is_linked(graph.train)
    if not len(linked_in_train):
        return False
    probability = (1 - float(linked_in_train.mean())) ** len(graph.valid)
    return probability < UNLIKELY and not any(
        len(graph.train.relations_between(head, tail)) for head, _, tail in graph.valid.tolist()
    )

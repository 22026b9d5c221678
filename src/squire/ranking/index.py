"""What votes and walks need of a graph, computed once: how rare a neighbour is, what an entity's relations are.

Two entities are alike by their attributes, (relation, tail) pairs weighted by rarity, or by their signatures, the
relations that they have at all, or by their names (`names`). All are rows of norm 1, so that a likeness is a
cosine.
"""

from __future__ import annotations

import numpy as np

from squire.graph.adjacency import Adjacency, Offsets
from squire.ranking._features import FeatureScratch, GraphIndex, Profile


def index_of(adjacency: Adjacency, words: Profile) -> GraphIndex:
    heads, relations, tails = adjacency.heads, adjacency.relations, adjacency.tails
    n, num_edge_relations = adjacency.num_entities, 2 * adjacency.num_relations
    attribute, rarity, scale = _attributes(adjacency)
    tail_offsets, tail, count, above = _tails(adjacency)
    facts = np.bincount(relations, minlength=num_edge_relations)
    loops = np.bincount(relations[heads == tails], minlength=num_edge_relations)
    starts, start_offsets = adjacency.starts
    return GraphIndex(
        adjacency.offsets, relations, tails,
        attribute, rarity, scale,
        _signatures(heads, relations, n, num_edge_relations), words,
        tail_offsets, tail, count, above,
        start_offsets, starts,
        facts, loops / np.maximum(facts, 1),
    )  # fmt: skip


def _attributes(adjacency: Adjacency) -> tuple[Offsets, np.ndarray, np.ndarray]:
    """Of each edge its attribute, of each attribute the squared rarity, of each entity 1 / norm."""
    code = adjacency.relations.astype(np.int64) * adjacency.num_entities + adjacency.tails
    _, attribute, owners = np.unique(code, return_inverse=True, return_counts=True)
    rarity = np.log(adjacency.num_entities / np.maximum(owners, 1)) ** 2
    norm = np.bincount(adjacency.heads, rarity[attribute], minlength=adjacency.num_entities)
    scale = 1 / np.sqrt(np.maximum(norm, 1e-12))
    # What one entity alone has makes it less like others, and is like nothing.
    return attribute, np.where(owners > 1, rarity, 0), scale


def _signatures(heads: np.ndarray, relations: np.ndarray, num_entities: int, num_edge_relations: int) -> Profile:
    """The relations of each entity, with weights: often counts a little more, common ones count less."""
    code = heads.astype(np.int64) * num_edge_relations + relations
    pairs, counts = np.unique(code, return_counts=True)
    entity, relation = np.divmod(pairs, max(num_edge_relations, 1))
    owners = np.bincount(relation, minlength=num_edge_relations)
    weight = (1 + np.log(counts)) * np.log(num_entities / (owners[relation] + 1))
    norm = np.sqrt(np.bincount(entity, weight**2, minlength=num_entities))
    offsets = np.searchsorted(entity, np.arange(num_entities + 1))
    return Profile(offsets, relation, weight / np.maximum(norm[entity], 1e-9), num_edge_relations)


def _tails(adjacency: Adjacency) -> tuple[Offsets, Offsets, Offsets, Offsets]:
    """The tails of each relation, most frequent first, ties by id: offsets, tails, counts, how many are above."""
    code = adjacency.relations.astype(np.int64) * adjacency.num_entities + adjacency.tails
    pairs, counts = np.unique(code, return_counts=True)
    relation, tail = np.divmod(pairs, max(adjacency.num_entities, 1))
    order = np.lexsort((tail, -counts, relation))
    relation, tail, counts = relation[order], tail[order], counts[order]
    offsets = np.searchsorted(relation, np.arange(2 * adjacency.num_relations + 1))
    new = np.ones(len(order), bool)
    new[1:] = (relation[1:] != relation[:-1]) | (counts[1:] != counts[:-1])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    return offsets, tail, counts, first - offsets[relation]


def scratch(index: GraphIndex, most: int) -> FeatureScratch:
    """Empty memory for `kernels.describe`, for one thread."""
    n, num_edge_relations, num_attributes = len(index.offsets) - 1, len(index.facts), len(index.rarity)

    def per_entity() -> np.ndarray:
        return np.zeros(n)

    return FeatureScratch(
        place=np.zeros(n, np.int64),
        has=np.zeros(n, bool),
        profile=np.zeros(num_edge_relations),
        words_profile=np.zeros(index.words.size),
        taken=np.zeros(n, bool),
        known=np.zeros(n, bool),
        chance=per_entity(),
        similarity=per_entity(),
        vote=per_entity(),
        close_vote=per_entity(),
        signature_vote=per_entity(),
        words_vote=per_entity(),
        one=per_entity(),
        two=per_entity(),
        wanted=np.zeros(num_attributes),
        wanted_signature=np.zeros(num_edge_relations),
        wanted_words=np.zeros(index.words.size),
        voted_words=np.zeros(index.words.size),
        row=np.zeros(num_edge_relations),
        words_row=np.zeros(index.words.size),
        touched=np.zeros((6, n), np.int64),
        best=np.zeros(most + 1, np.int64),
        best_score=np.zeros(most + 1),
    )

"""What the feature kernels need of a graph, computed once: attributes, signatures, names, and the tails of
relations.

Two entities can be similar in three ways: by their attributes, which are (relation, tail) pairs weighted by
rarity; by their signatures, the relations that they have at all; and by the words of their names. Each is a row of
norm 1, so that the similarity of two entities is a cosine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from squire.graph.adjacency import Adjacency, Offsets
from squire.ranking._features import FeatureScratch, GraphIndex, Profile

WORD = re.compile(r"[^\W_]+")


def build_index(adjacency: Adjacency, words: Profile) -> GraphIndex:
    """The index of a graph and of its entities' names."""
    heads, relations, tails = adjacency.heads, adjacency.relations, adjacency.tails
    n, num_edge_types = adjacency.num_entities, 2 * adjacency.num_relations
    attribute, rarity, scale = _attributes(adjacency)
    tail_offsets, tail, count, above, by_id, place = _tails(adjacency)
    facts = np.bincount(relations, minlength=num_edge_types)
    loops = np.bincount(relations[heads == tails], minlength=num_edge_types)
    starts, start_offsets = adjacency.starts
    return GraphIndex(
        adjacency.offsets, relations, tails,
        attribute, rarity, scale,
        _signatures(heads, relations, n, num_edge_types), words,
        tail_offsets, tail, count, above, by_id, place,
        start_offsets, starts,
        facts, loops / np.maximum(facts, 1),
    )  # fmt: skip


def _attributes(adjacency: Adjacency) -> tuple[Offsets, np.ndarray, np.ndarray]:
    """The attribute of each edge, the squared rarity of each attribute, and 1 / norm of each entity."""
    code = adjacency.relations.astype(np.int64) * adjacency.num_entities + adjacency.tails
    _, attribute, owners = np.unique(code, return_inverse=True, return_counts=True)
    rarity = np.log(adjacency.num_entities / np.maximum(owners, 1)) ** 2
    norm = np.bincount(adjacency.heads, rarity[attribute], minlength=adjacency.num_entities)
    scale = 1 / np.sqrt(np.maximum(norm, 1e-12))
    # An attribute of a single entity counts in its norm, but matches no other entity.
    return attribute, np.where(owners > 1, rarity, 0), scale


def _signatures(heads: np.ndarray, relations: np.ndarray, num_entities: int, num_edge_types: int) -> Profile:
    """The relations of each entity, weighted up by their frequency in it and down by that in the graph."""
    code = heads.astype(np.int64) * num_edge_types + relations
    pairs, counts = np.unique(code, return_counts=True)
    entity, relation = np.divmod(pairs, max(num_edge_types, 1))
    owners = np.bincount(relation, minlength=num_edge_types)
    weight = (1 + np.log(counts)) * np.log(num_entities / (owners[relation] + 1))
    norm = np.sqrt(np.bincount(entity, weight**2, minlength=num_entities))
    offsets = np.searchsorted(entity, np.arange(num_entities + 1))
    return Profile(offsets, relation, weight / np.maximum(norm[entity], 1e-9), num_edge_types)


def _tails(adjacency: Adjacency) -> tuple[Offsets, ...]:
    """The tails of each edge type, most frequent first, then by id: offsets, tails, counts, how many are above.

    Then the same tails by id, and where these are in the order of before.
    """
    code = adjacency.relations.astype(np.int64) * adjacency.num_entities + adjacency.tails
    pairs, counts = np.unique(code, return_counts=True)
    relation, tail = np.divmod(pairs, max(adjacency.num_entities, 1))
    order, by_id = np.lexsort((tail, -counts, relation)), tail
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    relation, tail, counts = relation[order], tail[order], counts[order]
    offsets = np.searchsorted(relation, np.arange(2 * adjacency.num_relations + 1))
    new = np.ones(len(order), bool)
    new[1:] = (relation[1:] != relation[:-1]) | (counts[1:] != counts[:-1])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    return offsets, tail, counts, first - offsets[relation], by_id, place


def name_words(labels: Iterable[str]) -> Profile:
    """The words of each label, weighted by rarity, to compare names.

    Words in more than half of all labels are ignored. The first of the remaining words often tells the type
    (`concept_city_vienna`, `gene:TP53`), so it differs from the same word in a later position. Identifiers share
    no words; then all rows are empty, and names are no evidence.
    """
    rows = [list(dict.fromkeys(filter(_is_word, WORD.findall(label.casefold())))) for label in labels]
    common = Counter(word for row in rows for word in row)
    rows = [[word for word in row if 2 * common[word] <= len(rows)] for row in rows]
    number: dict[tuple[bool, str], int] = {}
    words = [number.setdefault((i == 0, word), len(number)) for row in rows for i, word in enumerate(row)]
    sizes = np.array([len(row) for row in rows], np.int64)
    word, entity = np.array(words, np.int64), np.repeat(np.arange(len(rows)), sizes)
    owners = np.bincount(word, minlength=len(number))
    weight = np.log(max(len(rows), 1) / np.maximum(owners, 1))[word]
    norm = np.sqrt(np.bincount(entity, weight**2, minlength=len(rows)))
    shared = owners[word] > 1  # a word of a single name counts in its norm, but matches no other name
    offsets = np.searchsorted(entity[shared], np.arange(len(rows) + 1))
    return Profile(offsets, word[shared], (weight / np.maximum(norm[entity], 1e-9))[shared], len(number))


def _is_word(text: str) -> bool:
    """Not a single letter, a number, or part of an identifier such as `/m/07y_7`."""
    return len(text) > 1 and text.isalpha()


def no_words(num_entities: int) -> Profile:
    """Empty rows, for names that are not used as evidence."""
    return name_words([""] * num_entities)


def new_scratch(index: GraphIndex, most: int) -> FeatureScratch:
    """Zeroed working memory of one thread for the kernels; `most` is the largest number of candidates."""
    n, num_edge_types, num_words = len(index.offsets) - 1, len(index.facts), index.words.size
    sizes = {"wanted": len(index.rarity), "best_score": most + 1}
    sizes |= dict.fromkeys(("profile", "wanted_signature", "row"), num_edge_types)
    sizes |= dict.fromkeys(("words_profile", "wanted_words", "voted_words", "words_row"), num_words)
    sizes |= dict.fromkeys(("chance", "similarity", "one", "two"), n)
    sizes |= dict.fromkeys(("vote", "close_vote", "signature_vote", "words_vote"), n)
    return FeatureScratch(
        taken=np.zeros(n, bool),
        known=np.zeros(n, bool),
        touched=np.zeros((6, n), np.int64),
        best=np.zeros(most + 1, np.int64),
        **{name: np.zeros(size) for name, size in sizes.items()},
    )

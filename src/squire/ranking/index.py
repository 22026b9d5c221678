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

from squire.core.kept import frozen
from squire.core.ragged import order_of
from squire.graph.adjacency import Adjacency, Offsets
from squire.ranking._features import FeatureScratch, GraphIndex, Profile

WORD = re.compile(r"[^\W_]+")


def build_index(adjacency: Adjacency, words: Profile) -> GraphIndex:
    """The index of a graph and of its entities' names."""
    kept = adjacency.kept.get
    starts, start_offsets = adjacency.starts
    rarity, scale = kept("attributes", lambda: _attributes(adjacency))
    item_offsets, item, weight = kept("signatures", lambda: _signatures(adjacency))
    tail_offsets, tail, count, above, by_id, place = kept("tails", lambda: _tails(adjacency))
    facts, loops = kept("facts of types", lambda: _facts(adjacency))
    return GraphIndex(
        adjacency.offsets, adjacency.relations, adjacency.tails,
        adjacency.end_runs, rarity, scale,
        Profile(item_offsets, item, weight, 2 * adjacency.num_relations), words,
        tail_offsets, tail, count, above, by_id, place,
        start_offsets, starts,
        facts, loops,
    )  # fmt: skip


def _attributes(adjacency: Adjacency) -> tuple[np.ndarray, np.ndarray]:
    """The squared rarity of each attribute, and 1 / norm of each entity. An attribute is a run of `end_runs`."""
    owners, attribute = np.diff(adjacency.runs.starts), adjacency.end_runs
    rarity = np.log(adjacency.num_entities / np.maximum(owners, 1)) ** 2
    norm = np.bincount(adjacency.heads, rarity[attribute], minlength=adjacency.num_entities)
    scale = 1 / np.sqrt(np.maximum(norm, 1e-12))
    # An attribute of a single entity counts in its norm, but matches no other entity.
    return np.where(owners > 1, rarity, 0), scale


def _signatures(adjacency: Adjacency) -> tuple[Offsets, np.ndarray, np.ndarray]:
    """The relations of each entity, weighted up by their frequency in it and down by that in the graph."""
    offsets, entity, relation, starts = adjacency.runs
    owners = np.bincount(relation, minlength=2 * adjacency.num_relations)
    weight = (1 + np.log(np.diff(starts))) * np.log(adjacency.num_entities / (owners[relation] + 1))
    norm = np.sqrt(np.bincount(entity, weight**2, minlength=adjacency.num_entities))
    return offsets, relation.astype(np.int64), weight / np.maximum(norm[entity], 1e-9)


def _tails(adjacency: Adjacency) -> tuple[np.ndarray, ...]:
    """The tails of each edge type, most frequent first, then by id: offsets, tails, counts, how many are above.

    Then the same tails by id, and where these are in the order of before.
    """
    runs, offsets = adjacency.ends
    by_id, counts = adjacency.runs.heads[runs], np.diff(adjacency.runs.starts)[runs]
    relation = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    most = int(counts.max(initial=0))
    order = order_of(most - counts, most)
    order = order[order_of(relation[order], len(offsets))]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    counts = counts[order]  # `relation` stays as it is
    new = np.ones(len(order), bool)
    new[1:] = (relation[1:] != relation[:-1]) | (counts[1:] != counts[:-1])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    return offsets, by_id[order], counts, first - offsets[relation], by_id, place


def _facts(adjacency: Adjacency) -> tuple[np.ndarray, np.ndarray]:
    """How many facts each edge type has, and the share of them that link an entity to itself."""
    num_edge_types = 2 * adjacency.num_relations
    facts = np.bincount(adjacency.relations, minlength=num_edge_types)
    loops = np.bincount(adjacency.relations[adjacency.heads == adjacency.tails], minlength=num_edge_types)
    return facts, loops / np.maximum(facts, 1)


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
    weight = (weight / np.maximum(norm[entity], 1e-9))[shared]
    return Profile(frozen(offsets), frozen(word[shared]), frozen(weight), len(number))


def _is_word(text: str) -> bool:
    """Not a single letter, a number, or part of an identifier such as `/m/07y_7`."""
    return len(text) > 1 and text.isalpha()


def no_words(num_entities: int) -> Profile:
    """Empty rows, for names that are not used as evidence."""
    offsets, item, weight = np.zeros(num_entities + 1, np.int64), np.empty(0, np.int64), np.empty(0)
    return Profile(frozen(offsets), frozen(item), frozen(weight), 0)


def new_scratch(index: GraphIndex, most: int) -> FeatureScratch:
    """Zeroed working memory of one thread for the kernels; `most` is the largest number of candidates."""
    n, num_edge_types, num_words = len(index.offsets) - 1, len(index.facts), index.words.size
    sizes = {"wanted": len(index.rarity), "best_score": most + 1}
    sizes |= dict.fromkeys(("profile", "wanted_signature", "row"), num_edge_types)
    sizes |= dict.fromkeys(("words_profile", "wanted_words", "voted_words", "words_row"), num_words)
    sizes |= dict.fromkeys(("chance", "similarity", "one", "two", "far"), n)
    sizes |= dict.fromkeys(("vote", "close_vote", "signature_vote", "words_vote"), n)
    return FeatureScratch(
        taken=np.zeros(n, bool),
        known=np.zeros(n, bool),
        touched=np.zeros((7, n), np.int64),
        best=np.zeros(most + 1, np.int64),
        sampled=np.zeros(1, bool),
        **{name: np.zeros(size) for name, size in sizes.items()},
    )

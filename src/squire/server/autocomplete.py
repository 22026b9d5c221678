"""Suggestions while someone types: labels that match the text, and relations that fit an entity.

Labels that begin with the text come first, then those with a later word that does, then similar ones; case and
accents are ignored. Among 100,000 labels a search takes milliseconds (benchmarks/serve.py).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz, process

if TYPE_CHECKING:
    from squire import Graph

Positions = npt.NDArray[np.int64]

MIN_SIMILARITY = 60.0  # of 100; below, labels have no more in common than any two
COMPARED = 200  # labels that share the most trigrams with the text and are compared in full
MAX_FUZZY = 64  # letters of the text that are compared
LATER_WORD = re.compile(r"(?<=[\W_])[^\W_]")
LAST = chr(0x10FFFF)
PREFIX, WORD_PREFIX, SIMILAR = range(3)

OWN, PEERS = 16, 500  # rarest relations of an entity that are looked at, and entities that have each
SMOOTHING = 1.0  # one more peer, without other relations: a single peer proves nothing
FITS = 0.2  # share of peers from which a relation fits
WELL_KNOWN = 100  # entities that example questions may be about


def folded(text: str) -> str:
    """`São Tomé` -> `sao tome`"""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter)).casefold()


class Match(NamedTuple):
    """A label by its id, and how it matches: PREFIX, WORD_PREFIX or SIMILAR."""

    id: int
    tier: int


class LabelSearch:
    """Searches labels that have weights: among equally good matches, the heavier come first."""

    def __init__(self, labels: Sequence[str], weights: npt.NDArray[np.int64]) -> None:
        # Internally a label is its position by weight, 0 for the heaviest; equal weights keep their order.
        self._ids: Positions = np.argsort(-weights, kind="stable")
        self._folded = [folded(labels[i]) for i in self._ids.tolist()]
        self._prefixes = _Prefixes([(label, position) for position, label in enumerate(self._folded)])
        self._words = _Prefixes(
            [
                (label[word.start() :], position)
                for position, label in enumerate(self._folded)
                for word in LATER_WORD.finditer(label)
            ]
        )
        self._trigrams = _Trigrams(self._folded)

    def find(self, text: str, limit: int) -> list[Match]:
        """The best matches, best first; without a text, the heaviest labels."""
        wanted = folded(text).strip()
        if not wanted:
            return [Match(i, PREFIX) for i in self._ids[:limit].tolist()]
        tiers: dict[int, int] = {}  # position -> tier, best first
        for tier, find in enumerate((self._prefixes.find, self._words.find, self._similar)):
            if len(tiers) < limit:
                tiers |= dict.fromkeys((found for found in find(wanted, limit) if found not in tiers), tier)
        return [Match(int(self._ids[position]), tier) for position, tier in list(tiers.items())[:limit]]

    def same(self, text: str) -> list[int]:
        """The labels that differ from the text at most in case and accents."""
        ids: list[int] = self._ids[self._prefixes.equal(folded(text))].tolist()
        return ids

    def _similar(self, wanted: str, limit: int) -> list[int]:
        """Finds labels despite typing errors and a different order of words."""
        wanted = wanted[:MAX_FUZZY]
        candidates = {i: self._folded[i] for i in self._trigrams.sharing(wanted, COMPARED + limit)}
        found = process.extract(wanted, candidates, scorer=fuzz.WRatio, limit=limit, score_cutoff=MIN_SIMILARITY)
        return [position for _, position in sorted((-score, position) for _, score, position in found)]


class _Prefixes:
    """Sorted texts: those with a common prefix are one slice."""

    def __init__(self, entries: list[tuple[str, int]]) -> None:
        entries.sort()
        self._texts = [text for text, _ in entries]
        self._positions = np.array([position for _, position in entries], np.int64)
        self._size = int(self._positions.max(initial=-1)) + 1

    def find(self, prefix: str, limit: int) -> list[int]:
        """The heaviest labels with this prefix, each once."""
        low = bisect_left(self._texts, prefix)
        found = self._positions[low : bisect_left(self._texts, prefix + LAST, low)]
        is_found = np.zeros(self._size, bool)  # puts them in order without sorting
        is_found[found] = True
        positions: list[int] = np.flatnonzero(is_found)[:limit].tolist()
        return positions

    def equal(self, text: str) -> Positions:
        """The labels that are this text."""
        return self._positions[bisect_left(self._texts, text) : bisect_right(self._texts, text)]


class _Trigrams:
    """Which labels contain which three letters in a row: similar labels share many."""

    BUCKETS = 1 << 18  # trigrams are hashed; a collision costs one more comparison

    def __init__(self, labels: Sequence[str]) -> None:
        bucket, position = self._hashed(labels)
        order = np.argsort(bucket, kind="stable")
        self._positions = position[order]
        self._offsets = np.searchsorted(bucket[order], np.arange(self.BUCKETS + 1))
        self._size = len(labels)

    def sharing(self, text: str, count: int) -> list[int]:
        """The labels that share the most trigrams with a text, the heavier first among equals."""
        buckets = np.unique(self._hashed([text])[0]).tolist()
        lists = [self._positions[self._offsets[bucket] : self._offsets[bucket + 1]] for bucket in buckets]
        if not lists or not self._size:
            return []
        shared = np.bincount(np.concatenate(lists), minlength=self._size)
        count = min(count, self._size)
        key = shared * self._size + (self._size - 1 - np.arange(self._size))  # by count, then by position
        best = np.argpartition(-key, count - 1)[:count]
        positions: list[int] = best[shared[best] > 0].tolist()
        return positions

    def _hashed(self, labels: Sequence[str]) -> tuple[Positions, Positions]:
        """Buckets and positions of the distinct trigrams of each label, with a space around words.  (trigram)"""
        texts = [" " + " ".join(re.findall(r"[^\W_]+", label)) + " " for label in labels]
        letters = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)
        owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        if len(letters) < 3:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        bucket = (letters[:-2] * 961 + letters[1:-1] * 31 + letters[2:]) * 2654435761 % 2**32 % self.BUCKETS
        inside = owner[:-2] == owner[2:]
        key = np.unique(owner[:-2][inside] * self.BUCKETS + bucket[inside])
        return key % self.BUCKETS, key // self.BUCKETS


# ---------------------------------------------------------------------------------------- relations that fit


def fitting(graph: Graph, entity: int) -> npt.NDArray[np.float64]:
    """The share of the entity's peers that have each edge type; 1 for its own.  (edge type)

    Peers are entities with some of the same edge types: a graph has no classes, but countries have a currency and
    rivers do not. A peer counts by the square of its similarity, shared edge types over all of both.
    """
    own = np.unique(graph.facts.edges(entity)[0])
    is_own = np.zeros(2 * graph.num_relations, bool)
    is_own[own] = True
    peers = _peers(graph, entity, own)
    owner, types = _edge_types(graph, peers)
    both = np.bincount(owner, is_own[types], len(peers))
    either = np.bincount(owner, minlength=len(peers)) + len(own) - both
    similarity = (both / np.maximum(either, 1)) ** 2
    share = np.bincount(types, similarity[owner], len(is_own)) / (similarity.sum() + SMOOTHING)
    return np.where(is_own, 1.0, share)


def _peers(graph: Graph, entity: int, own: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Other entities with some of the same edge types; of many, an evenly spread sample."""
    entities, offsets = graph.facts.starts
    rarest = own[np.argsort(offsets[own + 1] - offsets[own], kind="stable")[:OWN]].tolist()
    having = [entities[offsets[edge_type] : offsets[edge_type + 1]] for edge_type in rarest]
    sample = [some[:: max(1, len(some) // PEERS)] for some in having]
    found: npt.NDArray[np.int32] = np.unique(np.concatenate([np.empty(0, np.int32), *sample]))
    others: npt.NDArray[np.int32] = found[found != entity]
    return others


def _edge_types(
    graph: Graph, entities: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct edge types of each entity: a position in `entities`, and the edge type.  (pair), (pair)"""
    having, offsets = graph.facts.starts
    position = np.full(graph.num_entities, -1)
    position[entities] = np.arange(len(entities))
    owner, types = position[having], np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return owner[owner >= 0], types[owner >= 0]


def open_questions(graph: Graph, most: int) -> list[tuple[int, int]]:
    """A frequent relation each, and an entity with many edges that it fits but that has no such fact."""
    facts, n = graph.facts, graph.num_relations
    heads = np.argsort(-np.diff(facts.offsets), kind="stable")[:WELL_KNOWN]
    share = np.stack([fitting(graph, head)[:n] for head in heads.tolist()])
    share[share == 1] = 0  # it has this relation
    best = share.argmax(axis=0)  # (relation): place among the heads
    fits = np.flatnonzero(share[best, np.arange(n)] >= FITS)
    counts = np.bincount(facts.triples[:, 1], minlength=n)
    chosen = fits[np.argsort(-counts[fits], kind="stable")][:most].tolist()
    return [(int(heads[best[relation]]), relation) for relation in chosen]

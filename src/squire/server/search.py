"""Labels as one types them: those that begin so first, then those with a word that begins so, then similar ones.

Case and accents do not count. The index is built once; of 100,000 names a search takes milliseconds
(benchmarks/serve.py).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz, process

Places = npt.NDArray[np.int64]

SIMILAR = 60.0  # of 100: below, names have no more in common than any two
LOOKED_AT = 200  # names that share most triples of letters, to be compared in earnest
LONGEST = 64  # letters of a text that are searched for among similar names
LATER_WORD = re.compile(r"(?<=[\W_])[^\W_]")
LAST = chr(0x10FFFF)


def folded(text: str) -> str:
    """`São Tomé` -> `sao tome`"""
    plain = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in plain if not unicodedata.combining(letter)).casefold()


class Match(NamedTuple):
    """A name by its number, and how it matches: 0 begins so, 1 has a word that does, 2 is similar."""

    number: int
    tier: int


class NameSearch:
    """Over names with weights: among equally good matches the heavier come first."""

    def __init__(self, names: Sequence[str], weights: npt.NDArray[np.int64]) -> None:
        # Inside, a name is known by its place: 0 is the heaviest. Equal ones stay in order.
        self._numbers: Places = np.lexsort((np.arange(len(names)), -weights))
        self._folded = [folded(names[number]) for number in self._numbers.tolist()]
        self._starts = _Beginnings([(name, place) for place, name in enumerate(self._folded)])
        self._words = _Beginnings(
            [
                (name[word.start() :], place)
                for place, name in enumerate(self._folded)
                for word in LATER_WORD.finditer(name)
            ]
        )
        self._triples = _Triples(self._folded)

    def find(self, text: str, limit: int) -> list[Match]:
        """The best matches, best first; of no text, the heaviest."""
        wanted = folded(text).strip()
        if not wanted:
            return [Match(number, 0) for number in self._numbers[:limit].tolist()]
        tiers: dict[int, int] = {}  # of places, in order
        for tier, find in enumerate((self._starts.find, self._words.find, self._similar)):
            if len(tiers) < limit:
                tiers |= dict.fromkeys((place for place in find(wanted, limit) if place not in tiers), tier)
        return [Match(int(self._numbers[place]), tier) for place, tier in list(tiers.items())[:limit]]

    def _similar(self, wanted: str, limit: int) -> list[int]:
        """Typing errors, and words in another order."""
        wanted = wanted[:LONGEST]
        candidates = {place: self._folded[place] for place in self._triples.sharing(wanted, LOOKED_AT + limit)}
        found = process.extract(wanted, candidates, scorer=fuzz.WRatio, limit=limit, score_cutoff=SIMILAR)
        return [place for _, place in sorted((-score, place) for _, score, place in found)]


class _Beginnings:
    """Texts in order, so that all that begin alike are one slice."""

    def __init__(self, entries: list[tuple[str, int]]) -> None:
        entries.sort()
        self._texts = [text for text, _ in entries]
        self._places = np.array([place for _, place in entries], np.int64)
        self._size = int(self._places.max(initial=-1)) + 1

    def find(self, beginning: str, limit: int) -> list[int]:
        """The heaviest, once each."""
        low = bisect_left(self._texts, beginning)
        own = self._places[low : bisect_left(self._texts, beginning + LAST, low)]
        is_found = np.zeros(self._size, bool)  # in order without sorting
        is_found[own] = True
        places: list[int] = np.flatnonzero(is_found)[:limit].tolist()
        return places


class _Triples:
    """Which names have which three letters in a row: similar names share many."""

    BUCKETS = 1 << 18  # of triples, by a hash: a collision costs a comparison, no more

    def __init__(self, names: Sequence[str]) -> None:
        bucket, name = self._hashed(names)
        order = np.argsort(bucket, kind="stable")
        self._names = name[order]
        self._offsets = np.searchsorted(bucket[order], np.arange(self.BUCKETS + 1))
        self._size = len(names)

    def sharing(self, text: str, count: int) -> list[int]:
        """The names that share most with a text, the heavier first among equals."""
        buckets = np.unique(self._hashed([text])[0]).tolist()
        lists = [self._names[self._offsets[bucket] : self._offsets[bucket + 1]] for bucket in buckets]
        if not lists or not self._size:
            return []
        shared = np.bincount(np.concatenate(lists), minlength=self._size)
        count = min(count, self._size)
        # Equal counts are told apart by place, in one number.
        key = shared * self._size + (self._size - 1 - np.arange(self._size))
        best = np.argpartition(-key, count - 1)[:count]
        places: list[int] = best[shared[best] > 0].tolist()
        return places

    def _hashed(self, names: Sequence[str]) -> tuple[Places, Places]:
        """Buckets and names of all distinct triples of a name; words have a border at both ends.  (triple)"""
        texts = [" " + " ".join(re.findall(r"[^\W_]+", name)) + " " for name in names]
        letters = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)
        owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        if len(letters) < 3:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        bucket = (letters[:-2] * 961 + letters[1:-1] * 31 + letters[2:]) * 2654435761 % 2**32 % self.BUCKETS
        inside = owner[:-2] == owner[2:]
        key = np.sort(owner[:-2][inside] * self.BUCKETS + bucket[inside])
        key = key[np.append(True, np.diff(key) != 0)[: len(key)]]
        return key % self.BUCKETS, key // self.BUCKETS

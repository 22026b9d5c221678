"""Names as one types them: those that begin so first, then those with a word that begins so, then similar ones.

Case and accents do not count. The index is built once; of 100,000 names a search takes milliseconds
(benchmarks/serve.py).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz, process

SIMILAR = 60.0  # of 100: below, names have no more in common than any two
LATER_WORD = re.compile(r"(?<=[\W_])[^\W_]")
LAST = chr(0x10FFFF)


def folded(text: str) -> str:
    """`São Tomé` -> `sao tome`"""
    plain = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in plain if not unicodedata.combining(letter)).casefold()


class NameSearch:
    """Over names with weights: among equally good matches the heavier come first."""

    def __init__(self, names: Sequence[str], weights: npt.NDArray[np.int64]) -> None:
        self._folded = [folded(name) for name in names]
        # By weight, and equal ones by name, so that results never depend on chance.
        self._place = np.empty(len(names), np.int64)
        self._place[np.lexsort((np.arange(len(names)), -weights))] = np.arange(len(names))
        self._starts = _Beginnings([(name, number) for number, name in enumerate(self._folded)])
        self._words = _Beginnings(
            [
                (name[word.start() :], number)
                for number, name in enumerate(self._folded)
                for word in LATER_WORD.finditer(name)
            ]
        )

    def find(self, text: str, limit: int) -> list[int]:
        """The numbers of the best matches, best first; of no text, the heaviest."""
        wanted = folded(text).strip()
        if not wanted:
            return self._heaviest(np.arange(len(self._place)), limit)
        found: dict[int, None] = {}  # in order, once each
        for index in (self._starts, self._words):
            found |= dict.fromkeys(self._heaviest(index.find(wanted), limit))
            if len(found) >= limit:
                return list(found)[:limit]
        found |= dict.fromkeys(self._similar(wanted, limit))
        return list(found)[:limit]

    def _heaviest(self, numbers: npt.NDArray[np.int64], limit: int) -> list[int]:
        numbers = np.unique(numbers)
        heaviest: list[int] = numbers[np.argsort(self._place[numbers])[:limit]].tolist()
        return heaviest

    def _similar(self, wanted: str, limit: int) -> list[int]:
        """Typing errors, and words in another order."""
        found = process.extract(wanted, self._folded, scorer=fuzz.WRatio, limit=limit, score_cutoff=SIMILAR)
        scored = [(-score, int(self._place[number]), number) for _, score, number in found]
        return [number for _, _, number in sorted(scored)]


class _Beginnings:
    """Texts in order, so that all that begin alike are one slice."""

    def __init__(self, entries: list[tuple[str, int]]) -> None:
        entries.sort()
        self._texts = [text for text, _ in entries]
        self._numbers = np.array([number for _, number in entries], np.int64)

    def find(self, beginning: str) -> npt.NDArray[np.int64]:
        low = bisect_left(self._texts, beginning)
        return self._numbers[low : bisect_left(self._texts, beginning + LAST, low)]

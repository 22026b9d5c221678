"""What entities are called, as evidence: words that two names share.

A name is a row of its words, weighted by rarity, of norm 1, so that the likeness of two names is a cosine. Words
that more than half of all names have say nothing; of the rest the first often tells what kind of thing it is
(`concept_city_vienna`, `gene:TP53`), so it is not the same word as one that follows. Identifiers share no words:
then all rows are empty, and names are no evidence. Knows labels; what a likeness is good for stands in `kernels`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from squire.ranking._features import Profile

WORD = re.compile(r"[^\W_]+")


def words_of(labels: Iterable[str]) -> Profile:
    """One row an entity, in the order of the labels."""
    rows = [list(dict.fromkeys(filter(_tells, WORD.findall(label.casefold())))) for label in labels]
    common = Counter(word for row in rows for word in row)
    rows = [[word for word in row if 2 * common[word] <= len(rows)] for row in rows]
    number: dict[tuple[bool, str], int] = {}
    words = [number.setdefault((i == 0, word), len(number)) for row in rows for i, word in enumerate(row)]
    sizes = np.array([len(row) for row in rows], np.int64)
    word, entity = np.array(words, np.int64), np.repeat(np.arange(len(rows)), sizes)
    owners = np.bincount(word, minlength=len(number))
    weight = np.log(max(len(rows), 1) / np.maximum(owners, 1))[word]
    norm = np.sqrt(np.bincount(entity, weight**2, minlength=len(rows)))
    shared = owners[word] > 1  # what one entity alone is called makes it less like others, and is like nothing
    offsets = np.searchsorted(entity[shared], np.arange(len(rows) + 1))
    return Profile(offsets, word[shared], (weight / np.maximum(norm[entity], 1e-9))[shared], len(number))


def _tells(word: str) -> bool:
    """No letter, no number, no piece of an identifier such as `/m/07y_7`."""
    return len(word) > 1 and word.isalpha()


def no_words(num_entities: int) -> Profile:
    """Labels that are not looked at."""
    return words_of([""] * num_entities)

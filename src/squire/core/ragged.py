"""Rows of unequal length in one flat array: row i is values[offsets[i]:offsets[i + 1]]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]


def offsets_from(sizes: Integers | Sequence[int]) -> Offsets:
    """Where each row starts, and where the last one ends.  (row) -> (row + 1)

    >>> offsets_from([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def ranges(starts: Integers, sizes: Integers) -> Offsets:
    """The positions start, start + 1, … of every range, one after the other.  (range), (range) -> (position)

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum(), dtype=np.int64)


def order_of(values: Integers, most: int) -> Offsets:
    """The stable order of numbers from 0 to `most`; numpy sorts those of 16 bits by counting, which is fast.

    >>> order_of(np.array([2, 0, 2, 1]), 2).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(values.astype(np.min_scalar_type(most)), kind="stable")

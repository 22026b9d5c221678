"""The evidence paths of a set of queries, as flat arrays of ids.

Knows neither how they were found nor their labels, and nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from squire.graph.adjacency import Ids, Offsets

RULE, RANDOM, EDGE = range(3)  # where a path comes from
SOURCES = ("rule", "random", "edge")
NONE = -1  # no hop, no rule


@dataclass(frozen=True, eq=False)
class Paths:
    """Distinct paths of each query row, in order of rows; a path drawn several times has that weight."""

    queries: Ids  # (row, 3): head, edge relation, tail
    row: Offsets  # (path): which query, ascending
    length: Ids  # (path): hops
    relations: Ids  # (path, hop): edge relations, then NONE
    entities: Ids  # (path, hop): where each hop arrives, at last the tail; then NONE
    weight: Ids  # (path): times drawn
    source: npt.NDArray[np.int8]  # (path): RULE, RANDOM or EDGE
    rule: Offsets  # (path): position in the rules, or NONE

    def __len__(self) -> int:
        return len(self.row)

    @property
    def hops(self) -> int:
        """The most that a path may have."""
        return int(self.relations.shape[1])

    @property
    def num_sequences(self) -> int:
        """Paths counted as often as they were drawn: what training without prefix trees would read."""
        return int(self.weight.sum(dtype=np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Paths]) -> Paths:
        """All rows of the parts, one part after the other, as iterative training gathers them (Algorithm 1)."""
        hops = max(part.hops for part in parts)
        columns = {column.name: [getattr(part, column.name) for part in parts] for column in fields(cls)}
        starts = np.cumsum([0, *(len(part.queries) for part in parts)])
        columns["row"] = [row + start for row, start in zip(columns["row"], starts[:-1], strict=True)]
        for name in ("relations", "entities"):
            columns[name] = [
                np.pad(part, ((0, 0), (0, hops - part.shape[1])), constant_values=NONE) for part in columns[name]
            ]
        return cls(**{name: np.concatenate(arrays) for name, arrays in columns.items()})

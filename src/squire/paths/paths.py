"""The evidence paths of a set of queries, as flat arrays of ids."""

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
    """The distinct paths of each query, sorted by query; the weight counts how often a path was drawn."""

    queries: Ids  # (row, 3): head, edge type, tail
    row: Offsets  # (path): its query, ascending
    length: Ids  # (path): hops
    relations: Ids  # (path, hop): edge types, then NONE
    entities: Ids  # (path, hop): the end of each hop, the last one the tail; then NONE
    weight: Ids  # (path): times drawn
    source: npt.NDArray[np.int8]  # (path): RULE, RANDOM or EDGE
    rule: Offsets  # (path): position in the rules, or NONE

    def __len__(self) -> int:
        return len(self.row)

    @property
    def hops(self) -> int:
        """The maximum length of a path."""
        return int(self.relations.shape[1])

    @property
    def num_sequences(self) -> int:
        """The number of paths drawn: what training without prefix trees would read."""
        return int(self.weight.sum(dtype=np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Paths]) -> Paths:
        """The rows of all parts, as iterative training collects them (Algorithm 1)."""
        hops = max(part.hops for part in parts)
        columns = {column.name: [getattr(part, column.name) for part in parts] for column in fields(cls)}
        starts = np.cumsum([0, *(len(part.queries) for part in parts)])
        columns["row"] = [row + start for row, start in zip(columns["row"], starts[:-1], strict=True)]
        for name in ("relations", "entities"):
            columns[name] = [
                np.pad(part, ((0, 0), (0, hops - part.shape[1])), constant_values=NONE) for part in columns[name]
            ]
        return cls(**{name: np.concatenate(arrays) for name, arrays in columns.items()})

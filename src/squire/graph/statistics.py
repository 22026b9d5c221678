"""The statistics of a graph: the paper's Table 1 and a few more."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from squire.graph.graph import Graph


@dataclass(frozen=True)
class Stats:
    """Table 1 of the paper for any graph.

    As in the paper, entities and relations are those of train, and the degree of an entity is the number of train
    facts with it as the head. Mean and median are over all entities, even those that only valid or test mention.
    """

    name: str
    entities: int
    relations: int
    facts: int
    degree_mean: float
    degree_median: float
    valid: int
    test: int
    unseen_entities: int  # only in valid or test
    max_degree: int  # edges in both directions at the largest hub

    @classmethod
    def from_graph(cls, graph: Graph) -> Stats:
        train = graph.train.triples
        degree = np.bincount(train[:, 0], minlength=graph.num_entities)
        both = np.diff(graph.train.offsets)
        seen = int(np.count_nonzero(both))
        return cls(
            name=graph.name,
            entities=seen,
            relations=len(np.unique(train[:, 1])),
            facts=len(train),
            degree_mean=round(float(degree.mean()), 2) if len(degree) else 0.0,
            degree_median=float(np.median(degree)) if len(degree) else 0.0,
            valid=len(graph.valid),
            test=len(graph.test),
            unseen_entities=graph.num_entities - seen,
            max_degree=int(both.max(initial=0)),
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

"""The queries of an evaluation and their filter, the same for every method in a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from squire.core.relations import both_directions
from squire.errors import SettingError
from squire.evaluation.metrics import Signature
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import SPLITS, Graph


@dataclass(frozen=True)
class QuerySet:
    """Queries of one split, with the filter of their ranking."""

    dataset: str
    split: str
    side: str
    queries: Ids  # (query, 3): head, edge type, answer
    filter: Adjacency  # true answers, which do not count as rivals
    filter_splits: str  # the splits they come from, for signatures
    sample: str  # how many of how many queries, and the seed; empty for all

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        split: str,
        side: str = "tail",
        filter_splits: tuple[str, ...] = SPLITS,
        sample: int | None = None,
        seed: int = 0,
    ) -> QuerySet:
        """All queries of a split, or a random sample of them."""
        queries = queries_of(graph, split, side)
        drawn = ""
        if sample is not None and sample < len(queries):
            drawn = f"{sample} of {len(queries)}, seed {seed}"
            chosen = np.random.default_rng(seed).choice(len(queries), sample, replace=False)
            queries = queries[np.sort(chosen)]
        return cls(graph.name, split, side, queries, graph.known(*filter_splits), "+".join(filter_splits), drawn)

    def signature(self, method: str, **settings: str) -> Signature:
        """The signature of a method's figures on these queries."""
        return Signature(
            self.dataset, self.split, self.side, method, filter=self.filter_splits, sample=self.sample, **settings
        )


def queries_of(graph: Graph, split: str, side: str) -> Ids:
    """The (head, edge type, answer) queries of a split; for heads, the inverse relation is queried.  (query, 3)"""
    if split == "train":
        raise SettingError(
            "split='train': train facts are known, so their ranks say nothing. Choose valid or test."
        )
    if split not in SPLITS:
        raise SettingError(f"split={split!r}: expected valid or test.")
    triples = graph.triples(split)
    if not len(triples):
        raise SettingError(f"split={split!r}: {graph.name} has no {split} triples.")
    if side == "tail":
        return triples
    if side != "both":
        raise SettingError(f"side={side!r}: expected tail or both.")
    return both_directions(triples, graph.num_relations)

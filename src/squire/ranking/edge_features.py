"""The feature of candidates from a run's edge embeddings: their opinion of the queried edge, one product a query.

What the transformer says of the edge, or of the paths that it finds, was a feature once. It cost a search, and
added nothing to this (docs/LOG.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import torch

from squire.core.run_files import EDGES, FINGERPRINT_DIGITS
from squire.core.tensors import SUFFIX, load_checkpoint
from squire.model.edges import EdgeEmbedding
from squire.model.fold_in import fold_in
from squire.ranking.features import MODEL, CandidateLists, Feature, Features
from squire.search.trained import LoadedRun

QUERIES_AT_ONCE = 32
LEAST = float(np.log(1e-9))

# Without embeddings a candidate counts like the mean one (`pooling`), not like one that they exclude.
TABLE = (Feature("model", MODEL, "log of the probability of t as a tail of r by the edge embeddings"),)


class EdgeScorer:
    """Scores candidates by edge embeddings."""

    def __init__(self, fitted: EdgeEmbedding, fingerprint: str, edges: EdgeEmbedding | None = None) -> None:
        self._fitted, self.fingerprint = fitted, fingerprint
        self._edges = edges or fitted  # with those of entities that came later

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The best embeddings of a run, if it has any."""
        if not any(folder.glob(f"{EDGES}*{SUFFIX}")):
            return None
        checkpoint = load_checkpoint(folder, EDGES, fallback=True)
        entity, relation = (torch.from_numpy(checkpoint.arrays[f"best.{name}"]) for name in ("entity", "relation"))
        edges = EdgeEmbedding.from_tables(entity, relation)
        return cls(edges, checkpoint.checksum[:FINGERPRINT_DIGITS])

    def on(self, run: LoadedRun) -> EdgeScorer:
        """The same embeddings for the facts of a run, some of whose entities may be new."""
        known, penalty = len(self._fitted.entity), run.recipe.train.edge_penalty
        edges = fold_in(self._fitted, known, run.facts, penalty)
        return EdgeScorer(self._fitted, self.fingerprint, edges)

    @torch.inference_mode()
    def scores(self, lists: CandidateLists) -> Features:
        """(candidate, column)"""
        out = [np.empty(0, np.float32)]
        for first in range(0, len(lists), QUERIES_AT_ONCE):
            heads, relations = torch.from_numpy(lists.queries[first : first + QUERIES_AT_ONCE].astype(np.int64)).T
            for i, row in enumerate(self._edges.logits(heads, relations).log_softmax(1).numpy()):
                out.append(np.maximum(row[lists.candidates[lists.rows(first + i)]], LEAST))
        return np.concatenate(out)[:, None]

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
from squire.ranking.features import MODEL, CandidateLists, Feature, Features

QUERIES_AT_ONCE = 32
LEAST = float(np.log(1e-9))

# Without embeddings a candidate counts like the mean one (`pooling`), not like one that they exclude.
TABLE = (Feature("model", MODEL, "log of the probability of t as a tail of r by the edge embeddings"),)


class EdgeScorer:
    """Scores candidates by edge embeddings."""

    def __init__(self, edges: EdgeEmbedding, fingerprint: str) -> None:
        self._edges, self.fingerprint = edges, fingerprint

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The best embeddings of a run, if it has any."""
        if not any(folder.glob(f"{EDGES}*{SUFFIX}")):
            return None
        checkpoint = load_checkpoint(folder, EDGES, fallback=True)
        entity, relation = (torch.from_numpy(checkpoint.arrays[f"best.{name}"]) for name in ("entity", "relation"))
        edges = EdgeEmbedding.from_tables(entity, relation)
        return cls(edges, checkpoint.checksum[:FINGERPRINT_DIGITS])

    @torch.inference_mode()
    def scores(self, lists: CandidateLists) -> Features:
        """(candidate, column)"""
        out = [np.empty(0, np.float32)]
        for first in range(0, len(lists), QUERIES_AT_ONCE):
            heads, relations = torch.from_numpy(lists.queries[first : first + QUERIES_AT_ONCE].astype(np.int64)).T
            for i, row in enumerate(self._edges.logits(heads, relations).log_softmax(1).numpy()):
                candidates = lists.candidates[lists.rows(first + i)]
                is_seen = candidates < len(row)
                found = np.maximum(row[candidates * is_seen], LEAST)
                # Entities that were added later are neither better nor worse than the others (docs/LOG.md).
                found[~is_seen] = found[is_seen].mean() if is_seen.any() else LEAST
                out.append(found)
        return np.concatenate(out)[:, None]

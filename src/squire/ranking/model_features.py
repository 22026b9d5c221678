"""The feature of candidates from a trained model: its opinion of the queried edge, which takes no search.

The paths that the model finds were features once. They cost a search and added nothing (docs/LOG.md).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from squire.model.decoder import TransformerDecoder
from squire.ranking.features import MODEL, CandidateLists, Feature, Features
from squire.search.beam import edge_log_probability
from squire.search.trained import TrainedModel

QUERIES_AT_ONCE = 32
LEAST = float(np.log(1e-9))

# Without the model a candidate counts like the mean one (`pooling`), not like one that the model excludes.
TABLE = (Feature("model", MODEL, "log of the probability of t as a tail of r by the model"),)


class EdgeScorer:
    """Scores candidates by a run's model."""

    def __init__(self, run: TrainedModel) -> None:
        self._model, self.fingerprint = run.model, run.fingerprint
        self._num_known = (run.base or run.graph).num_entities

    @torch.inference_mode()
    def scores(self, lists: CandidateLists) -> Features:
        """(candidate, column)"""
        out = [np.empty(0, np.float32)]
        for first in range(0, len(lists), QUERIES_AT_ONCE):
            queries = torch.from_numpy(lists.queries[first : first + QUERIES_AT_ONCE].astype(np.int64))
            heads, relations = queries.to(self._model.embedding.weight.device).T
            for i, row in enumerate(self._log_probability(heads, relations).cpu().numpy()):
                candidates = lists.candidates[lists.rows(first + i)]
                out.append(np.maximum(row[candidates], LEAST))
                # Entities that it has not seen are neither better nor worse than the others (docs/LOG.md).
                is_new = candidates >= self._num_known
                out[-1][is_new] = out[-1][~is_new].mean() if not is_new.all() else LEAST
        return np.concatenate(out)[:, None]

    def _log_probability(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Of every entity as a tail.  (query) × 2 -> (query, entity)

        If there are edge embeddings, by these alone: with what the transformer adds, the fusion gains less
        (docs/LOG.md).
        """
        if self._model.edges is not None:
            return self._model.edges.logits(heads, relations).log_softmax(1)
        decoder = TransformerDecoder(self._model)  # not shared: other threads may search at the same time
        decoder.begin(heads, relations)
        return edge_log_probability(decoder, relations)

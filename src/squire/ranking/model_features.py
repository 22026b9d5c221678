"""The feature of candidates from a trained model: its opinion of the queried edge, which takes no search.

The paths that the model finds were features once. They cost a search and added nothing (docs/LOG.md).
"""

from __future__ import annotations

import numpy as np
import torch

from squire.model.decoder import TransformerDecoder
from squire.ranking.features import MODEL, CandidateLists, Feature, Features
from squire.search.beam import edge_log_probability
from squire.search.trained import TrainedModel

QUERIES_AT_ONCE = 32
LEAST = float(np.log(1e-9))

TABLE = (Feature("model", MODEL, "log of the probability of t as a tail of r by the model", LEAST),)
ABSENT = np.array([feature.absent for feature in TABLE], np.float32)


class EdgeScorer:
    """Scores candidates by a run's model."""

    def __init__(self, run: TrainedModel) -> None:
        self._model, self.fingerprint = run.model, run.fingerprint

    @torch.inference_mode()
    def scores(self, lists: CandidateLists) -> Features:
        """(candidate, column)"""
        decoder = TransformerDecoder(self._model)  # not shared: other threads may search at the same time
        out = [np.empty(0, np.float32)]
        for first in range(0, len(lists), QUERIES_AT_ONCE):
            queries = torch.from_numpy(lists.queries[first : first + QUERIES_AT_ONCE].astype(np.int64))
            heads, relations = queries.to(decoder.device).T
            decoder.begin(heads, relations)
            log_probability = edge_log_probability(decoder, relations).cpu().numpy()  # (query, entity)
            out += [log_probability[i, lists.candidates[lists.rows(first + i)]] for i in range(len(queries))]
        return np.maximum(np.concatenate(out), LEAST)[:, None]

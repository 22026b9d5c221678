"""What a trained model says of candidates, as columns of the fusion: its led search, and the queried edge alone.

Works on ids. The search is pruned: what cannot move the first answers need not be found to weigh them, and the
paths that people read are searched for by `reasoner`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from squire.graph.adjacency import Ids, Offsets
from squire.model.decoder import TransformerDecoder
from squire.ranking.features import CandidateLists
from squire.ranking.table import PATHS, Feature, Features
from squire.search.decoding import DecodingOptions, PathRanking, decode
from squire.search.trained import TrainedModel

BEAM, PRUNE = 64, 0.2
LEAST = 1e-9  # probabilities below it count as this
UNREACHED = float(np.log(LEAST))
QUERIES_AT_ONCE = 32

TABLE = (
    Feature("path sum", PATHS, "log of the probability of all paths to t that the search found", UNREACHED),
    Feature("path reasons", PATHS, "the same without the queried edge itself", UNREACHED),
    Feature("path best", PATHS, "geometric mean of the tokens' probabilities of the best path to t"),
    Feature("path count", PATHS, "log of the number of paths to t, plus one"),
    Feature("path edge", PATHS, "log of the probability that the model gives to t as a tail of r", UNREACHED),
)


class PathScorer:
    """A `fusion.features.Scorer` of a run's model. Its search is the recipe's, at a smaller beam."""

    table: Sequence[Feature] = TABLE

    def __init__(self, run: TrainedModel) -> None:
        self._model = run.model
        self._how = DecodingOptions.from_recipe(
            run.recipe, run.known_edges, beam=BEAM, aggregate="sum", prune=PRUNE
        )

    def scores(self, listed: CandidateLists) -> Features:
        """(candidate, column)"""
        decoder = TransformerDecoder(self._model)  # its own: other threads search at the same time
        blocks, first = [np.empty((0, len(TABLE)), np.float32)], 0
        for ranked in decode(decoder, listed.queries, self._how):
            for query in range(len(ranked)):
                candidates = listed.candidates[listed.rows(first + query)]
                blocks.append(_of_candidates(ranked, query, candidates))
            first += len(ranked)
        columns = np.concatenate(blocks)
        columns[:, -1] = self._edge(decoder, listed)
        return columns

    @torch.inference_mode()
    def _edge(self, decoder: TransformerDecoder, listed: CandidateLists) -> Features:
        """Without the known edges' lead, of every candidate, found by the search or not.  (candidate)"""
        out = []
        for first in range(0, len(listed), QUERIES_AT_ONCE):
            queries = torch.from_numpy(listed.queries[first : first + QUERIES_AT_ONCE].astype(np.int64))
            heads, relations = queries.to(decoder.device).T
            decoder.begin(heads, relations)
            logits, norm = decoder.entities(1, torch.arange(len(heads), device=decoder.device), relations)
            log_probability = (logits - norm[:, None]).cpu().numpy()
            out += [log_probability[i, listed.candidates[listed.rows(first + i)]] for i in range(len(queries))]
        return np.maximum(np.concatenate(out), UNREACHED) if out else np.empty(0, np.float32)


def _of_candidates(ranked: PathRanking, query: int, candidates: Ids) -> Features:
    """What the search says of the candidates of one query; the last column is left to be filled."""
    own = ranked.rows(query)
    order = np.argsort(ranked.entity[own])
    answers = own.start + order  # by entity
    entities = ranked.entity[own][order]
    place = np.searchsorted(entities, candidates)
    place[place == len(entities)] = 0
    found = np.flatnonzero(entities[place] == candidates) if len(entities) else np.empty(0, np.int64)
    at = answers[place[found]]
    columns = np.tile(np.array([UNREACHED, UNREACHED, 0, 0, 0], np.float32), (len(candidates), 1))
    mass, reasons = ranked.score[at], ranked.score[at] * (1 - ranked.asserted[at])
    columns[found, 0] = np.log(np.maximum(mass, LEAST))
    columns[found, 1] = np.log(np.maximum(reasons, LEAST))
    columns[found, 2] = _best(ranked, at)
    columns[found, 3] = np.log1p(np.diff(ranked.path_offsets)[at])
    return columns


def _best(ranked: PathRanking, answers: Offsets) -> Features:
    """exp of Eq. 5 of the best path of each answer.  (answer)"""
    path = ranked.best_path[answers]
    score = ranked.token_log_probability[path].sum(1) / (2 * ranked.hops[path] + 1)
    return np.asarray(np.exp(score), np.float32)

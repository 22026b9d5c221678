"""Features of candidates from a trained model: its guided search, and the queried edge alone.

The search is pruned, since paths that cannot change the first answers are not needed here. The paths that users
see are searched for separately, by the reasoner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from squire.graph.adjacency import Ids, Offsets
from squire.model.decoder import TransformerDecoder
from squire.ranking.features import PATHS, CandidateLists, Feature, Features
from squire.search.decoding import PathRanking, decode
from squire.search.options import DecodingOptions
from squire.search.trained import TrainedModel

BEAM, PRUNE = 64, 0.2
LEAST = 1e-9  # lower bound of probabilities before taking logarithms
UNREACHED = float(np.log(LEAST))
QUERIES_AT_ONCE = 32

TABLE = (
    Feature("path sum", PATHS, "log of the total probability of the paths to t that the search found", UNREACHED),
    Feature("path reasons", PATHS, "the same without the queried edge itself", UNREACHED),
    Feature("path best", PATHS, "geometric mean of the token probabilities of the best path to t"),
    Feature("path count", PATHS, "log of 1 + the number of paths to t"),
    Feature("path edge", PATHS, "log of the probability of t as a tail of r by the model", UNREACHED),
)


class PathScorer:
    """A `Scorer` by a run's model. It searches with the recipe's settings, but a smaller beam."""

    table: Sequence[Feature] = TABLE

    def __init__(self, run: TrainedModel) -> None:
        self._model, self.fingerprint = run.model, run.fingerprint
        self._decoding = DecodingOptions.from_recipe(
            run.recipe, run.known_edges, beam=BEAM, aggregate="sum", prune=PRUNE
        )

    def scores(self, lists: CandidateLists) -> Features:
        """(candidate, column)"""
        decoder = TransformerDecoder(self._model)  # not shared: other threads search at the same time
        blocks, first = [np.empty((0, len(TABLE)), np.float32)], 0
        for ranking in decode(decoder, lists.queries, self._decoding):
            for query in range(len(ranking)):
                candidates = lists.candidates[lists.rows(first + query)]
                blocks.append(_search_features(ranking, query, candidates))
            first += len(ranking)
        columns = np.concatenate(blocks)
        columns[:, -1] = self._edge(decoder, lists)
        return columns

    @torch.inference_mode()
    def _edge(self, decoder: TransformerDecoder, lists: CandidateLists) -> Features:
        """The last column: without guidance, and also for candidates that the search did not find.  (candidate)"""
        out = []
        for first in range(0, len(lists), QUERIES_AT_ONCE):
            queries = torch.from_numpy(lists.queries[first : first + QUERIES_AT_ONCE].astype(np.int64))
            heads, relations = queries.to(decoder.device).T
            decoder.begin(heads, relations)
            logits, norm = decoder.entities(1, torch.arange(len(heads), device=decoder.device), relations)
            log_probability = (logits - norm[:, None]).cpu().numpy()
            out += [log_probability[i, lists.candidates[lists.rows(first + i)]] for i in range(len(queries))]
        return np.maximum(np.concatenate(out), UNREACHED) if out else np.empty(0, np.float32)


def _search_features(ranking: PathRanking, query: int, candidates: Ids) -> Features:
    """The other columns, for the candidates of one query; the last one is left at 0."""
    own = ranking.rows(query)
    order = np.argsort(ranking.entity[own])
    answers = own.start + order  # by entity
    entities = ranking.entity[own][order]
    position = np.searchsorted(entities, candidates)
    position[position == len(entities)] = 0
    found = np.flatnonzero(entities[position] == candidates) if len(entities) else np.empty(0, np.int64)
    at = answers[position[found]]
    columns = np.tile(np.array([UNREACHED, UNREACHED, 0, 0, 0], np.float32), (len(candidates), 1))
    mass, reasons = ranking.score[at], ranking.score[at] * (1 - ranking.asserted[at])
    columns[found, 0] = np.log(np.maximum(mass, LEAST))
    columns[found, 1] = np.log(np.maximum(reasons, LEAST))
    columns[found, 2] = _best_path_score(ranking, at)
    columns[found, 3] = np.log1p(np.diff(ranking.path_offsets)[at])
    return columns


def _best_path_score(ranking: PathRanking, answers: Offsets) -> Features:
    """exp of Eq. 5 for the best path of each answer.  (answer)"""
    path = ranking.best_path[answers]
    score = ranking.token_log_probability[path].sum(1) / (2 * ranking.hops[path] + 1)
    return np.asarray(np.exp(score), np.float32)

"""Features of candidates from a trained model: its opinion of the queried edge, and the paths it finds.

The search is pruned, since paths that cannot change the first answers are not needed here. The paths that users
see are searched for separately, by the reasoner.
"""

from __future__ import annotations

import numpy as np
import torch

from squire.graph.adjacency import Ids, Offsets
from squire.model.decoder import TransformerDecoder
from squire.ranking.features import PATHS, CandidateLists, Feature, Features
from squire.search.beam import LEAST_PATHS, edge_log_probability
from squire.search.decoding import PathRanking, decode
from squire.search.options import DecodingOptions
from squire.search.trained import TrainedModel

BEAM, PRUNE = 32, 0.2
QUERIES_AT_ONCE = 32
LEAST = 1e-9  # lower bound of probabilities before taking logarithms

TABLE = (
    Feature("path edge", PATHS, "log of the probability of t as a tail of r by the model", float(np.log(LEAST))),
    Feature("path sum", PATHS, "log of the total probability of the paths to t", float(np.log(LEAST_PATHS))),
    Feature("path best", PATHS, "geometric mean of the token probabilities of the best path to t"),
    Feature("path count", PATHS, "log of 1 + the number of paths to t"),
)
ABSENT = np.array([feature.absent for feature in TABLE], np.float32)


class PathScorer:
    """Scores candidates by a run's model. It searches with the recipe's settings, but a smaller beam."""

    def __init__(self, run: TrainedModel) -> None:
        self._model, self.fingerprint = run.model, run.fingerprint
        self._decoding = DecodingOptions.from_recipe(
            run.recipe, run.known_edges, beam=BEAM, aggregate="pool", prune=PRUNE
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
        columns[:, 0] = self._edge(decoder, lists)
        return columns

    @torch.inference_mode()
    def _edge(self, decoder: TransformerDecoder, lists: CandidateLists) -> Features:
        """The first column, which needs no search.  (candidate)"""
        out = [np.empty(0, np.float32)]
        for first in range(0, len(lists), QUERIES_AT_ONCE):
            queries = torch.from_numpy(lists.queries[first : first + QUERIES_AT_ONCE].astype(np.int64))
            heads, relations = queries.to(decoder.device).T
            decoder.begin(heads, relations)
            log_probability = edge_log_probability(decoder, relations).cpu().numpy()
            out += [log_probability[i, lists.candidates[lists.rows(first + i)]] for i in range(len(queries))]
        return np.maximum(np.concatenate(out), np.log(LEAST))


def _search_features(ranking: PathRanking, query: int, candidates: Ids) -> Features:
    """The columns of the candidates of one query, but for the first."""
    own = ranking.rows(query)
    order = np.argsort(ranking.entity[own])
    answers = own.start + order  # by entity
    entities = ranking.entity[own][order]
    position = np.searchsorted(entities, candidates)
    position[position == len(entities)] = 0
    found = np.flatnonzero(entities[position] == candidates) if len(entities) else np.empty(0, np.int64)
    at = answers[position[found]]
    columns = np.tile(ABSENT, (len(candidates), 1))
    paths = np.diff(ranking.path_offsets)[at] - 1  # without the queried edge, which comes last
    reached, at = found[paths > 0], at[paths > 0]
    columns[reached, 1] = np.log(ranking.path_probability[at] + LEAST_PATHS)
    columns[reached, 2] = _best_path_score(ranking, at)
    columns[reached, 3] = np.log1p(paths[paths > 0])
    return columns


def _best_path_score(ranking: PathRanking, answers: Offsets) -> Features:
    """exp of Eq. 5 for the best path of each answer.  (answer)"""
    path = ranking.best_path[answers]
    score = ranking.token_log_probability[path].sum(1) / (2 * ranking.hops[path] + 1)
    return np.asarray(np.exp(score), np.float32)

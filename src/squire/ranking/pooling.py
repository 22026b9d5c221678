"""The edge embeddings' opinion beside the symbolic evidence: a logarithmic opinion pool of a few weights.

    score(t) = a · s(t) + Σ_k w_k · (x_k(t) − μ_k)

s is the score of the ranker, x are the features of t by the embeddings. The weights are learned from facts that
were held back from them, of which their opinion is as honest as of any missing fact. A few hundred questions
suffice, where a ranker with these features among all others needs thousands, of which small graphs have too few
(docs/LOG.md). Confidence does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from squire.graph.adjacency import Adjacency, Offsets
from squire.ranking.edge_features import TABLE, EdgeScorer
from squire.ranking.features import CandidateLists, Feature, Features, Floats
from squire.search.trained import LoadedRun

# Of weights other than 1 for the symbolic score and 0 for the embeddings, in lists. The held-back twentieth of a
# graph of a hundred facts is five, by which alone any weights could look best.
PENALTY = 1.0
STEPS = 100


@dataclass(frozen=True)
class EdgePool:
    """Edge embeddings and how far to trust them."""

    scorer: EdgeScorer
    own: float  # a: the weight of the symbolic score
    weights: Floats  # (feature): w, for features as they are
    means: Floats  # (feature): μ
    gone: Adjacency | None = None  # facts that they were fitted to and that are no longer known

    def on(self, run: LoadedRun) -> EdgePool:
        """The same for the facts of a run, some of which may have gone or come since the fit."""
        return replace(self, scorer=self.scorer.on(run), gone=run.forgotten)

    @property
    def table(self) -> tuple[Feature, ...]:
        """The features; a candidate of which there is no opinion has the means."""
        return tuple(replace(row, absent=float(mean)) for row, mean in zip(TABLE, self.means, strict=True))

    def features(self, lists: CandidateLists) -> Features:
        """The features; the means if a fact is an answer that is remembered but should not be known."""
        found = self.scorer.scores(lists)
        if self.gone is not None and self.gone.num_edges:
            remembered = [len(self.gone.tails_of(*query)) > 0 for query in lists.queries.tolist()]
            found[np.array(remembered, bool)[lists.query]] = self.means
        return found

    def pooled(self, scores: Floats, features: Features) -> Floats:
        """(candidate), (candidate, feature) -> (candidate)"""
        return np.asarray(self.own * scores + (features - self.means) @ self.weights)


def fit_pool(
    scorer: EdgeScorer,
    lists: CandidateLists,
    right: Offsets,  # (list): position of the right answer among all candidates
    scores: Floats,  # (candidate): by the ranker
    features: Features,  # (candidate, feature): by the embeddings
) -> EdgePool:
    """Maximise the probability of the right answers by a softmax over each list."""
    means = features.mean(axis=0, dtype=np.float64)
    scale = np.maximum(features.std(axis=0, dtype=np.float64), 1e-6)
    x = torch.from_numpy((features - means) / scale)
    s, answers, query = torch.from_numpy(scores), torch.from_numpy(right), torch.from_numpy(lists.query)
    own = torch.ones(1, dtype=torch.float64, requires_grad=True)
    weights = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([own, weights], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        pooled = own * s + x @ weights
        top = torch.full((len(lists),), -torch.inf, dtype=torch.float64)
        top = top.scatter_reduce(0, query, pooled.detach(), "amax")
        total = torch.zeros(len(lists), dtype=torch.float64).scatter_add(0, query, (pooled - top[query]).exp())
        value = (top + total.log() - pooled[answers]).sum() + PENALTY * ((own - 1).square() + weights @ weights)
        value = value.sum() / len(lists)
        torch.autograd.backward(value)
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return EdgePool(scorer, own.item(), weights.detach().numpy() / scale, means)

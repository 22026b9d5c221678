"""Edge embeddings of entities that came after the fit: fitted to their own edges, while all others stay.

The loss is that of `training.edges` for new edges: the cross-entropy of both of their ends. A new entity
is also a wrong answer to every other query. Without that, new entities would rank too high everywhere: on `world`
the MRR of questions about known entities fell from .551 to .535, with it to .547 (docs/LOG.md). Known entities and
known edges are sampled, so that the time depends on the number of new edges.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from squire.core.relations import inverse
from squire.graph.adjacency import Adjacency
from squire.model.edges import INITIAL, EdgeEmbedding, complex_product, cubic_norms

PASSES, EDGES_AT_ONCE = 20, 512  # more passes change nothing (docs/LOG.md)
COMPETITORS, OTHER_EDGES = 1024, 4096  # sampled
LEARNING_RATE = 0.1  # of Adagrad


def fold_in(edges: EdgeEmbedding, num_known: int, facts: Adjacency, penalty: float) -> EdgeEmbedding:
    """The embeddings of the first entities, and new ones for the further entities of these facts."""
    entity, relation = edges.entity.detach()[:num_known], edges.relation.detach()
    if facts.num_entities > num_known:
        with torch.enable_grad():
            new = _NewRows(entity.cpu(), relation.cpu(), facts, penalty).fit()
        entity = torch.cat([entity, new.to(entity.device)])
    return EdgeEmbedding.from_tables(entity, relation)


class _NewRows:
    """The rows of new entities, to be fitted."""

    def __init__(self, entity: Tensor, relation: Tensor, facts: Adjacency, penalty: float) -> None:
        self.entity, self.relation = entity, relation  # (known entity, 2 · rank), (edge type, 2 · rank)
        self.known, self.penalty = len(entity), penalty
        self.rng = torch.Generator().manual_seed(0)
        self.number = facts.num_entities - self.known
        first = int(facts.offsets[self.known])  # new entities come last, and so do their edges
        self.head = torch.arange(self.number).repeat_interleave(
            torch.from_numpy(np.diff(facts.offsets[self.known :]))
        )
        edge_types, tails = facts.relations[first:].astype(np.int64), facts.tails[first:].astype(np.int64)
        self.edge_type, self.tail = torch.from_numpy(edge_types), torch.from_numpy(tails)
        self.inverse = torch.from_numpy(inverse(edge_types, facts.num_relations))
        chosen = torch.randperm(self.known, generator=self.rng)[:COMPETITORS]
        self.competitors = self.entity[chosen]  # (competitor, 2 · rank)
        self.log_count = float(np.log(self.known / len(chosen)))  # for how many each of them stands
        # Edges between known entities: their states, and the logarithm of all that competes there.
        at = torch.randint(max(first, 1), (min(OTHER_EDGES, first),), generator=self.rng).numpy()
        heads = np.searchsorted(facts.offsets, at, side="right") - 1
        ends = facts.tails[at].astype(np.int64)
        is_known = ends < self.known
        types = torch.from_numpy(facts.relations[at][is_known].astype(np.int64))
        self.other = complex_product(self.entity[torch.from_numpy(heads[is_known])], self.relation[types])
        right = (self.other * self.entity[torch.from_numpy(ends[is_known])]).sum(1)
        self.other_norm = self._norm(self.other, right)
        self.other_edges = first

    def fit(self) -> Tensor:
        """(new entity, 2 · rank)"""
        rows = INITIAL * torch.randn(self.number, self.entity.shape[1], generator=self.rng)
        squares = torch.zeros_like(rows)
        for _ in range(PASSES):
            order = torch.randperm(len(self.head), generator=self.rng)
            for first in range(0, len(order), EDGES_AT_ONCE):
                chosen = order[first : first + EDGES_AT_ONCE]
                rows.requires_grad_()
                loss = self._loss(rows, chosen) + self._loss_elsewhere(rows) * len(chosen) / len(self.head)
                (gradient,) = torch.autograd.grad(loss / len(chosen), [rows])
                squares += gradient**2
                rows = rows.detach() - LEARNING_RATE * gradient / (squares.sqrt() + 1e-10)
        return rows.detach()

    def _loss(self, rows: Tensor, chosen: Tensor) -> Tensor:
        """Of both ends of some new edges."""
        head, tail = rows[self.head[chosen]], self._entities(rows, self.tail[chosen])
        loss = 2 * self.penalty * cubic_norms(head).sum()
        for start, edge_type, end in ((head, self.edge_type, tail), (tail, self.inverse, head)):
            states = complex_product(start, self.relation[edge_type[chosen]])
            right = (states * end).sum(1)
            loss = loss + (self._norm(states, right) - right).sum()
        return loss

    def _loss_elsewhere(self, rows: Tensor) -> Tensor:
        """What the new entities add to the loss of all edges between known ones, in which they are wrong."""
        added = (self.other @ rows.T).logsumexp(1) - self.other_norm
        return F.softplus(added).sum() * (self.other_edges / max(len(self.other), 1))

    def _entities(self, rows: Tensor, ids: Tensor) -> Tensor:
        """(entity) -> (entity, 2 · rank); known ones stay as they are"""
        is_new = (ids >= self.known)[:, None]
        return torch.where(
            is_new, rows[(ids - self.known).clamp(min=0)], self.entity[ids.clamp(max=self.known - 1)]
        )

    def _norm(self, states: Tensor, right: Tensor) -> Tensor:
        """The log-normaliser over the right answers and the competitors.  (state, 2 · rank), (state) -> (state)"""
        wrong = states @ self.competitors.T + self.log_count
        return torch.cat([right[:, None], wrong], 1).logsumexp(1)

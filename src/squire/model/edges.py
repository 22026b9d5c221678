"""Edge embeddings: the model's opinion of an edge, whatever the path before it (ComplEx, Trouillon et al. 2016).

    z(h, r, t) = Re⟨e_h, w_r, ē_t⟩

is added to the logit of the entity t after `…, h, r`. A transformer learns such products slowly: on the facts of
FB15K237 it was behind after three times the time (docs/LOG.md). The embeddings are fitted to the facts first
(`training.edges`), and stay as they are while the transformer learns paths.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INITIAL = 0.01  # standard deviation of the embeddings at first


class EdgeEmbedding(nn.Module):
    """Complex vectors of all entities and edge types; the first half of a row is real, the second imaginary."""

    def __init__(self, num_entities: int, num_edge_types: int, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.entity = nn.Parameter(INITIAL * torch.randn(num_entities, 2 * rank), requires_grad=False)
        self.relation = nn.Parameter(INITIAL * torch.randn(num_edge_types, 2 * rank), requires_grad=False)

    @classmethod
    def from_tables(cls, entity: Tensor, relation: Tensor) -> Self:
        """Embeddings that were fitted.  (entity, 2 · rank), (edge type, 2 · rank)"""
        with torch.device("meta"):  # no memory and no random numbers for what is replaced
            edges = cls(len(entity), len(relation), entity.shape[1] // 2)
        edges.load_state_dict({"entity": entity, "relation": relation}, assign=True)
        return edges

    def states(self, entities: Tensor, relations: Tensor) -> Tensor:
        """What is compared with the embeddings of all tails; zeros after a token that is no entity.

        (edge) × 2 -> (edge, 2 · rank)
        """
        known = entities < len(self.entity)
        product = complex_product(
            F.embedding(entities * known, self.entity), F.embedding(relations, self.relation)
        )
        return product * known[:, None]

    def logits(self, entities: Tensor, relations: Tensor) -> Tensor:
        """(edge) × 2 -> (edge, entity)"""
        return self.states(entities, relations) @ self.entity.T


def complex_product(one: Tensor, other: Tensor) -> Tensor:
    """(…, 2 · rank) × 2 -> (…, 2 · rank)"""
    (a, b), (c, d) = one.chunk(2, -1), other.chunk(2, -1)
    return torch.cat([a * c - b * d, a * d + b * c], -1)


def cubic_norms(rows: Tensor) -> Tensor:
    """Σ |x|³ over the complex entries of each row.  (row, 2 · rank) -> (row)"""
    real, imaginary = rows.chunk(2, -1)
    squares = real**2 + imaginary**2 + 1e-12
    return (squares * squares.sqrt()).sum(-1)  # pow is slow

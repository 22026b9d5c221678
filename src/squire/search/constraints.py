"""Paths along given edges only (§4.6): the train graph, a more complete one, or any other edge set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from squire.graph.adjacency import Adjacency
from squire.model._ragged import ragged


@dataclass(frozen=True)
class EdgeConstraint:
    """The edges twice: the relations that leave an entity, and the tails of an entity and a relation."""

    name: str  # for signatures
    num_edge_types: int  # 2R: relations and their inverses
    relation_offsets: Tensor  # (entity + 1): into `pairs`
    pairs: Tensor  # (pair): entity · num_edge_types + relation, sorted, distinct
    tail_offsets: Tensor  # (pair + 1): into `tails`
    tails: Tensor  # (edge)

    @classmethod
    def from_adjacency(
        cls, adjacency: Adjacency, device: torch.device | str = "cpu", *, name: str = "graph"
    ) -> EdgeConstraint:
        width = 2 * adjacency.num_relations
        keys = adjacency.heads.astype(np.int64) * width + adjacency.relations
        pairs, first = np.unique(keys, return_index=True)
        offsets = np.searchsorted(pairs, np.arange(adjacency.num_entities + 1) * width)
        arrays = offsets, pairs, np.append(first, len(keys)), adjacency.tails.astype(np.int64)
        return cls(name, width, *(torch.from_numpy(array).to(device) for array in arrays))

    def relations(self, entities: Tensor) -> tuple[Tensor, Tensor]:
        row, at = ragged(self.relation_offsets[entities], self.relation_offsets[entities + 1])
        return row, self.pairs[at] % self.num_edge_types

    def entities(self, entities: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        pairs = entities * self.num_edge_types + relations
        first, end = (torch.searchsorted(self.pairs, pairs, right=right) for right in (False, True))
        row, at = ragged(self.tail_offsets[first], self.tail_offsets[end])  # nothing where there is no such pair
        return row, self.tails[at]

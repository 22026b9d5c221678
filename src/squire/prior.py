"""What is known of a relation's tails before any learning: how often each was one (§1 of every result table).

A model whose entity distribution does not start from these counts loses to a table of them on sparse graphs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from squire.graph.store import Adjacency
from squire.ragged import ragged

UNSEEN = 1.0  # the weight, in facts, of all tails that a relation has never had


@dataclass(frozen=True)
class Prior:
    """For each edge relation a sparse row over the entities, to be added to logits; entities left out have 0."""

    offsets: Tensor  # (edge relation + 1)
    entities: Tensor  # (entry)
    values: Tensor  # (entry)

    @classmethod
    def of(cls, adjacency: Adjacency) -> Prior:
        """log(1 + count · entities / UNSEEN): a softmax over a row gives the smoothed frequencies."""
        size = max(adjacency.num_entities, 1)
        pairs = adjacency.relations.astype(np.int64) * size + adjacency.tails
        found, counts = np.unique(pairs, return_counts=True)
        relation, entity = np.divmod(found, size)
        offsets = np.searchsorted(relation, np.arange(2 * adjacency.num_relations + 1))
        values = np.log1p(counts * (size / UNSEEN)).astype(np.float32)
        return cls(torch.from_numpy(offsets), torch.from_numpy(entity), torch.from_numpy(values))

    def entries(self, relations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of these relations one after the other: row, entity, value.  (entry) each"""
        row, at = ragged(self.offsets[relations], self.offsets[relations + 1])
        return row, self.entities[at], self.values[at]

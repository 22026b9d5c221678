"""What is known of a relation's tails before any learning: how often each was one (§1 of every result table).

A model whose entity distribution does not start from these counts loses to a table of them on sparse graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from squire.graph.adjacency import Adjacency, Offsets
from squire.model._ragged import ragged

UNSEEN = 1.0  # the weight, in facts, of all tails that a relation has never had


@dataclass(frozen=True)
class Prior:
    """For each edge relation a sparse row over the entities, to be added to logits; entities left out have 0."""

    offsets: Tensor  # (edge relation + 1)
    entities: Tensor  # (entry)
    values: Tensor  # (entry)

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> Prior:
        """log(1 + count · entities / UNSEEN): a softmax over a row gives the smoothed frequencies."""
        offsets, tails, counts = tail_counts(adjacency)
        values = np.log1p(counts * (adjacency.num_entities / UNSEEN)).astype(np.float32)
        return cls(torch.from_numpy(offsets), torch.from_numpy(tails), torch.from_numpy(values))

    def entries(self, relations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of these relations one after the other: row, entity, value.  (entry) each"""
        row, at = ragged(self.offsets[relations], self.offsets[relations + 1])
        return row, self.entities[at], self.values[at]

    def among(self, entities: Tensor) -> Prior:
        """Of these distinct entities alone, each called by its position among them: for a softmax over a sample.

        Takes the time of their own entries, however many others there are.
        """
        relation, entity, value = self._by_entity
        ends = (torch.searchsorted(entity, entities, right=right) for right in (False, True))
        position, at = ragged(*ends)
        order = relation[at].argsort(stable=True)
        rows = torch.arange(len(self.offsets), device=order.device)
        return Prior(torch.searchsorted(relation[at][order], rows), position[order], value[at][order])

    @cached_property
    def _by_entity(self) -> tuple[Tensor, Tensor, Tensor]:
        """All entries, sorted by entity: relation, entity, value.  (entry) each"""
        relation = torch.repeat_interleave(self.offsets.diff())
        order = self.entities.argsort(stable=True)
        return relation[order], self.entities[order], self.values[order]


def tail_counts(adjacency: Adjacency) -> tuple[Offsets, Offsets, Offsets]:
    """For each edge relation its tails, ascending, and how many of its facts each has.

    offsets (edge relation + 1), tails (entry), counts (entry)
    """
    size = max(adjacency.num_entities, 1)
    pairs = adjacency.relations.astype(np.int64) * size + adjacency.tails
    found, counts = np.unique(pairs, return_counts=True)
    relation, tails = np.divmod(found, size)
    return np.searchsorted(relation, np.arange(2 * adjacency.num_relations + 1)), tails, counts

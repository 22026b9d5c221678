"""How often each entity is a tail of each relation: the prior of the model's entity distribution.

Without this prior a model loses to a table of these counts on sparse graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from squire.graph.adjacency import Adjacency, Offsets

UNSEEN = 1.0  # the weight, in facts, of all entities that a relation has not had as tails


@dataclass(frozen=True)
class Prior:
    """A sparse row over the entities for each edge type, to be added to logits; missing entries are 0."""

    offsets: Tensor  # (edge type + 1)
    entities: Tensor  # (entry)
    values: Tensor  # (entry)
    facts_per_tail: Tensor  # (edge type): on average over its tails

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> Prior:
        """log(1 + count · entities / UNSEEN): the softmax of a row gives the smoothed frequencies."""
        offsets, tails, counts = tail_counts(adjacency)
        values = np.log1p(counts * (adjacency.num_entities / UNSEEN)).astype(np.float32)
        facts = np.bincount(adjacency.relations, minlength=2 * adjacency.num_relations)
        per_tail = (facts / np.maximum(np.diff(offsets), 1)).astype(np.float32)
        return cls(*(torch.from_numpy(array) for array in (offsets, tails, values, per_tail)))

    def entries(self, relations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of these edge types, concatenated: row, entity, value.  (entry) each"""
        row, at = ragged_ranges(self.offsets[relations], self.offsets[relations + 1])
        return row, self.entities[at], self.values[at]

    def among(self, entities: Tensor) -> Prior:
        """The prior of these distinct entities only, renumbered in their order, for a softmax over a sample.

        The time does not depend on the number of other entities.
        """
        relation, entity, value = self._by_entity
        ends = (torch.searchsorted(entity, entities, right=right) for right in (False, True))
        position, at = ragged_ranges(*ends)
        order = relation[at].argsort(stable=True)
        rows = torch.arange(len(self.offsets), device=order.device)
        offsets = torch.searchsorted(relation[at][order], rows)
        return replace(self, offsets=offsets, entities=position[order], values=value[at][order])

    @cached_property
    def _by_entity(self) -> tuple[Tensor, Tensor, Tensor]:
        """All entries, sorted by entity: relation, entity, value.  (entry) each"""
        relation = torch.repeat_interleave(self.offsets.diff())
        order = self.entities.argsort(stable=True)
        return relation[order], self.entities[order], self.values[order]


def tail_counts(adjacency: Adjacency) -> tuple[Offsets, Offsets, Offsets]:
    """The tails of each edge type, ascending, with the number of its facts that have this tail.

    offsets (edge type + 1), tails (entry), counts (entry)
    """
    size = max(adjacency.num_entities, 1)
    pairs = adjacency.relations.astype(np.int64) * size + adjacency.tails
    found, counts = np.unique(pairs, return_counts=True)
    relation, tails = np.divmod(found, size)
    return np.searchsorted(relation, np.arange(2 * adjacency.num_relations + 1)), tails, counts


def ragged_ranges(first: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of several ranges, concatenated, each with the number of its range.  (position) × 2"""
    sizes = end - first
    row = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    starts = sizes.cumsum(0) - sizes
    return row, torch.arange(len(row), device=sizes.device) - starts[row] + first[row]

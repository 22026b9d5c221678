"""Negative sampling of entities, once per batch, for graphs with too many entities for a full softmax.

An entity sampled with probability π counts 1/π times (Horvitz and Thompson 1952), so that any sum over the sample
is an unbiased estimate of the sum over all entities: of both sums in Eq. 4, Σ exp(z) and Σ z. The targets of the
batch have probability 1. As the sample grows to the number of entities, so have all, and the sums become exact.

Half of the probability is spread evenly, the other half over the tails of the batch's relations by their
frequency. With even probabilities the few tails of a rare relation, which have almost all of its probability,
would hardly ever be sampled (figures: docs/LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from squire.graph.adjacency import Adjacency, Offsets
from squire.model.prior import tail_counts

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SampledEntities:
    """The entities that stand for all entities in a step."""

    entities: torch.Tensor  # (class): ascending, including every target of the batch
    counts: torch.Tensor  # (class): how many entities each stands for, itself included

    def to(self, device: torch.device) -> SampledEntities:
        return SampledEntities(self.entities.to(device), self.counts.to(device))


class NegativeSampler:
    """Samples the entities of a batch."""

    def __init__(self, adjacency: Adjacency, number: int) -> None:
        self._size, self._number = adjacency.num_entities, number
        self._offsets, self._tails, counts = tail_counts(adjacency)
        totals = np.add.reduceat(np.append(counts, 0), self._offsets[:-1])
        self._shares = counts / np.repeat(totals, np.diff(self._offsets))  # (entry): of its relation's facts

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency, number: int) -> NegativeSampler | None:
        """None if all entities are used: with `number` 0, or if the graph has no more entities."""
        return cls(adjacency, number) if 0 < number < adjacency.num_entities else None

    def sample(self, targets: Offsets, relations: Offsets, rng: np.random.Generator) -> SampledEntities:
        """The sample for a batch with these targets and the edge types before them; repeats do not matter.

        Time and memory are a few numbers per entity, whatever the number of rows in the batch.
        """
        probability = inclusion_probability(self.weights(targets, relations), self._number)
        probability[targets] = 1.0
        drawn = np.flatnonzero(rng.random(self._size) < probability)
        counts = (1 / probability[drawn]).astype(np.float32)
        return SampledEntities(torch.from_numpy(drawn), torch.from_numpy(counts))

    def weights(self, targets: Offsets, relations: Offsets) -> Reals:
        """The sampling weights: 0 for targets, which are always included.  (entity)"""
        weights = np.full(self._size, 1 / self._size)
        distinct = np.unique(relations)
        for relation in distinct:  # equally: a rare relation needs its tails as much as a frequent one
            own = slice(self._offsets[relation], self._offsets[relation + 1])
            weights[self._tails[own]] += self._shares[own] / len(distinct)
        weights[targets] = 0.0
        return weights


def inclusion_probability(weights: Reals, number: int) -> Reals:
    """Probabilities that are proportional to the weights, but at most 1, and sum to `number`."""
    if number >= np.count_nonzero(weights):
        return (weights > 0).astype(np.float64)
    certain = np.zeros(len(weights), np.bool_)
    scale = number / weights.sum()
    while (more := weights * scale >= np.where(certain, np.inf, 1.0)).any():
        certain |= more
        scale = (number - np.count_nonzero(certain)) / weights.sum(where=~certain)
    return np.where(certain, 1.0, weights * scale)

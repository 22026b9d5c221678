"""Which entities compete where there are too many for all: drawn once a batch, for every row of it.

An entity drawn with chance π counts 1/π times (Horvitz and Thompson 1952), so any sum over the drawn ones is an
unbiased estimate of the sum over all: of both that Eq. 4 has, Σ exp(z) and Σ z. The batch's own targets have
chance 1, and so has everybody as the number drawn grows to that of all entities: then the sums are exact.

Half of the chance is spread evenly, half over the tails of the batch's relations by how often they are tails. With
even chances the few tails of a rare relation, who have nearly all of its probability, would hardly ever be among
the drawn (figures: docs/LOG.md). Knows ids and counts, nothing of tokens, models or the loss.
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
class Competing:
    """The entities that stand for all of them in a step."""

    entities: torch.Tensor  # (class): ascending; every target of the batch is one
    counts: torch.Tensor  # (class): how many each stands for, itself included

    def to(self, device: torch.device) -> Competing:
        return Competing(self.entities.to(device), self.counts.to(device))


class Negatives:
    """Draws the competing entities of a batch."""

    def __init__(self, adjacency: Adjacency, number: int) -> None:
        self._size, self._number = adjacency.num_entities, number
        self._offsets, self._tails, counts = tail_counts(adjacency)
        totals = np.add.reduceat(np.append(counts, 0), self._offsets[:-1])
        self._shares = counts / np.repeat(totals, np.diff(self._offsets))  # (entry): of its relation's facts

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency, number: int) -> Negatives | None:
        """None where all entities compete: nothing is to be drawn, or as many as there are."""
        return cls(adjacency, number) if 0 < number < adjacency.num_entities else None

    def draw(self, targets: Offsets, relations: Offsets, rng: np.random.Generator) -> Competing:
        """For a batch with these targets, each after one of these edge relations; repeats do not matter.

        Time and memory are those of some columns of numbers, one an entity: the batch's rows do not multiply them.
        """
        chances = chances_of(self.weights(targets, relations), self._number)
        chances[targets] = 1.0
        drawn = np.flatnonzero(rng.random(self._size) < chances)
        return Competing(torch.from_numpy(drawn), torch.from_numpy((1 / chances[drawn]).astype(np.float32)))

    def weights(self, targets: Offsets, relations: Offsets) -> Reals:
        """What the chances of being drawn are in proportion to: 0 for targets, who need not be drawn.  (entity)"""
        weights = np.full(self._size, 1 / self._size)
        distinct = np.unique(relations)
        for relation in distinct:  # equally: the rarest needs its tails as much as the most frequent one
            own = slice(self._offsets[relation], self._offsets[relation + 1])
            weights[self._tails[own]] += self._shares[own] / len(distinct)
        weights[targets] = 0.0
        return weights


def chances_of(weights: Reals, number: int) -> Reals:
    """Chances in proportion to the weights but for those that would be above 1; they add up to `number`."""
    if number >= np.count_nonzero(weights):
        return (weights > 0).astype(np.float64)
    certain = np.zeros(len(weights), np.bool_)
    scale = number / weights.sum()
    while (more := weights * scale >= np.where(certain, np.inf, 1.0)).any():
        certain |= more
        scale = (number - np.count_nonzero(certain)) / weights.sum(where=~certain)
    return np.where(certain, 1.0, weights * scale)

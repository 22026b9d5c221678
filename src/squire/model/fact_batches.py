"""Facts as training rows: each query once, with all its tails as targets behind the queried edge, `h, r, r → t`.

Paths teach a model how to walk to a tail. On a dense graph the queried edge is almost never such a path, so paths
leave the model without an opinion of its own about t. A row of three tokens gives it one, whatever the number of
tails (Wang et al. 2019 and Chen et al. 2021 train transformers on such rows alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch

from squire.core.ragged import ranges
from squire.graph.adjacency import Adjacency, Offsets
from squire.model.batches import Batch, Targets
from squire.model.negative_sampling import NegativeSampler
from squire.model.vocabulary import Vocabulary

ROW = 3  # tokens: h, r, r
VISIBLE = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)  # as in a prefix tree


class FactBatches:
    """All facts as batches, deterministic by seed, epoch and position; an epoch may have several passes."""

    def __init__(
        self,
        facts: Adjacency,  # with the inverse of every fact
        vocab: Vocabulary,
        nodes: int,  # tokens of a batch
        passes: int,  # in an epoch
        seed: int,
        sampler: NegativeSampler | None = None,  # None: softmax over all entities
    ) -> None:
        self._vocab, self._passes, self._seed, self._sampler = vocab, passes, seed, sampler
        _, self._heads, self._relations, self._offsets = facts.runs
        self._tails = facts.tails
        self._at_once = max(1, nodes // ROW)

    def num_batches(self, epoch: int) -> int:
        return self._passes * self._in_a_pass

    @property
    def _in_a_pass(self) -> int:
        return -(-len(self._heads) // self._at_once)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting with number `first`."""
        for number in range(first, self.num_batches(epoch)):
            which, i = divmod(number, self._in_a_pass)
            if i == 0 or number == first:
                order = np.random.default_rng([self._seed, epoch, which]).permutation(len(self._heads))
            rng = np.random.default_rng([self._seed, epoch, which, i])
            yield self._batch(np.sort(order[i * self._at_once : (i + 1) * self._at_once]), rng)

    def _batch(self, queries: Offsets, rng: np.random.Generator) -> Batch:
        rows, sizes = len(queries), np.diff(self._offsets)[queries]
        heads, relations = (ids[queries].astype(np.int64) for ids in (self._heads, self._relations))
        tails = self._tails[ranges(self._offsets[queries], sizes)].astype(np.int64)
        after = relations + self._vocab.first_relation
        sampled = self._sampler.sample(tails, relations, rng) if self._sampler else None
        entities = Targets(
            torch.arange(rows) * ROW + ROW - 1,
            torch.from_numpy(relations),
            torch.from_numpy(np.repeat(np.arange(rows), sizes)),
            torch.from_numpy(tails),
            torch.ones(len(tails)),
        )
        return Batch(
            torch.from_numpy(np.stack([heads, after, after], axis=1)),
            torch.arange(ROW).expand(rows, ROW),
            VISIBLE.expand(rows, ROW, ROW),
            Targets.none(),  # which relation to follow is learned from paths
            entities,
            len(self._tails) / self._in_a_pass,
            sampled,
        )


class BatchSource(Protocol):
    """Batches, deterministic by epoch and position."""

    def num_batches(self, epoch: int) -> int: ...

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]: ...


class Interleaved:
    """The batches of several sources in turn, each evenly spread over the epoch."""

    def __init__(self, sources: Sequence[BatchSource]) -> None:
        self._sources = sources

    def num_batches(self, epoch: int) -> int:
        return sum(source.num_batches(epoch) for source in self._sources)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting with number `first`."""
        counts = [source.num_batches(epoch) for source in self._sources]
        due = np.concatenate([(np.arange(count) + 0.5) / count for count in counts if count] or [np.empty(0)])
        order = np.repeat(np.arange(len(counts)), counts)[np.argsort(due, kind="stable")]
        done = np.bincount(order[:first], minlength=len(counts)).tolist()
        streams = [source.epoch(epoch, skip) for source, skip in zip(self._sources, done, strict=True)]
        return (next(streams[which]) for which in order[first:])

"""Batches for training: prefix trees as rows of fixed length, in an order that can be resumed.

A row holds pieces. A piece is a query `h, r` and nodes of its tree; a token sees the query, its ancestors and
itself. Trees that are too large for a row are cut: the next piece repeats the ancestors it needs, and every node
is a target in exactly one piece. Masks and negative samples depend on seed, epoch and position only, so that a
resumed run sees the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from squire.graph.adjacency import Offsets
from squire.model._rows import cut_pieces, fill_rows, pack_pieces, path_weights
from squire.model.negative_sampling import NegativeSampler, SampledEntities
from squire.model.vocabulary import Vocabulary
from squire.paths.tries import Tries

ROW_TOKENS = 64
FIRST_HOP = 2  # the position of the first relation of a path


@dataclass(frozen=True)
class Targets:
    """What some of the tokens are to predict, as sparse rows of weights."""

    source: torch.Tensor  # (source): row · ROW_TOKENS + column of the predicting token, ascending
    relation: torch.Tensor  # (source): the edge type of that token, if it is a relation
    row: torch.Tensor  # (target): position in `source`, ascending
    token: torch.Tensor  # (target)
    weight: torch.Tensor  # (target): weight of the paths divided by their number of tokens

    @classmethod
    def none(cls) -> Targets:
        """No targets."""
        empty = torch.empty(0, dtype=torch.int64)
        return cls(empty, empty, empty, empty, torch.empty(0))

    def between(self, low: int, high: int) -> Targets:
        """The targets of the tokens from `low` to `high`, renumbered from `low`."""
        first, last = torch.searchsorted(self.source, torch.tensor([low, high])).tolist()  # of the sources
        start, end = torch.searchsorted(self.row, torch.tensor([first, last])).tolist()  # of the targets
        own, of_own = slice(first, last), slice(start, end)
        return Targets(
            self.source[own] - low,
            self.relation[own],
            self.row[of_own] - first,
            self.token[of_own],
            self.weight[of_own],
        )

    def to(self, device: torch.device) -> Targets:
        return Targets(*(tensor.to(device) for tensor in vars(self).values()))


@dataclass(frozen=True)
class Batch:
    """Some rows and their targets."""

    tokens: torch.Tensor  # (row, column)
    positions: torch.Tensor  # (row, column): 0 head, 1 relation, then 1 + depth
    visible: torch.Tensor  # (row, column, column): does the first attend to the second?
    relations: Targets  # relations or the end, after the query or an entity
    entities: Targets  # entities, after a relation
    weight: float  # number of paths in an average batch, by which the summed loss is divided
    sampled: SampledEntities | None = None  # the entities of the softmax, for all rows; None: all entities

    def shard(self, part: int, parts: int) -> Batch:
        """Part of the rows, possibly none; the losses of all parts add up to that of the whole batch."""
        rows, columns = self.tokens.shape
        low, high = rows * part // parts, rows * (part + 1) // parts
        return replace(
            self,
            tokens=self.tokens[low:high],
            positions=self.positions[low:high],
            visible=self.visible[low:high],
            relations=self.relations.between(low * columns, high * columns),
            entities=self.entities.between(low * columns, high * columns),
        )

    def edge_starts(self) -> torch.Tensor:
        """The token before each relation that predicts entities: an entity, or a mask.  (source of entities)"""
        row, column = self.entities.source // self.tokens.shape[1], self.entities.source % self.tokens.shape[1]
        position = self.positions[row, column]
        start = torch.where(position == FIRST_HOP, 0, position - 1)  # (source): the head, or the last entity
        at = (self.visible[row, column] & (self.positions[row] == start[:, None])).int().argmax(1)
        return self.tokens[row, at]

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        moved = {name: part.to(device) for name, part in vars(self).items() if hasattr(part, "to")}
        return replace(self, **moved)


@dataclass(frozen=True)
class Masking:
    """How path entities are masked (§3.2)."""

    probability: float
    with_random: bool = False  # by a random entity instead of <mask>, as in the authors' code


class Batches:
    """A training set as batches, deterministic by seed, epoch and position."""

    def __init__(
        self,
        tries: Tries,
        vocab: Vocabulary,
        nodes: int,
        masking: Masking,
        seed: int,
        sampler: NegativeSampler | None = None,  # None: softmax over all entities
    ) -> None:
        self._tries, self._vocab, self._masking, self._seed = tries, vocab, masking, seed
        self._sampler = sampler
        self._weight, self._end = path_weights(tries.parent, tries.depth, tries.offsets, tries.end)
        self._pieces = cut_pieces(tries.parent, tries.depth, tries.offsets, ROW_TOKENS)
        self._rows_at_once = max(1, nodes // ROW_TOKENS)
        self.total_weight = float(tries.end.sum(dtype=np.int64))  # number of paths

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting with number `first`."""
        row_of, num_rows = self._rows(epoch)
        order = np.argsort(row_of, kind="stable")
        starts = np.searchsorted(row_of[order], np.arange(num_rows + 1))
        count = self._count(num_rows)
        for i in range(first, count):
            low, high = i * self._rows_at_once, min((i + 1) * self._rows_at_once, num_rows)
            members = order[starts[low] : starts[high]]
            rng = np.random.default_rng([self._seed, epoch, i])
            yield self._batch(members, row_of[members] - low, high - low, rng, self.total_weight / count)

    def num_batches(self, epoch: int) -> int:
        return self._count(self._rows(epoch)[1])

    def _count(self, num_rows: int) -> int:
        return -(-num_rows // self._rows_at_once)

    def _rows(self, epoch: int) -> tuple[Offsets, int]:
        """The row of each piece, and the number of rows."""
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._pieces.query))
        return pack_pieces(np.diff(self._pieces.offsets), order, ROW_TOKENS)

    def _batch(
        self, members: Offsets, rows: Offsets, num_rows: int, rng: np.random.Generator, weight: float
    ) -> Batch:
        vocab, tries = self._vocab, self._tries
        size = int(np.diff(self._pieces.offsets)[members].sum())
        masked = rng.random(size) < self._masking.probability  # (token of the pieces), applies to entities only
        substitute = np.full(size, vocab.mask, np.int64)
        if self._masking.with_random:
            substitute = rng.integers(0, vocab.num_entities, size)
        filled = fill_rows(
            members, rows, num_rows, ROW_TOKENS, self._pieces, tries.queries, tries.token, tries.depth,
            self._weight, self._end, masked, substitute, vocab.first_relation, vocab.end, vocab.pad,
        )  # fmt: skip
        tokens, positions, visible, targets, weights = filled
        of_entity = targets[:, 1] < vocab.num_entities
        entities = _targets(targets[of_entity], weights[of_entity], tokens, vocab)
        sampled = None
        if self._sampler is not None:
            sampled = self._sampler.sample(entities.token.numpy(), entities.relation.numpy(), rng)
        return Batch(
            torch.from_numpy(tokens),
            torch.from_numpy(positions),
            torch.from_numpy(visible),
            _targets(targets[~of_entity], weights[~of_entity], tokens, vocab),
            entities,
            weight,
            sampled,
        )


def _targets(targets: Offsets, weights: npt.NDArray[np.float32], tokens: Offsets, vocab: Vocabulary) -> Targets:
    """Build targets from (source, token) pairs in any order."""
    order = np.argsort(targets[:, 0], kind="stable")
    source, row = np.unique(targets[order, 0], return_inverse=True)
    relation = np.clip(tokens.reshape(-1)[source] - vocab.first_relation, 0, None)
    arrays = (source, relation, row.reshape(-1), targets[order, 1], weights[order])
    return Targets(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))

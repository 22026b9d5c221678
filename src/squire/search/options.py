"""Settings of a search: its width, how answers are scored, which edges guide or constrain it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from squire.errors import SettingError
from squire.graph.adjacency import Adjacency, AnyIds
from squire.model.prior import ragged_ranges
from squire.model.recipe import MAX_BEAM, Recipe
from squire.rules.rules import PatternConfidence

Aggregate = Literal["sum", "max", "pool"]
Pairs = tuple[Tensor, Tensor]  # (pair) each: row, class


@dataclass(frozen=True, eq=False)
class SearchEdges:
    """Edges as tensors, indexed by entity and by (entity, relation): to constrain (§4.6) or guide a search.

    The tensors are made when a search needs them.
    """

    adjacency: Adjacency
    device: torch.device | str = "cpu"
    name: str = "graph"  # for signatures

    @property
    def num_edge_types(self) -> int:
        """2R: relations and their inverses."""
        return 2 * self.adjacency.num_relations

    @cached_property
    def relation_offsets(self) -> Tensor:
        """Into `pairs`.  (entity + 1)"""
        return self._tensor(self.adjacency.runs.offsets)

    @cached_property
    def pairs(self) -> Tensor:
        """entity · num_edge_types + relation, sorted, distinct.  (pair)"""
        runs = self.adjacency.runs
        return self._tensor(runs.heads.astype(np.int64) * self.num_edge_types + runs.relations)

    @cached_property
    def tail_offsets(self) -> Tensor:
        """Into `tails`.  (pair + 1)"""
        return self._tensor(self.adjacency.runs.starts)

    @cached_property
    def tails(self) -> Tensor:
        """(edge)"""
        return self._tensor(self.adjacency.tails)

    def _tensor(self, array: AnyIds) -> Tensor:
        return torch.tensor(array, dtype=torch.int64, device=self.device)

    def relations(self, entities: Tensor) -> Pairs:
        """The edge types that leave these entities, as (row, edge type) pairs."""
        row, at = ragged_ranges(self.relation_offsets[entities], self.relation_offsets[entities + 1])
        return row, self.pairs[at] % self.num_edge_types

    def entities(self, entities: Tensor, relations: Tensor) -> Pairs:
        """The tails of these (entity, edge type) pairs, as (row, entity) pairs."""
        pairs = entities * self.num_edge_types + relations
        first, end = (torch.searchsorted(self.pairs, pairs, right=right) for right in (False, True))
        row, at = ragged_ranges(self.tail_offsets[first], self.tail_offsets[end])  # empty if there is no such pair
        return row, self.tails[at]


@dataclass(frozen=True)
class Guidance:
    """Guides a search along known edges, so that the model need not infer what the graph already states.

    If an entity and a relation have known tails, the next entity is one of these with probability `share`,
    weighted as the model weights them, and any entity otherwise:  (1 − share) · p + share · p / Z,  where the
    second term applies to known tails only and Z is their total probability. Without a known tail, and for
    relations, the model's own probabilities are used. A share of 0 is the paper's search.
    """

    edges: SearchEdges
    share: float

    def apply(self, entities: Tensor, relations: Tensor, logits: Tensor, norm: Tensor) -> None:
        """Change the logits in place; their log-normaliser stays the same.  (row) × 2, (row, entity), (row)"""
        row, tail = self.edges.entities(entities, relations)
        known = torch.zeros_like(norm).index_add_(0, row, (logits[row, tail] - norm[row]).exp())  # Z
        free = torch.where(known > 0, math.log1p(-self.share), 0.0)
        logits += free[:, None]
        logits[row, tail] += torch.log1p(self.share / ((1 - self.share) * known[row]))


@dataclass(frozen=True)
class DecodingOptions:
    """How to search for paths and how to rank the answers they lead to."""

    beam: int = 256  # hypotheses kept per query at each step
    aggregate: Aggregate = "sum"
    prune: float = 0.0  # drop paths below this share of the tenth new answer's probability
    hops: int = 3
    constraint: SearchEdges | None = None  # the only edges that a path may use
    guidance: Guidance | None = None
    edge_ends: bool = False  # does a path that consists of the queried edge always end there?
    edge_weight: float = 0.3  # of the queried edge in a pool; the other paths have the rest
    known: Adjacency | None = None  # the edges that the paths of a pool follow
    patterns: PatternConfidence | None = None  # how often these are right, for a pool
    names: bool = False  # does the model know the names of entities? For signatures.
    unlinked: bool = False  # does a pool leave out entities that have an edge with the head?

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= MAX_BEAM:
            raise SettingError(f"beam={self.beam}: expected 1 to {MAX_BEAM:,}.")
        if self.aggregate not in get_args(Aggregate):
            *others, last = (repr(choice) for choice in get_args(Aggregate))
            raise SettingError(f"aggregate={self.aggregate!r}: expected {', '.join(others)} or {last}.")
        if not 0 <= self.prune < 1:
            raise SettingError(f"prune={self.prune:g}: expected a share from 0 to less than 1.")
        if not 0 <= self.edge_weight <= 1:
            raise SettingError(f"edge_weight={self.edge_weight:g}: expected a share from 0 to 1.")
        # A path that adds little to a sum may still be the best path, or the only one that is allowed.
        if self.prune and (self.aggregate != "sum" or self.constraint):
            raise SettingError(
                f"prune={self.prune:g}: only works with aggregate='sum' and without a constraint. Set it to 0."
            )
        if self.aggregate == "pool" and self.constraint:
            raise SettingError("aggregate='pool': does not work with a constraint. Choose 'sum' or 'max'.")

    @property
    def known_share(self) -> float:
        """The share of the guidance; 0 without any."""
        return self.guidance.share if self.guidance else 0.0

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        known_edges: SearchEdges,
        *,
        beam: int | None = None,
        aggregate: Aggregate | None = None,
        prune: float | None = None,
        constraint: SearchEdges | None = None,
        edge_ends: bool | None = None,
        patterns: PatternConfidence | None = None,
        unlinked: bool = False,
    ) -> DecodingOptions:
        """The recipe's settings with these changes; `known_edges` are those of the graph, for guidance."""
        own = recipe.decode
        if aggregate is None:  # a fact that no allowed edge states cannot be pooled
            aggregate = "sum" if own.aggregate == "pool" and constraint else own.aggregate
        if prune is None:
            prune = own.prune if aggregate == "sum" and not constraint else 0.0
        return cls(
            own.beam if beam is None else beam,
            aggregate,
            prune,
            recipe.paths.hops,
            constraint,
            Guidance(known_edges, own.known_share) if own.known_share else None,
            own.edge_ends if edge_ends is None else edge_ends,
            own.edge_weight,
            known_edges.adjacency,
            patterns,
            bool(recipe.model.edge_rank) and recipe.model.edge_names,
            unlinked,
        )

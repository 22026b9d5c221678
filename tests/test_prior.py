"""The prior's rows, and the same rows for some of the entities only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from training_cases import ENTITIES, RELATIONS, small_graph

from squire.model.prior import Prior, tail_counts

GRAPH = small_graph()


def dense(prior: Prior, entities: int) -> Tensor:
    """As a table.  (edge relation, entity)"""
    row, entity, value = prior.entries(torch.arange(2 * RELATIONS))
    return torch.zeros(2 * RELATIONS, entities).index_put((row, entity), value)


def test_tails_are_counted_by_relation() -> None:
    offsets, tails, counts = tail_counts(GRAPH)
    expected = np.zeros((2 * RELATIONS, ENTITIES), int)
    for head, relation, tail in GRAPH.triples.tolist():
        expected[relation, tail] += 1
        expected[relation + RELATIONS, head] += 1
    found = np.zeros_like(expected)
    found[np.repeat(np.arange(2 * RELATIONS), np.diff(offsets)), tails] = counts
    assert (found == expected).all()
    values = dense(Prior.from_adjacency(GRAPH), ENTITIES)
    torch.testing.assert_close(values, torch.from_numpy(np.log1p(expected * ENTITIES)).float())


@pytest.mark.parametrize("entities", [[], [4], [0, 3, 5, 11], [11, 2, 7], list(range(ENTITIES))])
def test_among_some_entities_it_has_their_columns(entities: list[int]) -> None:
    prior = Prior.from_adjacency(GRAPH)
    some = prior.among(torch.tensor(entities, dtype=torch.int64))
    assert torch.equal(dense(some, len(entities)), dense(prior, ENTITIES)[:, entities])


def test_entities_that_are_nobodys_tail_have_no_entries() -> None:
    prior = Prior(torch.tensor([0, 2, 3]), torch.tensor([1, 4, 1]), torch.tensor([0.5, 0.25, 2.0]), torch.ones(2))
    some = prior.among(torch.tensor([0, 1, 9]))
    row, position, value = some.entries(torch.tensor([1, 0, 1]))
    assert (row.tolist(), position.tolist(), value.tolist()) == ([0, 1, 2], [1, 1, 1], [2.0, 0.5, 2.0])

"""Edge embeddings of entities that come after the fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from squire.graph.adjacency import Adjacency
from squire.model.edges import EdgeEmbedding
from squire.model.fold_in import fold_in

KNOWN, RELATIONS, RANK = 40, 2, 8
PENALTY = 0.01


@pytest.fixture(scope="module")
def fitted() -> EdgeEmbedding:
    """Embeddings of two groups of entities: relation 0 leads from a group to itself."""
    torch.manual_seed(0)
    entity = 0.1 * torch.randn(KNOWN, 2 * RANK)
    entity[: KNOWN // 2, 0] += 2
    entity[KNOWN // 2 :, 1] += 2
    relation = torch.zeros(2 * RELATIONS, 2 * RANK)
    relation[:, :RANK] = 1
    return EdgeEmbedding.from_tables(entity, relation)


def facts(new: int, edges: list[tuple[int, int, int]]) -> Adjacency:
    """Edges within the groups, and further ones of `new` more entities."""
    known = [(i, 0, (i + step) % 20 + 20 * (i // 20)) for i in range(KNOWN) for step in (1, 2, 3)]
    return Adjacency.build(np.array(known + edges, np.int32), KNOWN + new, RELATIONS)


def test_known_entities_stay_as_they_are(fitted: EdgeEmbedding) -> None:
    found = fold_in(fitted, KNOWN, facts(1, [(KNOWN, 0, 3)]), PENALTY)
    assert torch.equal(found.entity[:KNOWN], fitted.entity)
    assert torch.equal(found.relation, fitted.relation)
    assert torch.equal(fold_in(fitted, KNOWN, facts(0, []), PENALTY).entity, fitted.entity)


def test_a_new_entity_is_like_those_with_the_same_edges(fitted: EdgeEmbedding) -> None:
    first, second = KNOWN, KNOWN + 1
    edges = [(first, 0, i) for i in range(5)] + [(25 + i, 0, second) for i in range(5)]
    found = fold_in(fitted, KNOWN, facts(2, edges), PENALTY)
    scores = found.logits(torch.tensor([first, second, 12, 33]), torch.zeros(4, dtype=torch.int64))
    own, other = slice(0, 20), slice(20, 40)
    assert scores[0, own].mean() > scores[0, other].mean()  # as a head
    assert scores[1, other].mean() > scores[1, own].mean()
    assert scores[2, first] > scores[2, second]  # as an answer
    assert scores[3, second] > scores[3, first]


def test_a_new_entity_is_no_better_an_answer_than_known_ones_with_as_many_edges(fitted: EdgeEmbedding) -> None:
    """It must not outrank them where it has no edge."""
    found = fold_in(fitted, KNOWN, facts(1, [(KNOWN, 0, i) for i in range(6)]), PENALTY)
    heads = torch.arange(KNOWN)
    scores = found.logits(heads, torch.zeros(KNOWN, dtype=torch.int64))
    ranks = (scores[:, :KNOWN] > scores[:, KNOWN:]).sum(1)
    assert (ranks[20:] >= 10).all()  # at those of the other group, behind half of the entities


def test_it_is_the_same_every_time_and_for_entities_without_edges(fitted: EdgeEmbedding) -> None:
    grown = facts(3, [(KNOWN, 0, 3), (KNOWN + 1, 1, KNOWN)])  # the last one has no edge
    one, other = (fold_in(fitted, KNOWN, grown, PENALTY) for _ in range(2))
    assert torch.equal(one.entity, other.entity)
    assert one.entity.isfinite().all()
    nothing = fold_in(fitted, KNOWN, facts(2, []), PENALTY)
    assert nothing.entity.isfinite().all()


def test_what_was_folded_in_before_is_fitted_anew(fitted: EdgeEmbedding) -> None:
    grown = facts(1, [(KNOWN, 0, 3)])
    once = fold_in(fitted, KNOWN, grown, PENALTY)
    assert torch.equal(fold_in(once, KNOWN, grown, PENALTY).entity, once.entity)
